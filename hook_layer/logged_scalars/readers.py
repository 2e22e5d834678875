"""Reads the values and the step of a call of each logging library.

A reader has the parameters of the method that it reads, and runs after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

__all__ = ["Logged"]

Logged: TypeAlias = tuple[Mapping[str, Any], Any]
"""Values by name, and the script's step; None if unknown."""


def wandb(run: Any, data: Any, step: Any = None, commit: Any = None, *_: Any, **__: Any) -> Logged:
    """Read `wandb.log`; without a step, the run counts its committed calls."""
    if step is None:
        step = getattr(run, "_local_step", None)
        return data, step if step is None or commit is False else step - 1
    return data, step


def trackio(run: Any, metrics: Any, step: Any = None, *_: Any, **__: Any) -> Logged:
    """Read `trackio.log`; without a step, the run counts its calls."""
    return metrics, getattr(run, "_next_step", 0) - 1 if step is None else step


def summary_scalar(
    _: Any, tag: str, scalar_value: Any, global_step: Any = None, *__: Any, **___: Any
) -> Logged:
    """Read `SummaryWriter.add_scalar`."""
    return {tag: scalar_value}, global_step


def summary_scalars(
    _: Any, main_tag: str, tag_scalar_dict: Any, global_step: Any = None, *__: Any, **___: Any
) -> Logged:
    """Read `SummaryWriter.add_scalars`."""
    return {main_tag: tag_scalar_dict}, global_step


def mlflow_metric(
    _: Any,
    run_id: Any,  # noqa: ARG001
    key: str,
    value: Any,
    *others: Any,
    **named: Any,
) -> Logged:
    """Read `MlflowClient.log_metric`, which `mlflow.log_metric` calls."""
    return {key: value}, named.get("step", others[1] if len(others) > 1 else None)


def mlflow_batch(
    _: Any,
    run_id: Any,  # noqa: ARG001
    metrics: Sequence[Any] = (),
    *__: Any,
    **___: Any,
) -> Logged:
    """Read `MlflowClient.log_batch`, which `mlflow.log_metrics` calls."""
    step = metrics[-1].step if metrics else None
    return {metric.key: metric.value for metric in metrics}, step


def transformers(trainer: Any, logs: Any, *_: Any, **__: Any) -> Logged:
    """Read `Trainer.log`."""
    return logs, trainer.state.global_step


def lightning(connector: Any, metrics: Any, step: Any = None) -> Logged:
    """Read what Lightning's Trainer gives to its loggers."""
    return metrics, connector.trainer.global_step if step is None else step


def keras_epoch(_: Any, epoch: Any, logs: Any = None, *__: Any, **___: Any) -> Logged:
    """Read the logs of an epoch of `fit`."""
    return logs or {}, epoch
