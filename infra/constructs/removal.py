"""Removal policy of stored data when the stack is deleted."""

from __future__ import annotations

import aws_cdk as cdk

from infra.config import StepwatchConfig

__all__ = ["removal_of"]


def removal_of(config: StepwatchConfig) -> cdk.RemovalPolicy:
    """Return the removal policy for the setting `data_retention`.

    Resources of a failed first deployment are always removed: they are empty, and the next attempt
    could not create a bucket with the same name.
    """
    if config.retains_data:
        return cdk.RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE
    return cdk.RemovalPolicy.DESTROY
