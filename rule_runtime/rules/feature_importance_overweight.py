"""FeatureImportanceOverweight: a model that rests on a few features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import numpy as np

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, AtMost, GreaterThan, Memory, Regex, Rule, Unit
from rule_runtime.facts.selection import evidence, finite_means

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["FeatureImportanceOverweight"]

_PREFIX: Final = "feature_importance/"
_NUM_TOLD: Final = 5

_REMEDY: Final = (
    "Check whether the features at the top leak the label; else train without them, sample columns "
    "(colsample_bytree), or regularise more."
)


class FeatureImportanceOverweight(Rule):
    """Finds models of which a few features have nearly all of the importance.

    How it decides:
        At each saved round and for each worker, the importances that `tensor_regex` selects are
        divided by their sum, and the `nfeatures` largest are added. Strictly more than `threshold`
        fires. Where the pattern selects several types of importance (weight, gain, cover, ...),
        each is judged by itself, and the largest share is the evidence. A type with `nfeatures`
        features or fewer, or fewer than `min_features`, is not evaluated, for the share of many
        among few is large whatever the model is like; nor are rounds before `start_step`. XGBoost
        saves the features in use only. Importances that are negative or not finite are left out.

    Parameters:
        threshold: The largest share that is no issue.
        nfeatures: How many features are added up.
        tensor_regex: Regular expression of the importances.
        start_step: First round that is judged.
        min_features: How many features must have an importance.

    What to try:
        Look for a leak of the label; drop or regularise the features at the top.
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
            return NotEvaluated(f"rounds before {self.start_step} are not judged")
        rows = step.tensors(regex=self.tensor_regex)
        if not len(rows):
            return NotEvaluated("no feature importance was saved")
        shares = {
            (-share, *group): members
            for group, members in _groups(rows).items()
            if (share := self._share([value for value, _ in members])) is not None
        }
        if not shares:
            least = max(self.nfeatures + 1, self.min_features)
            return NotEvaluated(f"no more than {least - 1} features have an importance")
        negative, kind, _ = worst = min(shares)
        if -negative <= self.threshold:
            return Passed()
        top = [at for _, at in shares[worst][: self.nfeatures]]
        names = [rows.names[at].removeprefix(f"{kind}/") for at in top]
        return IssueFound(
            evidence(
                step,
                rows,
                top[0],
                measure="importance_share",
                value=-negative,
                threshold=self.threshold,
                message=(
                    f"the most important feature{_beside(names[1:])} has {-negative:.3g} of the "
                    f"importance of {len(shares[worst])} features, more than {self.threshold:g}"
                ),
                remedy=_REMEDY,
            )
        )

    def _share(self, importances: list[float]) -> float | None:
        """Return the share of the first importances; None if there are too few, or all are 0."""
        too_few = len(importances) < max(self.nfeatures + 1, self.min_features)
        if too_few or not importances[0]:
            return None
        # In units of the largest, for a sum could overflow.
        values = np.array(importances) / importances[0]
        return float(values[: self.nfeatures].sum() / values.sum())


def _groups(rows: TensorRows) -> dict[tuple[str, str], list[tuple[float, int]]]:
    """Return importances and their rows by type and worker, the largest first."""
    importances = finite_means(rows)
    groups: dict[tuple[str, str], list[tuple[float, int]]] = {}
    for at in np.flatnonzero(importances >= 0):
        group = groups.setdefault((_kind(rows.names[at]), rows.workers[at]), [])
        group.append((float(importances[at]), int(at)))
    for group in groups.values():
        group.sort(key=lambda member: (-member[0], rows.names[member[1]]))
    return groups


def _beside(names: list[str]) -> str:
    """Return the further features in words, a few of them by name."""
    if not names:
        return ""
    more = len(names) - _NUM_TOLD
    return f", with {', '.join(names[:_NUM_TOLD])}{f' and {more} more' if more > 0 else ''},"


def _kind(name: str) -> str:
    """Return what is in front of the feature's name: `feature_importance/weight`."""
    start = name.find(_PREFIX)
    end = name.find("/", start + len(_PREFIX)) if start >= 0 else name.rfind("/")
    return name[:end] if end >= 0 else ""
