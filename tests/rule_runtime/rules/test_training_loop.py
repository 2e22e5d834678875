from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from rule_runtime.engine.outcome import IssueFound
from rule_runtime.engine.rule import Rule
from rule_runtime.rules.training_loop import TrainingLoop
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract, SavedStep, healthy_tensors
from tests.rule_runtime.outcomes import make_run, reason_of
from tests.rule_runtime.rules.runs import found_at

STEPS = range(0, 200, 10)
HEALTHY = {
    "gradients_left": 0.0,
    "backward_passes_since": 0.0,
    "validation_passes_in_training_mode": 0.0,
    "learning_rate": 0.1,
}
Counts = dict[str, float]


def _named(counts: Counts) -> dict[str, Any]:
    return {f"optimizer_steps/{name}": np.float32(count) for name, count in counts.items()}


class TestTrainingLoopContract(RuleContract):
    def make_rule(self) -> Rule:
        return TrainingLoop()

    def make_steps(self, worker: int) -> Iterable[SavedStep]:
        return [self._saved(step, worker, HEALTHY) for step in STEPS]

    def make_sick_steps(self, worker: int) -> Iterable[SavedStep]:
        return [self._saved(step, worker, {"gradients_left": 1.0}) for step in STEPS]

    def _saved(self, step: int, worker: int, counts: Counts) -> SavedStep:
        tensors = {**healthy_tensors(step, worker), **_named(counts)}
        return SavedStep(step, tensors, time=1.5e9 + step)


def run_of(counts: Callable[[int], Counts], steps: Iterable[int] = STEPS) -> TrialBuilder:
    trial = TrialBuilder()
    for step in steps:
        trial.step(step, _named(HEALTHY | counts(step)), mode_step=step)
    return trial


def sentence_of(trial: TrialBuilder) -> str:
    found = [o for o in trial.outcomes(TrainingLoop()) if isinstance(o, IssueFound)]
    assert found
    return f"{found[0].evidence.sentence}. {found[0].evidence.remedy}"


def test_gradients_that_are_never_cleared_are_found_at_the_third_saved_step() -> None:
    trial = run_of(lambda step: {"gradients_left": float(step > 0)})
    assert found_at(TrainingLoop(), trial)[0] == 30
    assert "zero_grad" in sentence_of(trial)


def test_gradients_that_are_cleared_sometimes_are_not_reported() -> None:
    assert not found_at(TrainingLoop(), run_of(lambda s: {"gradients_left": s // 10 % 3 != 0}))


def test_steps_that_stop_are_found_after_fifty_backward_passes() -> None:
    trial = run_of(lambda step: {"backward_passes_since": float(max(0, step - 50))})
    assert found_at(TrainingLoop(), trial)[0] == 120
    assert "optimizer.step() was not called for 70 backward passes" in sentence_of(trial)


def test_long_accumulation_is_no_stop() -> None:
    trial = run_of(
        lambda step: {"backward_passes_since": float(step % 90), "backward_passes_per_step": 90.0}
    )
    assert not found_at(TrainingLoop(), trial)


def test_validation_in_training_mode_is_found_at_its_second_pass() -> None:
    trial = run_of(lambda step: {"validation_passes_in_training_mode": step // 50})
    assert found_at(TrainingLoop(), trial)[0] == 120
    assert "model.eval()" in sentence_of(trial)


@pytest.mark.parametrize(
    ("rates", "first"),
    [
        ([0.0, 0.05, *[0.1] * 18], None),  # a warm-up
        ([*[0.1] * 18, 0.01, 0.0], None),  # a schedule that ends with the training
        ([0.1] * 10 + [0.0] * 10, 120),
        ([0.0] * 20, None),  # no schedule has set it to 0
    ],
)
def test_a_rate_that_a_schedule_took_to_zero_is_found(rates: list[float], first: int) -> None:
    trial = run_of(lambda step: {"learning_rate": rates[step // 10]})
    assert next(iter(found_at(TrainingLoop(), trial)), None) == first


def ranks(inputs: Callable[[int, int], Any], weights: Callable[[int, int], Any]) -> TrialBuilder:
    trial = TrialBuilder(num_workers=2)
    for step in STEPS:
        for rank in range(2):
            tensors = {
                "Net_input_0": np.asarray(inputs(step, rank)),
                "Net_a.weight": np.asarray(weights(step, rank)),
            }
            trial.step(step, tensors, mode_step=step, worker=f"worker_{rank}")
    return trial


def _own_rows(step: int, rank: int) -> Any:
    return np.arange(4.0) * (step + 1) + rank


def _same_rows(step: int, _: int) -> Any:
    return np.arange(4.0) * (step + 1)


@pytest.mark.parametrize(
    ("inputs", "weights", "is_found"),
    [
        (_same_rows, _same_rows, True),
        (_own_rows, _same_rows, False),
        (_same_rows, _own_rows, False),  # ranks that share one model get the same rows
        (lambda _step, _rank: np.zeros(4), _same_rows, False),
    ],
)
def test_one_batch_on_all_ranks_is_found(
    inputs: Callable[[int, int], Any], weights: Callable[[int, int], Any], is_found: bool
) -> None:
    trial = ranks(inputs, weights)
    assert bool(found_at(TrainingLoop(), trial)) is is_found
    if is_found:
        assert "Net_input_0 is the same on all 2 ranks" in sentence_of(trial)


def test_without_counts_the_reason_names_the_collection() -> None:
    trial = make_run({"loss": np.float32(1)})
    assert "optimizer_steps" in reason_of(*trial.outcomes(TrainingLoop()))


@pytest.mark.parametrize(
    ("at_step", "scale", "sentence"),
    [
        (2.0, 1.0, ""),
        (0.01, 1.0, ""),
        (1e-5, 65536.0, "scaler has multiplied them by 65,536"),
        (1e-5, 65536.0, "scaler.unscale_"),
        (1e-5, 1.0, "Raise the limit"),
        (0.0, 1.0, "gets gradients of norm 0, which was 2"),
    ],
)
def test_gradients_that_are_clipped_to_nothing_are_found(
    at_step: float, scale: float, sentence: str
) -> None:
    norms = {"gradient_norm": 2.0, "gradient_norm_at_step": at_step, "loss_scale": scale}
    trial = run_of(lambda step: norms if step else {})
    assert bool(found_at(TrainingLoop(), trial)) is bool(sentence)
    if sentence:
        assert sentence in sentence_of(trial)


@pytest.mark.parametrize(("norm", "is_advised"), [(0.3, True), (0.1, False)])
def test_gradients_that_are_clipped_at_each_step_are_advice(norm: float, is_advised: bool) -> None:
    trial = run_of(lambda _: {"gradient_norm": norm, "gradient_norm_at_step": 0.01}, range(40))
    outcomes = trial.outcomes(TrainingLoop())
    assert not any(isinstance(outcome, IssueFound) for outcome in outcomes)
    advice = [str(getattr(outcome, "advice", "")) for outcome in outcomes]
    assert not any(advice[:29])
    assert ("which was 0.3" in advice[-1]) is is_advised


def test_gradients_that_are_divided_by_a_number_are_not_clipped() -> None:
    """As by the number of tokens: the norm at the optimizer's step varies, too."""
    trial = run_of(
        lambda step: {"gradient_norm": 2e3 + step * 10, "gradient_norm_at_step": 0.2 + step / 1000}
    )
    assert not found_at(TrainingLoop(), trial)


def test_frozen_weights_are_found_once_none_changes() -> None:
    counts = _named({"learning_rate": 0.1, "all_frozen": 1.0})
    for factor, expected in ((0.0, 30), (1.0, None)):
        trial = TrialBuilder()
        for step in STEPS:
            trial.step(step, {"weights/a/kernel:0": np.ones(3) + factor * step, **counts})
        assert next(iter(found_at(TrainingLoop(), trial)), None) == expected


def test_frozen_weights_that_were_not_saved_hide_no_other_mistake() -> None:
    counts = {"all_frozen": 1.0, "gradients_left": 1.0}
    assert "are not cleared" in sentence_of(run_of(lambda _: counts))
