"""Why numbers that a rule needs are not known, in words that tell what to do.

Shape legend: R = rows, one for each (tensor, worker).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from rule_runtime.engine.wording import counted
from rule_runtime.numerics.weight_drift import DRIFT_COLUMNS

if TYPE_CHECKING:
    import numpy.typing as npt

    from rule_runtime.trial.step_view import TensorRows

__all__ = ["are_not_finite", "why_no_drift", "why_no_gradient", "why_no_loss", "why_unknown"]

_SAVE_VALUES: Final = (
    "save their values (save_raw_tensor), or write the run with the hook of Stepwatch, which saves "
    "statistics"
)
"""What to do where an original client saved neither values nor what a rule needs."""


def are_not_finite(rows: TensorRows) -> bool:
    """Return whether every tensor has an element that is not finite.

    Args:
        rows: The rows [R], at least one.
    """
    num_bad = np.nan_to_num(rows.column("nan")) + np.nan_to_num(rows.column("inf"))
    return bool((num_bad > 0).all())


def why_unknown(rows: TensorRows, columns: Sequence[str], noun: str) -> str:
    """Return why no row has all of some statistics; empty if one has.

    Args:
        rows: The rows [R], at least one.
        columns: Names of the statistics.
        noun: What one row is called, such as `gradient`.
    """
    unknown = np.isnan(np.stack([rows.column(name) for name in columns]))
    if not unknown.any(axis=0).all():
        return ""
    message = counted(len(rows), f"saved {noun}")
    if are_not_finite(rows):
        return f"of {message} none is finite"
    if (rows.column("size") == 0).all():
        return f"of {message} all are empty"
    lacking = [name for name, row in zip(columns, unknown, strict=True) if row.any()]
    return f"of {message} statistics are not known ({', '.join(lacking)}): {_SAVE_VALUES}"


def why_no_gradient(gradients: TensorRows, columns: Sequence[str]) -> str:
    """Return why no gradient has all of some statistics; empty if one has.

    Args:
        gradients: Those that were saved [R], possibly none.
        columns: Names of the statistics.
    """
    if not len(gradients):
        return "no tensor of the collection gradients was saved"
    return why_unknown(gradients, columns, "gradient")


def why_no_loss(rows: TensorRows, means: npt.NDArray[np.float64], of_finite: str) -> str:
    """Return why none of a step's losses counts.

    Args:
        rows: The losses [R], at least one.
        means: Their means [R], NaN where they are not finite or not known.
        of_finite: What is said of one whose mean is finite, behind its name.
    """
    finite = [name for name, mean in zip(rows.names, means, strict=True) if np.isfinite(mean)]
    if finite:
        return f"{min(finite)} {of_finite}"
    return why_unknown(rows, ("mean",), "loss") or f"the loss {min(rows.names)} is not finite"


def why_no_drift(rows: TensorRows, since: int | None, now: int) -> str:
    """Return why weights cannot be compared with those of the step before, by `WeightDrift`.

    Args:
        rows: The weights [R], at least one.
        since: The step before; None if there is none.
        now: The step.
    """
    unknown = why_unknown(rows, DRIFT_COLUMNS, "weight")
    if unknown:
        return unknown
    if not ((rows.column("l2") > 0) & (rows.column("size") > 1)).any():
        return "all saved weights are zero, or single numbers"
    if since is None:
        return "there is no earlier step to compare the weights with"
    if since >= now:
        return f"step {now} of the mode does not come after step {since}, the one seen before"
    return f"no weight that is known now was known at step {since}, the one before"
