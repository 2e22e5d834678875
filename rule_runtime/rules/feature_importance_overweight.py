"""FeatureImportanceOverweight: detects models that rely on a few features."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Annotated, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import IssueFound, Missing, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, AtMost, GreaterThan, Memory, Regex, Rule, Unit
from rule_runtime.facts.selection import evidence, finite_means

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["FeatureImportanceOverweight"]

_PREFIX: Final = "feature_importance/"
_MAX_NAMES: Final = 5
"""Further features that a finding names."""

_REMEDY: Final = (
    "Check whether the most important features leak the label. Otherwise train without them, "
    "sample columns (colsample_bytree), or regularise more."
)


class FeatureImportanceOverweight(Rule):
    """Detects models that rely on a few features.

    How it decides:
        At each saved round, the rule computes the share of the `nfeatures` largest importances in
        the sum of all importances. A share above `threshold` fires. Each type of importance that
        the pattern selects (weight, gain, cover, ...) is judged by itself. Rounds before
        `start_step` are not evaluated, nor are models that use too few features: the share of a few
        among few is always large.

    Parameters:
        threshold: Largest share that passes.
        nfeatures: Number of features in the share.
        tensor_regex: Regular expressions of the importances.
        start_step: First round to judge.
        min_features: Smallest number of features with an importance; at least `nfeatures` + 1.

    What to try:
        Check whether a feature leaks the label. Drop or regularise the most important features.
    """

    threshold: Annotated[float, GreaterThan(0), AtMost(1)] = 0.8
    nfeatures: Annotated[int, AtLeast(1)] = 3
    tensor_regex: Annotated[tuple[str, ...], Regex()] = (".*feature_importance/weight",)
    start_step: Annotated[int, AtLeast(0), Unit("rounds")] = 0
    min_features: Annotated[int, AtLeast(0), Unit("features")] = 0

    collections = (CollectionConfig("feature_importance", {"save_interval": "500"}),)

    def check(self, step: StepView, memory: Memory) -> Outcome:  # noqa: ARG002
        """Compare the share of the most important features with the threshold.

        Args:
            step: What was saved at the step.
            memory: Not used.
        """
        if step.mode_step < self.start_step:
            return NotEvaluated(f"rounds before start_step={self.start_step} are not evaluated")
        rows = step.tensors(regex=self.tensor_regex)
        if not len(rows):
            raise Missing("no feature importance was saved")
        importances = finite_means(rows)
        least = max(self.nfeatures + 1, self.min_features)
        shares = [
            (-_share(importances[members], self.nfeatures), *group, members)
            for group, members in _groups(rows, importances).items()
            if len(members) >= least and importances[members[0]] > 0
        ]
        if not shares:
            raise Missing(f"fewer than {least} features have an importance")
        negative_share, kind, _, members = min(shares)
        share = -negative_share
        if share <= self.threshold:
            return Passed()
        others = [rows.names[at].removeprefix(f"{kind}/") for at in members[1 : self.nfeatures]]
        return IssueFound(
            evidence(
                step,
                rows,
                members[0],
                measure="importance_share",
                value=share,
                threshold=self.threshold,
                message=(
                    f"the most important feature{_with(others)} has {share:.3g} of the importance "
                    f"of {len(members)} features, more than {self.threshold:g}"
                ),
                remedy=_REMEDY,
            )
        )


def _share(importances: npt.NDArray[np.float64], num_features: int) -> float:
    """Return the share of the first importances in the sum of all."""
    scaled = importances / importances[0]  # a sum of large importances could overflow
    return float(scaled[:num_features].sum() / scaled.sum())


def _groups(
    rows: TensorRows, importances: npt.NDArray[np.float64]
) -> dict[tuple[str, str], list[int]]:
    """Return the rows with an importance by type and worker, the most important first."""
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    known = np.flatnonzero(importances >= 0)
    for at in sorted(known.tolist(), key=lambda at: (-importances[at], rows.names[at])):
        groups[_type(rows.names[at]), rows.workers[at]].append(at)
    return groups


def _type(name: str) -> str:
    """Return the name without the feature, such as `feature_importance/weight`."""
    start = name.find(_PREFIX)
    end = name.find("/", start + len(_PREFIX)) if start >= 0 else name.rfind("/")
    return name[:end] if end >= 0 else ""


def _with(names: list[str]) -> str:
    """Return further features in words."""
    if not names:
        return ""
    more = len(names) - _MAX_NAMES
    return f", with {', '.join(names[:_MAX_NAMES])}{f' and {more} more' if more > 0 else ''},"
