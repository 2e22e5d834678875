"""TreeDepth: detects boosting rounds whose trees are too shallow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import numpy as np

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.findings import finding
from rule_runtime.engine.outcome import Missing, Outcome, Passed
from rule_runtime.engine.rule import GreaterThan, Memory, Rule, Unit
from rule_runtime.trial.step_view import StepView
from rule_runtime.trial.tensor_rows import worst

__all__ = ["TreeDepth", "deepest"]

_LINKS: Final = ("trees/ID", "trees/Yes", "trees/No")
_MAX_NODES: Final = 1 << 20
"""Maximum number of nodes of a round; more would take hundreds of megabytes as text."""


class TreeDepth(Rule):
    """Detects boosting rounds whose trees are too shallow.

    How it decides:
        The rule finds the depth of the deepest tree of each saved round. A tree of one leaf has
        depth 0. A depth below `depth` fires. If `hyperparameters/max_depth` was saved and is lower,
        it replaces `depth`.

    Parameters:
        depth: Minimum depth of the deepest tree of a round.

    What to try:
        XGBoost rejects splits. Stop the boosting here, lower gamma, min_child_weight or the
        learning rate, or set this rule's depth to the max_depth that you intended.
    """

    depth: Annotated[float, GreaterThan(0), Unit("levels")] = 4.0

    collections = (
        CollectionConfig("trees", {"save_interval": "500", "save_raw_tensor": "True"}),
        CollectionConfig("hyperparameters", {"save_steps": "0"}),
    )

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Compare the depth of the deepest tree with the threshold.

        Memory: `max_depth` of the run, if it was saved.
        """
        limits = step.tensors(regex=("^hyperparameters/max_depth$",)).column("mean")
        if (limits >= 1).any():
            memory["max_depth"] = float(limits[limits >= 1].min())
        rows = step.tensors(regex=(f"^{_LINKS[0]}$",))
        if not len(rows):
            raise Missing("no trees were saved", "save the collection trees")
        depths = [_depth(step, *of) for of in zip(rows.workers, rows.column("size"), strict=True)]
        if np.isnan(depths).all():
            raise Missing("no readable values of trees were saved", step.how_to_save(_LINKS))
        at = worst(rows, depths, largest=False)
        threshold = min(self.depth, memory.get("max_depth", self.depth))
        if depths[at] >= threshold:
            return Passed()
        message = f"the deepest tree has depth {depths[at]:g}, less than {threshold:g}"
        return finding(self, step, (rows, at), ("tree_depth", depths[at], threshold), message)


def _depth(step: StepView, worker: str, num_nodes: float) -> float:
    """Return the depth of a worker's deepest tree; NaN if unknown."""
    if num_nodes > _MAX_NODES:
        return np.nan
    values = step.values(_LINKS, worker)
    columns = [values[name].reshape(-1).astype(str) for name in _LINKS if name in values]
    if len(columns) < len(_LINKS) or len({column.size for column in columns}) > 1:
        return np.nan
    depth = deepest(*(column.tolist() for column in columns))
    return np.nan if depth is None else float(depth)


def deepest(names: Sequence[str], *children: Sequence[str]) -> int | None:
    """Return the depth of the deepest tree: the maximum number of links from a root.

    Names of nodes [N] are unique over all trees. `children` has, for each kind, the child's name at
    each node [N]; unknown names are ignored. Trees with one node have depth 0. It is None if there
    is no root.
    """
    below: dict[str, list[str]] = {name: [] for name in names}
    for column in children:
        for parent, child in zip(names, column, strict=True):
            if child in below:
                below[parent].append(child)
    level, depth = below.keys() - set().union(*below.values()), -1
    while level and depth < len(names):
        depth, level = depth + 1, {child for parent in level for child in below[parent]}
    return None if level or depth < 0 else depth
