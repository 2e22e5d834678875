"""FeatureImportanceOverweight: a few features have nearly all of the importance."""

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
_NUM_SHOWN: Final = 5
"""Features that a finding names besides the most important one."""
_REMEDY: Final = (
    "Check whether the top features leak the label; else train without them, or sample columns "
    "(colsample_bytree)."
)


class FeatureImportanceOverweight(Rule):
    """Detects boosted trees in which a few features have nearly all of the importance.

    How it decides:
        At each saved round the importances of a type (weight, gain, cover, ...) are divided by
        their sum. It fires if the `nfeatures` largest have more than `threshold` together. Types
        with fewer than `min_features` features, or with `nfeatures` or fewer, are not evaluated.

    Parameters:
        threshold: The largest share that is no issue.
        nfeatures: How many features are added up.
        tensor_regex: Regular expression of the importances.
        start_step: First round that is judged.
        min_features: How many features must have an importance.

    What to try:
        Look for label leakage; drop the top features; sample columns (`colsample_bytree`).
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
        fewest = max(self.nfeatures + 1, self.min_features)
        groups = {key: of for key, of in _groups(rows).items() if len(of) >= fewest and of[0][0]}
        if not groups:
            return NotEvaluated(f"no more than {fewest - 1} features have an importance")
        shares = {key: self._share([value for value, _ in of]) for key, of in groups.items()}
        worst = min(shares, key=lambda key: (-shares[key], key))
        if shares[worst] <= self.threshold:
            return Passed()
        top = [at for _, at in groups[worst][: self.nfeatures]]
        others = [rows.names[at].removeprefix(f"{worst[0]}/") for at in top[1:]]
        numbers = f"{shares[worst]:.3g} of the importance of {len(groups[worst])} features"
        return IssueFound(
            evidence(
                *(step, rows, top[0]),
                measure="importance_share",
                value=shares[worst],
                threshold=self.threshold,
                message=f"the most important feature{_beside(others)} has {numbers}, more than "
                f"{self.threshold:g}",
                remedy=_REMEDY,
            )
        )

    def _share(self, importances: list[float]) -> float:
        # In units of the largest, for a sum could overflow.
        values = np.array(importances) / importances[0]
        return float(values[: self.nfeatures].sum() / values.sum())


def _groups(rows: TensorRows) -> dict[tuple[str, str], list[tuple[float, int]]]:
    """Return importances and their rows by type and worker, the largest first."""
    importances = finite_means(rows)
    groups: dict[tuple[str, str], list[tuple[float, int]]] = {}
    for at in sorted(np.flatnonzero(importances >= 0), key=lambda at: rows.names[at]):
        group = groups.setdefault((_kind(rows.names[at]), rows.workers[at]), [])
        group.append((float(importances[at]), int(at)))
    return {key: sorted(group, key=lambda one: -one[0]) for key, group in groups.items()}


def _beside(names: list[str]) -> str:
    """Return the further features in words, a few of them by name."""
    more = len(names) - _NUM_SHOWN
    shown = ", ".join(names[:_NUM_SHOWN]) + (f" and {more} more" if more > 0 else "")
    return f", with {shown}," if names else ""


def _kind(name: str) -> str:
    """Return what is in front of the feature's name: `feature_importance/weight`."""
    start = name.find(_PREFIX)
    end = name.find("/", start + len(_PREFIX)) if start >= 0 else name.rfind("/")
    return name[:end] if end >= 0 else ""
