"""What many rules do with the tensors of a step: choose among them, and tell what was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from hook_layer.format.modes import ModeKeys
from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import Evidence
from rule_runtime.trial.tensor_rows import worst

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["declared", "evidence", "finite_means", "is_training", "selected_collections", "worst"]

_TRAINING: Final = frozenset({ModeKeys.TRAIN, ModeKeys.GLOBAL})


def selected_collections(
    rule: str,
    names: Sequence[str],
    regex: Sequence[str],
    parameters: Mapping[str, str] | None = None,
) -> tuple[CollectionConfig, ...]:
    """Return what the hook must save of the tensors that a rule was told to judge.

    Args:
        rule: Name of the rule; the collection of the regular expressions is called after it.
        names: Collections that were named.
        regex: Regular expressions of further tensors.
        parameters: Parameters of all these collections, e.g. `save_raw_tensor`.
    """
    given = dict(parameters or {})
    found = [CollectionConfig(name, given) for name in names]
    if regex:
        found.append(
            CollectionConfig(f"{rule}_tensors", {"include_regex": ",".join(regex), **given})
        )
    return tuple(found)


def is_training(step: StepView) -> bool:
    """Return whether weights may change at a step: its mode is TRAIN, or GLOBAL where none was set.

    Args:
        step: The step.
    """
    return step.mode in _TRAINING


def evidence(
    step: StepView,
    rows: TensorRows,
    at: int,
    *,
    measure: str,
    value: float,
    threshold: float,
    message: str,
    remedy: str,
) -> Evidence:
    """Return the evidence of a finding in one row.

    Args:
        step: Where it was found.
        rows: The rows.
        at: The row.
        measure: Name of what was measured.
        value: The measured value.
        threshold: What it was compared with.
        message: The finding in words; the tensor's name and a colon are put in front.
        remedy: What to try first.
    """
    return Evidence(
        step=step.step,
        mode=step.mode.name,
        worker=rows.workers[at],
        tensor=rows.names[at],
        measure=measure,
        value=float(value),
        threshold=float(threshold),
        sentence=f"{rows.names[at]}: {message}",
        remedy=remedy,
    )


def finite_means(rows: TensorRows) -> npt.NDArray[np.float64]:
    """Return the mean of each row [R], NaN where a row has an element that is not finite.

    That is the value of a scalar, such as a loss.

    Args:
        rows: The rows [R].
    """
    mean = rows.column("mean")
    num_bad = np.nan_to_num(rows.column("nan")) + np.nan_to_num(rows.column("inf"))
    return np.where(num_bad > 0, np.nan, mean)


def declared(step: StepView, collection: str) -> dict[str, frozenset[str]]:
    """Return which tensors each worker says belong to a collection, saved at this step or not.

    Workers without a collections file, and those that name no tensor of it, are left out.

    Args:
        step: The step.
        collection: Name of the collection.
    """
    found = {}
    for worker in step.workers:
        file = step.collections_file(worker)
        entry = None if file is None else file.collections.get(collection)
        if entry is not None and entry.tensor_names:
            found[worker] = frozenset(entry.tensor_names)
    return found
