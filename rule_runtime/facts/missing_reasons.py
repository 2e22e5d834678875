"""Former names of `rule_runtime.facts.missing`, which return texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rule_runtime.facts import missing
from rule_runtime.facts.missing import are_not_finite

if TYPE_CHECKING:
    import numpy.typing as npt

    from rule_runtime.trial.step_view import TensorRows

__all__ = ["are_not_finite", "why_no_drift", "why_no_gradient", "why_no_loss", "why_unknown"]


def why_unknown(rows: TensorRows, columns: Sequence[str], noun: str) -> str:
    """Return the text of `missing_statistics`, empty if nothing is missing.

    Args:
        rows: The rows [R], at least one.
        columns: Names of the statistics.
        noun: What one row is called, such as `gradient`.
    """
    return str(missing.missing_statistics(rows, columns, noun) or "")


def why_no_gradient(gradients: TensorRows, columns: Sequence[str]) -> str:
    """Return the text of `missing_gradients`, empty if nothing is missing.

    Args:
        gradients: Those that were saved [R], possibly none.
        columns: Names of the statistics.
    """
    return str(missing.missing_gradients(gradients, columns) or "")


def why_no_loss(rows: TensorRows, means: npt.NDArray[np.float64], why_not: str) -> str:
    """Return the text of `missing_counted_loss`.

    Args:
        rows: The losses [R], at least one.
        means: Their means [R], NaN where they are not finite or not known.
        why_not: Why a finite loss does not count, a predicate that follows its name.
    """
    return str(missing.missing_counted_loss(rows, means, why_not))


def why_no_drift(rows: TensorRows, since: int | None, now: int) -> str:
    """Return the text of `missing_drift`.

    Args:
        rows: The weights [R], at least one.
        since: The earlier step; None if there is none.
        now: The step.
    """
    return str(missing.missing_drift(rows, since, now))
