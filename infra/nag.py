"""Checks the synthesized template with cdk-nag's AwsSolutions pack.

A finding without acknowledgement makes `app.synth()` raise. An acknowledgement names one rule, one
finding and one construct, and explains why the finding is acceptable there.
"""

from __future__ import annotations

import aws_cdk as cdk
from cdk_nag import AwsSolutionsChecks
from constructs import Construct, IConstruct

__all__ = ["acknowledge", "attach_checks"]

PACK = "AwsSolutions"


def attach_checks(app: cdk.App) -> None:
    """Make the synthesis of an application fail on unacknowledged findings."""
    cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app))


def acknowledge(construct: Construct | IConstruct, finding: str, *, reason: str) -> None:
    """Accept a finding, e.g. `IAM5[Resource::*]`, on one construct and its children."""
    cdk.Validations.of(construct).acknowledge(
        cdk.Acknowledgment(id=f"{PACK}::{PACK}-{finding}", reason=reason)
    )
