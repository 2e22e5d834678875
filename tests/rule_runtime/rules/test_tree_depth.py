from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rule_runtime.engine.outcome import IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.rules.tree_depth import TreeDepth
from rule_runtime.testing.rule_contract import RuleContract
from tests.rule_runtime.outcomes import make_run, reason_of
from tests.rule_runtime.rules.xgboost_trials import boost, judged, matrix


def complete_tree(depth: int, number: int = 0) -> dict[str, Any]:
    """Return the columns of a tree whose nodes are numbered level by level."""
    nodes = np.arange(2 ** (depth + 1) - 1)
    is_leaf = nodes >= 2**depth - 1
    children = [
        np.where(is_leaf, "nan", [f"{number}-{2 * node + side}" for node in nodes])
        for side in (1, 2)
    ]
    return {
        "trees/ID": np.array([f"{number}-{node}" for node in nodes]),
        "trees/Yes": children[0],
        "trees/No": children[1],
    }


class TestTreeDepthContract(RuleContract):
    def make_rule(self) -> TreeDepth:
        return TreeDepth()

    def make_tensors(self, step: int, worker: int) -> dict[str, Any]:
        return complete_tree(4 + worker, step)

    def make_sick(self, tensors: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        return complete_tree(2)


def outcome_of(rule: TreeDepth, tensors: dict[str, Any]) -> Outcome:
    return make_run(tensors).outcomes(rule)[0]


@pytest.mark.parametrize(("depth", "fires"), [(0, True), (3, True), (4, False), (6, False)])
def test_a_depth_smaller_than_the_threshold_fires(depth: int, fires: bool) -> None:
    outcome = outcome_of(TreeDepth(), complete_tree(depth))
    assert isinstance(outcome, IssueFound if fires else Passed)
    if isinstance(outcome, IssueFound):
        assert outcome.evidence.value == depth
        assert outcome.evidence.sentence == (
            f"trees/ID: the deepest tree has depth {depth}, less than 4"
        )


def test_trees_with_gaps_are_as_deep_as_their_links() -> None:
    nodes = np.arange(11)
    parents = [
        f"0-{2 * (node // 2) + 1}" if node % 2 == 0 and node < 10 else "nan" for node in nodes
    ]
    others = [f"0-{node + 2}" if node % 2 == 0 and node < 10 else "nan" for node in nodes]
    tensors = {
        "trees/ID": [f"0-{node}" for node in nodes],
        "trees/Yes": parents,
        "trees/No": others,
    }
    assert isinstance(outcome_of(TreeDepth(depth=5), tensors), Passed)
    assert isinstance(outcome_of(TreeDepth(depth=5.5), tensors), IssueFound)


def test_the_deepest_tree_of_the_round_counts() -> None:
    small, large = complete_tree(1, 6), complete_tree(4, 7)
    both = {name: np.concatenate([small[name], large[name]]) for name in small}
    assert isinstance(outcome_of(TreeDepth(), both), Passed)


def test_no_tree_is_expected_to_be_deeper_than_max_depth() -> None:
    trial = make_run(
        {**complete_tree(3), "hyperparameters/max_depth": [3]}, complete_tree(3), complete_tree(2)
    )
    outcomes = trial.outcomes(TreeDepth())
    assert [type(outcome) for outcome in outcomes] == [Passed, Passed, IssueFound]
    assert isinstance(outcomes[-1], IssueFound)
    assert outcomes[-1].evidence.threshold == 3
    for unlimited in ([0], ["6"], [np.nan], [9]):
        tensors = {**complete_tree(3), "hyperparameters/max_depth": unlimited}
        assert isinstance(outcome_of(TreeDepth(), tensors), IssueFound)


def test_what_is_no_tree_is_not_evaluated() -> None:
    for change in (
        {"trees/Yes": ["0-1"]},
        {"trees/Yes": ["0-0", "0-1", "0-2"]},
        {name: [] for name in complete_tree(1)},
    ):
        outcome = outcome_of(TreeDepth(), {**complete_tree(1), **change})
        assert reason_of(outcome).startswith("no readable values of trees were saved: save")
    reason = reason_of(outcome_of(TreeDepth(), {"trees/Gain": [1.0]}))
    assert reason.startswith("no trees were saved: save the collection trees")


def test_more_nodes_than_a_million_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rule_runtime.rules.tree_depth._MAX_NODES", 30)
    assert isinstance(outcome_of(TreeDepth(), complete_tree(3)), IssueFound)
    assert isinstance(outcome_of(TreeDepth(), complete_tree(4)), NotEvaluated)


@pytest.mark.parametrize(("gamma", "fires"), [(0.0, False), (1e5, True)])
def test_on_what_the_hook_for_xgboost_writes(tmp_path: Path, gamma: float, fires: bool) -> None:
    data, validation = matrix(rows=slice(0, 200)), matrix(rows=slice(200, 300))
    saved = ("trees", "hyperparameters")
    trial = boost(
        tmp_path / "t", *saved, data=data, validation=validation, max_depth=5, gamma=gamma
    )
    state = judged(trial, TreeDepth(depth=5))
    assert (state.evidence is not None) == fires
    assert state.counts.evaluated == 4


def test_a_training_with_small_trees_on_purpose_is_known_by_its_hyperparameters(
    tmp_path: Path,
) -> None:
    data, validation = matrix(rows=slice(0, 200)), matrix(rows=slice(200, 300))
    for saved, fires in ((("trees", "hyperparameters"), False), (("trees",), True)):
        folder = tmp_path / str(fires)
        trial = boost(folder, *saved, data=data, validation=validation, max_depth=2)
        assert (judged(trial, TreeDepth()).evidence is not None) == fires
