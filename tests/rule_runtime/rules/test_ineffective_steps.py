from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import pytest

from rule_runtime.engine.outcome import IssueFound, NotEvaluated
from rule_runtime.engine.rule import Rule
from rule_runtime.rules.ineffective_steps import IneffectiveSteps
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract, SavedStep, healthy_tensors
from tests.rule_runtime.outcomes import evidence_of, make_run
from tests.rule_runtime.rules.runs import found_at, write_gradient_stops

STEPS = range(0, 120, 10)


def with_counts(step: int, worker: int, **counts: float) -> SavedStep:
    named = {f"optimizer_steps/{name}": np.float32(count) for name, count in counts.items()}
    tensors = {**healthy_tensors(step, worker), "optimizer_steps/skipped": np.float32(0)}
    return SavedStep(step, {**tensors, **named}, time=1.5e9 + step)


class TestIneffectiveStepsContract(RuleContract):
    def make_rule(self) -> Rule:
        return IneffectiveSteps()

    def make_steps(self, worker: int) -> Iterable[SavedStep]:
        return [with_counts(step, worker) for step in STEPS]

    def make_sick_steps(self, worker: int) -> Iterable[SavedStep]:
        return [with_counts(step, worker, skipped=step, loss_scale=0.5) for step in STEPS]


def run_of(
    counts: Callable[[int], Mapping[str, float]], *, weight: Callable[[int], float] = lambda _: 1.0
) -> TrialBuilder:
    trial = TrialBuilder()
    for step in STEPS:
        named = {f"optimizer_steps/{name}": np.float32(n) for name, n in counts(step).items()}
        trial.step(step, {"Net_a.weight": np.arange(4.0) * weight(step), **named}, mode_step=step)
    return trial


def test_steps_without_gradients_are_found_once_no_weight_changes() -> None:
    trial = run_of(lambda step: {"skipped": 0, "without_gradient": step + 1})
    first, *_ = [o for o in trial.outcomes(IneffectiveSteps()) if isinstance(o, IssueFound)]
    assert first.evidence.step == 20
    assert "no parameter of the optimizer gets a gradient, for 21 steps" in first.evidence.sentence
    # An optimizer of its own may need no gradients.
    moving = run_of(lambda step: {"skipped": 0, "without_gradient": step + 1}, weight=float)
    assert not found_at(IneffectiveSteps(), moving)


def test_gradients_that_are_cleared_before_the_step_are_named_as_the_cause() -> None:
    counts = {"skipped": 0, "without_gradient": 30, "gradients_cleared": 1}
    evidence = evidence_of(run_of(lambda _: counts).outcomes(IneffectiveSteps())[2])
    assert (evidence.measure, evidence.value) == ("gradients_cleared", 30)
    assert "gradients are cleared before the optimizer steps, for 30 steps" in evidence.sentence
    assert not found_at(IneffectiveSteps(), run_of(lambda _: counts, weight=float))


def test_names_what_stops_most_gradients() -> None:
    trial = run_of(lambda step: {"skipped": 0, "without_gradient": step + 1})
    write_gradient_stops(trial, {"`detach`": ("Net_a.bias",), "`argmax`": ("Net_a", "Net_b")})
    first = next(o for o in trial.outcomes(IneffectiveSteps()) if isinstance(o, IssueFound))
    assert first.evidence.stopped_by == "`argmax`"
    assert first.evidence.sentence.endswith("; gradients are stopped by `argmax`")
    skipped = run_of(lambda step: {"skipped": step, "loss_scale": 0.5})
    write_gradient_stops(skipped, {"`argmax`": ("Net_a.weight",)})
    first = next(o for o in skipped.outcomes(IneffectiveSteps()) if isinstance(o, IssueFound))
    assert "argmax" not in first.evidence.sentence


def test_an_optimizer_of_other_parameters_is_named_as_the_cause() -> None:
    counts = {"skipped": 0, "without_gradient": 30, "of_other_parameters": 30}
    evidence = evidence_of(run_of(lambda _: counts).outcomes(IneffectiveSteps())[2])
    assert "the optimizer holds none of the model's parameters" in evidence.sentence
    # As with weights in half precision, of which an optimizer trains copies.
    assert not found_at(IneffectiveSteps(), run_of(lambda _: counts, weight=float))


@pytest.mark.parametrize(("steps", "is_found"), [(19, False), (20, True)])
def test_one_of_several_optimizers_that_trains_nothing(steps: int, is_found: bool) -> None:
    trial = run_of(lambda _: {"skipped": 0, "of_unused_parameters": steps}, weight=float)
    found = [o for o in trial.outcomes(IneffectiveSteps()) if isinstance(o, IssueFound)]
    assert bool(found) is is_found
    assert not found or not found[0].evidence.is_fatal


@pytest.mark.parametrize(
    ("skipped", "scale", "fires"),
    [(19, 0.1, False), (20, 0.1, True), (20, 4.0, False), (39, 128.0, False), (40, 128.0, True)],
)
def test_skipped_steps_count_once_the_loss_scale_is_low_or_for_very_many(
    skipped: int, scale: float, fires: bool
) -> None:
    trial = run_of(lambda _: {"skipped": skipped, "loss_scale": scale}, weight=float)
    assert bool(found_at(IneffectiveSteps(), trial)) is fires


@pytest.mark.parametrize(
    ("without_split", "evaluated", "reason"),
    [
        ([0, 0, 0], 3, ""),
        ([1, 2, 0], 1, ""),
        ([1, 2, 3, 4], 0, "needs 5 trees, had 4: none has a split so far"),
    ],
)
def test_trees_are_judged_from_the_first_split_on(
    without_split: list[int], evaluated: int, reason: str
) -> None:
    trial = make_run(
        *({"optimizer_steps/without_split": np.float32(count)} for count in without_split)
    )
    state = trial.evaluate(IneffectiveSteps())
    assert (state.counts.evaluated, state.needs_more) == (evaluated, bool(reason))
    assert not reason or state.reason == reason


def test_without_counts_nothing_is_judged() -> None:
    outcomes = run_of(lambda _: {}).outcomes(IneffectiveSteps())
    assert all(isinstance(outcome, NotEvaluated) for outcome in outcomes)
