from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.outcome import IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import Rule
from rule_runtime.rules.replica_divergence import ReplicaDivergence
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract, SavedStep
from tests.rule_runtime.outcomes import make_run, reason_of
from tests.rule_runtime.rules.runs import with_maxima


class TestReplicaDivergenceContract(RuleContract):
    least_workers = 2

    def make_rule(self) -> Rule:
        return ReplicaDivergence()

    def make_sick_steps(self, worker: int) -> Iterable[SavedStep]:
        for saved in self.make_steps(worker):
            factor = 1.5 if saved.step >= 100 and worker else 1.0
            weight = np.asarray(saved.tensors["Net_fc.weight"]) * factor
            yield saved._replace(tensors={**saved.tensors, "Net_fc.weight": weight})


def outcomes_of(
    *weights: tuple[object, ...], rule: ReplicaDivergence | None = None
) -> list[Outcome]:
    """Return the outcomes of steps with one weight for each worker."""
    trial = TrialBuilder(num_workers=len(weights[0]))
    for step, of_workers in enumerate(weights):
        for worker, value in enumerate(of_workers):
            tensors: dict[str, Any] = {"Net_a.weight": value, "Net_a.bias": [0.0, 0.0]}
            trial.step(step, tensors, worker=f"worker_{worker}")
    return trial.outcomes(rule or ReplicaDivergence())


ONE, OTHER = [1.0, 2.0, 3.0], [1.0, 2.0, 3.5]


def test_fires_once_replicas_differ() -> None:
    before, after = outcomes_of((ONE, ONE, ONE), (ONE, ONE, OTHER))
    assert isinstance(before, Passed)
    assert isinstance(after, IssueFound)
    evidence = after.evidence
    assert (evidence.tensor, evidence.worker) == ("Net_a.weight", "worker_0")
    assert evidence.value == pytest.approx(0.5 / 3.5)  # of the maximum, which differs most
    assert "as 1 of 2 parameters; they were equal before" in evidence.sentence


def test_parts_of_one_model_differ_from_the_start() -> None:
    outcomes = outcomes_of((ONE, OTHER), (OTHER, ONE))
    assert outcomes == [NotEvaluated("no parameter was equal on the ranks at the start")] * 2
    assert outcomes_of((ONE, [1.0])) == [Passed()]  # of the other size: no replica
    trial = TrialBuilder(num_workers=2)
    for worker, size in enumerate((2, 3)):
        trial.step(0, {"Net_a.weight": np.ones(size)}, worker=f"worker_{worker}")
    reason = "no parameter was saved with the same size by two ranks"
    assert trial.outcomes(ReplicaDivergence()) == [NotEvaluated(reason)]


def test_parts_of_each_rank_do_not_hide_the_others() -> None:
    """As experts of one rank: their weights differ, their biases begin with 0 everywhere."""
    trial, random = TrialBuilder(num_workers=2), np.random.default_rng(0)
    for step in range(3):
        for worker in range(2):
            own, bias = random.normal(size=4), np.full(4, step * (worker + 1.0))
            shared = np.arange(4) + (step == 2) * worker
            tensors = {"Net_own.weight": own, "Net_own.bias": bias, "Net_a.weight": shared}
            trial.step(step, tensors, worker=f"worker_{worker}")
    *before, after = trial.outcomes(ReplicaDivergence())
    assert before == [Passed(), Passed()]
    assert isinstance(after, IssueFound)
    assert after.evidence.tensor == "Net_a.weight"
    said = "as 1 of 3 parameters; they were equal before; 2 others differed from the start"
    assert said in after.evidence.sentence


@pytest.mark.parametrize(("change", "kind"), [(0.9e-4, Passed), (1.1e-4, IssueFound)])
def test_the_tolerance_is_relative(change: float, kind: type) -> None:
    large = np.full(5, 1e6)
    assert isinstance(outcomes_of((large, large), (large, large * (1 + change)))[1], kind)


def test_patience_allows_for_local_steps() -> None:
    steps = ((ONE, ONE), (ONE, OTHER), (ONE, ONE), (ONE, OTHER), (ONE, OTHER))
    kinds = [type(outcome) for outcome in outcomes_of(*steps, rule=ReplicaDivergence(patience=2))]
    assert kinds == [Passed, Passed, Passed, Passed, IssueFound]


def test_one_worker_has_nothing_to_be_compared_with() -> None:
    reason = (
        "no parameter was saved by two ranks: a run with several needs include_workers=all; "
        "ranks that divide the model are not evaluated"
    )
    assert outcomes_of((ONE,), (OTHER,)) == [NotEvaluated(reason)] * 2


def test_what_is_not_finite_is_compared_by_the_rest() -> None:
    broken = [1.0, 2.0, np.nan]
    outcomes = outcomes_of((ONE, ONE), (ONE, broken), (broken, broken))
    assert [type(outcome) for outcome in outcomes] == [Passed, IssueFound, Passed]


def test_what_cannot_be_judged() -> None:
    trial = make_run({"Net_a.weight": [1.0]}, mode=ModeKeys.EVAL)
    trial.step(1, {"loss": [1.0]})
    outcomes = trial.outcomes(ReplicaDivergence())
    assert all(isinstance(outcome, NotEvaluated) for outcome in outcomes)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_what_an_original_client_left_out_is_named() -> None:
    reason = reason_of(*with_maxima("Net_a.weight", num_workers=2).outcomes(ReplicaDivergence()))
    assert reason.startswith("saved parameters have no size")
