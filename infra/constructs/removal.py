"""What becomes of stored data when its stack is deleted."""

from __future__ import annotations

import aws_cdk as cdk

from infra.config import StepwatchConfig

__all__ = ["removal_of"]


def removal_of(config: StepwatchConfig) -> cdk.RemovalPolicy:
    """Return the policy of stored data, as the setting `data_retention` says.

    What a first deployment made that did not succeed goes in any case: it is empty, and the next
    attempt could not make a bucket whose name is taken.
    """
    if config.retains_data:
        return cdk.RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE
    return cdk.RemovalPolicy.DESTROY
