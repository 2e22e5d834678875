"""TreeDepth: trees that stay shallower than they should be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import numpy as np

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import GreaterThan, Memory, Rule, Unit
from rule_runtime.facts.selection import evidence, worst
from rule_runtime.numerics.tree_depth import deepest, depth_of_complete_tree

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["TreeDepth"]

_NODES: Final = "trees/Node"
_LINKS: Final = ("trees/ID", "trees/Yes", "trees/No")
_MAX_DEPTH: Final = "hyperparameters/max_depth"
_MAX_NODES: Final = 1 << 20
"""Nodes of a round; more would need some hundred megabytes as text."""

_REMEDY: Final = (
    "XGBoost rejects splits: stop boosting here; lower gamma, min_child_weight or the learning "
    "rate; or set this rule's depth to your max_depth."
)


class TreeDepth(Rule):
    """Detects boosting rounds whose trees stay shallower than they should be.

    How it decides:
        At each saved round it fires if the deepest tree has a depth below `depth`, or below
        `max_depth` if that was saved and is smaller. The depth is counted along the links between
        nodes; a tree of one leaf has depth 0. Without links it is floor(log2(largest node)).

    Parameters:
        depth: Depth that the deepest tree of a round should reach.

    What to try:
        Lower `gamma`, `min_child_weight` or the learning rate; train for fewer rounds.
    """

    depth: Annotated[float, GreaterThan(0), Unit("levels")] = 4.0

    collections = (
        CollectionConfig("trees", {"save_interval": "500", "save_raw_tensor": "True"}),
        CollectionConfig("hyperparameters", {"save_steps": "0"}),
    )

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Compare the depth of the deepest tree with the threshold.

        Args:
            step: What was saved at the step.
            memory: `max_depth` of the training, if it was saved: one number.
        """
        limits = step.tensors(regex=(f"^{_MAX_DEPTH}$",)).column("mean")
        if (limits >= 1).any():
            memory["max_depth"] = float(limits[limits >= 1].min())
        rows = step.tensors(regex=(f"^{_NODES}$",))
        linked = step.tensors(regex=(f"^{_LINKS[0]}$",))
        rows = rows if len(rows) else linked
        if not len(rows):
            return NotEvaluated(f"no trees were saved; {_NODES} and {', '.join(_LINKS)} are needed")
        depths = np.array([_depth(step, worker) for worker in rows.workers], np.float64)
        if np.isnan(depths).all():
            return NotEvaluated("the values of the trees were not saved, or are no trees")
        at = worst(rows, depths, largest=False)
        threshold = min(self.depth, memory.get("max_depth", self.depth))
        if depths[at] >= threshold:
            return Passed()
        return IssueFound(
            evidence(
                *(step, rows, at),
                measure="tree_depth",
                value=depths[at],
                threshold=threshold,
                message=f"the deepest tree has depth {depths[at]:g}, less than {threshold:g}",
                remedy=_REMEDY,
            )
        )


def _depth(step: StepView, worker: str) -> float:
    """Return the depth of a worker's deepest tree; NaN if it is not known."""
    saved = step.tensors(regex=(f"^({'|'.join((_NODES, *_LINKS))})$",))
    names = {name for name, of in zip(saved.names, saved.workers, strict=True) if of == worker}
    if names >= set(_LINKS):
        if saved.column("size").max() > _MAX_NODES:
            return np.nan
        values = step.values(_LINKS, worker)
        saved_links = [values[name] for name in _LINKS if name in values]
        columns = [numbers.reshape(-1).astype(str).tolist() for numbers in saved_links]
        if len({len(column) for column in columns}) != 1 or len(columns) < len(_LINKS):
            return np.nan
        depth = deepest(*columns)
        return np.nan if depth is None else float(depth)
    largest = [
        number
        for number, name, of in zip(saved.column("max"), saved.names, saved.workers, strict=True)
        if (name, of) == (_NODES, worker) and number >= 0
    ]
    return float(depth_of_complete_tree(largest[0])) if largest else np.nan
