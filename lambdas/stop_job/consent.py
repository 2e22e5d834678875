"""Checks whether the tag of a job gives consent to stop it.

A `job.json` can name any job, but only the owner of a job can tag it. The role of the function has
the same condition, so IAM denies requests about jobs without consent.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import Final

from lambdas.contracts.stopping import NEVER

__all__ = ["Consent", "consent_of"]

_SCHEME: Final = "s3://"


class Consent(Enum):
    """Content of a job's tag about stopping."""

    GIVEN = "findings below this root may stop the job"
    ABSENT = "the job has no tag"
    ELSEWHERE = "the tag names another place"
    NEVER = "the job must not be stopped"


def consent_of(tag: str | None, root_uri: str, bucket_names: Collection[str]) -> Consent:
    """Parse the tag of a job about stopping.

    Args:
        tag: Value of the tag; None if the job has none.
        root_uri: Root of the trial with the finding, ending in "/"; empty for a finding of
            SageMaker's own rules, which name no root.
        bucket_names: The watched buckets.
    """
    if tag is None:
        return Consent.ABSENT
    if tag == NEVER:
        return Consent.NEVER
    bucket, slash, _ = tag.removeprefix(_SCHEME).partition("/")
    names_place = tag.startswith(_SCHEME) and bool(slash) and bucket in bucket_names
    place = tag.rstrip("/") + "/"
    is_meant = not root_uri or root_uri.startswith(place)
    return Consent.GIVEN if names_place and is_meant else Consent.ELSEWHERE
