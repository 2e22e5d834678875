"""FeatureImportanceOverweight: detects models that rely on a few features."""

from __future__ import annotations

from collections import defaultdict
from typing import Annotated

import numpy as np
import numpy.typing as npt

from rule_runtime.engine.findings import MAX_NAMED, finding
from rule_runtime.engine.outcome import Missing, NotEnough, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, AtMost, GreaterThan, Memory, Regex, Rule, Unit
from rule_runtime.engine.selection import saved_every
from rule_runtime.facts.missing import missing_tensors
from rule_runtime.facts.saved_tensors import finite_means
from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["FeatureImportanceOverweight"]


class FeatureImportanceOverweight(Rule):
    """Detects models that rely on a few features.

    How it decides:
        At each saved round, the rule computes the share of the `nfeatures` largest importances in
        the sum of all. A share above `threshold` fires. Each type of importance (weight, gain,
        cover, ...) is evaluated separately.

    Parameters:
        threshold: Largest share that passes.
        nfeatures: Number of features in the share.
        tensor_regex: Regular expressions of the importances.
        start_step: First round to evaluate.
        min_features: Smallest number of features with an importance; at least `nfeatures` + 1.

    What to try:
        Check whether the most important features leak the label. Otherwise train without them,
        sample columns (colsample_bytree), or regularise more.
    """

    threshold: Annotated[float, GreaterThan(0), AtMost(1)] = 0.8
    nfeatures: Annotated[int, AtLeast(1)] = 3
    tensor_regex: Annotated[tuple[str, ...], Regex()] = (".*feature_importance/weight",)
    start_step: Annotated[int, AtLeast(0), Unit("rounds")] = 0
    min_features: Annotated[int, AtLeast(0), Unit("features")] = 0

    collections = saved_every(500, "feature_importance")

    def check(self, step: StepView, memory: Memory) -> Outcome:  # noqa: ARG002
        """Compare the share of the most important features with the threshold."""
        if step.mode_step < self.start_step:
            raise NotEnough(self.start_step, "round", step.mode_step, "start_step is set")
        rows = step.tensors(regex=self.tensor_regex)
        if not len(rows):
            raise missing_tensors("feature_importance")
        importances = finite_means(rows)
        least = max(self.nfeatures + 1, self.min_features)
        groups = [group for group in _groups(rows, importances) if len(group) >= least]
        if not groups:
            raise Missing(f"fewer than {least} features have an importance", "lower min_features")
        # Divided by the largest, because the sum of large importances could overflow.
        scaled = [importances[group] / importances[group[0]] for group in groups]
        shares = [float(each[: self.nfeatures].sum() / each.sum()) for each in scaled]
        share = max(shares)
        if share <= self.threshold:
            return Passed()
        first, *others = groups[shares.index(share)]
        names = [rows.names[at].rpartition("/")[2] for at in others[: self.nfeatures - 1]]
        too = f", with {', '.join(names[:MAX_NAMED])}" if names else ""
        too += f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        message = f"the most important feature{too + ',' if too else ''} has {share:.3g} of the "
        message += f"importance of {len(others) + 1} features, more than {self.threshold:g}"
        measured = ("importance_share", share, self.threshold)
        return finding(self, step, (rows, first), measured, message)


def _groups(rows: TensorRows, importances: npt.NDArray[np.float64]) -> list[list[int]]:
    """Return the rows with an importance by type and worker, the most important first."""
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    known = np.flatnonzero(importances >= 0).tolist()
    for at in sorted(known, key=lambda at: (-importances[at], rows.names[at])):
        kind = "/".join(rows.names[at].split("/")[:2])  # the type in `feature_importance/weight`
        groups[kind, rows.workers[at]].append(at)
    return [groups[key] for key in sorted(groups) if importances[groups[key][0]] > 0]
