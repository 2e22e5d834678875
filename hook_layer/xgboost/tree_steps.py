"""Measures what the trees of a training change: the collection `optimizer_steps`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from xgboost import Booster

__all__ = ["EFFECTIVE_RATE", "WITHOUT_SPLIT", "TreeSteps"]

WITHOUT_SPLIT: Final = "optimizer_steps/without_split"
"""Number of trees of the model if none has a split, otherwise 0."""
EFFECTIVE_RATE: Final = "optimizer_steps/effective_rate"
"""Size of a tree's leaf values, relative to the values that fit its data best."""

_MAX_SPLITS: Final = 1 << 14
"""Maximum number of splits of a round whose leaves are read, once: a fifth of the round's time."""


class TreeSteps:
    """The effect of the trees of the current training; measured once it is known."""

    def __init__(self) -> None:
        self._has_split = False
        self._rate: float | None = None
        self._is_measured = False

    def begin(self) -> None:
        """Measure another training."""
        self._has_split = self._is_measured = False
        self._rate = None

    def measures(self, model: Booster) -> dict[str, float]:
        """Return the measures of a round by the names of their tensors.

        The learning rate is that of the first saved round.

        Args:
            model: A booster of trees.
        """
        self._has_split = self._has_split or bool(model.get_score(importance_type="weight"))
        if not self._is_measured:
            self._rate, self._is_measured = _effective_rate(model), True
        found = {WITHOUT_SPLIT: 0.0 if self._has_split else float(len(model.get_dump()))}
        return found if self._rate is None else {**found, EFFECTIVE_RATE: self._rate}


def _effective_rate(model: Booster) -> float | None:
    """Return how far the last round moves predictions, relative to unregularised Newton steps.

    With the sums of gradients G and of hessians H of a leaf, its value is
    eta (|G| - alpha) / (H + lambda), and that of a Newton step |G| / H. So |G| follows from the
    value. Leaves are weighted by H.

    Returns:
        The rate: `eta` without regularisation; None if it is unknown, or all gradients are 0.
    """
    last = model.num_boosted_rounds() - 1
    of_round = model[last : last + 1]
    if sum(_numbers(of_round.get_score(importance_type="weight"))) > _MAX_SPLITS:
        return None
    booster = json.loads(model.save_config())["learner"]["gradient_booster"]
    given = booster.get("gbtree", booster)["tree_train_param"]
    eta, decay, threshold = (float(given[name]) for name in ("eta", "lambda", "alpha"))
    trees = [json.loads(tree) for tree in of_round.get_dump(with_stats=True, dump_format="json")]
    leaves = [(leaf["leaf"], leaf["cover"]) for tree in trees for leaf in _leaves(tree)]
    # XGBoost divides the rate among the trees of a forest, which are added.
    num_added = _num_parallel_trees(booster)
    if not eta or not all(isinstance(value, (int, float)) for value, _ in leaves):
        return None
    moved = num_added * sum(abs(value) * cover for value, cover in leaves)
    gradients = sum(
        abs(value) * (cover + decay) * num_added / eta + threshold for value, cover in leaves
    )
    return moved / gradients if gradients else None


def _num_parallel_trees(booster: Mapping[str, Any]) -> int:
    return int(booster.get("gbtree", booster)["gbtree_model_param"]["num_parallel_tree"])


def _numbers(scores: Mapping[str, float | list[float]]) -> Iterator[float]:
    for score in scores.values():
        yield from score if isinstance(score, list) else (score,)


def _leaves(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the leaves of a tree; without recursion, for trees may be deep."""
    nodes = [node]
    while nodes:
        node = nodes.pop()
        nodes.extend(node.get("children", ()))
        if "leaf" in node:
            yield node
