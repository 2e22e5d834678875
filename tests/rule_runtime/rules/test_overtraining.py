from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.outcome import IssueFound, NotEvaluated, Outcome
from rule_runtime.engine.parameters import ParameterError
from rule_runtime.engine.registry import create_rule
from rule_runtime.rules.overfit import Overtraining
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract, SavedStep
from tests.rule_runtime.rules.xgboost_trials import boost, judged, matrix

LOSS = "CrossEntropyLoss_output_0"


class TestOvertrainingContract(RuleContract):
    def make_rule(self) -> Overtraining:
        return Overtraining(patience_validation=4, patience_train=3)

    def make_steps(self, worker: int) -> Iterable[SavedStep]:
        noise = np.random.default_rng(worker)
        for epoch in range(12):
            for at in range(4):
                loss = 2 * 0.9**epoch * noise.uniform(0.98, 1.02) * (1 if at < 3 else 1.05)
                mode = ModeKeys.TRAIN if at < 3 else ModeKeys.EVAL
                yield SavedStep(5 * (4 * epoch + at), {LOSS: np.float32(loss)}, mode)

    def make_sick_steps(self, worker: int) -> Iterable[SavedStep]:
        """The validation loss rises from the third epoch on."""
        for saved in self.make_steps(worker):
            is_late = saved.mode is ModeKeys.EVAL and saved.step > 50
            tensors = {LOSS: np.float32(1.8 + 0.001 * saved.step)} if is_late else saved.tensors
            yield saved._replace(tensors=tensors)


def outcomes(
    rule: Overtraining, training: Sequence[float], validation: Sequence[float]
) -> list[Outcome]:
    """Return the outcomes of the evaluations of a run with one TRAIN and one EVAL step each."""
    trial = TrialBuilder()
    for epoch, losses in enumerate(zip(training, validation, strict=True)):
        for at, (loss, mode) in enumerate(zip(losses, ("TRAIN", "EVAL"), strict=True)):
            trial.step(2 * epoch + at, {LOSS: loss}, mode=ModeKeys[mode])
    trial.step(2 * len(training), {LOSS: 1.0})
    return [o for o in trial.outcomes(rule) if not isinstance(o, NotEvaluated)]


def findings(
    rule: Overtraining, training: Sequence[float], validation: Sequence[float]
) -> list[int]:
    found = outcomes(rule, training, validation)
    assert len(found) == len(training)
    return [epoch for epoch, outcome in enumerate(found) if isinstance(outcome, IssueFound)]


FALLING = [5.0 - 0.1 * epoch for epoch in range(20)]


def test_validation_alone_decides_after_its_patience() -> None:
    validation = [3.0, 2.0, *[2.5] * 18]
    rule = Overtraining()
    assert findings(rule, FALLING, validation) == list(range(11, 20))
    first = outcomes(rule, FALLING, validation)[11]
    assert isinstance(first, IssueFound)
    evidence = first.evidence
    assert (evidence.tensor, evidence.value, evidence.threshold) == (LOSS, 10, 10)
    assert evidence.sentence == (
        f"{LOSS}: the validation loss, now 2.5, has not improved on 2 by 0.01 in 10 evaluations"
    )


def test_both_losses_together_decide_after_the_patience_of_training() -> None:
    validation = [3.0, 2.0, *[2.5] * 5]
    assert findings(Overtraining(), [1.0] * 7, validation) == [6]
    last = outcomes(Overtraining(), [1.0] * 7, validation)[-1]
    assert isinstance(last, IssueFound)
    assert last.evidence.threshold == 5
    assert last.evidence.sentence.endswith("in 5 evaluations, and the training loss has not either")


def test_training_alone_decides_nothing() -> None:
    assert not findings(Overtraining(), [1.0] * 20, FALLING)


def test_training_that_improves_leaves_it_to_validation() -> None:
    assert not findings(Overtraining(), FALLING[:11], [2.0, *[2.5] * 10])[:-1]
    assert findings(Overtraining(), FALLING[:11], [2.0, *[2.5] * 10]) == [10]


def test_an_improvement_is_larger_than_delta() -> None:
    rule = Overtraining(patience_validation=1, delta=0.25)
    assert findings(rule, [4.0, 3.0, 2.0], [2.0, 1.75, 1.5]) == [1]
    assert findings(rule, [4.0, 3.0], [2.0, 1.7]) == []


def test_slow_progress_adds_up() -> None:
    validation = [2.0 - 0.004 * epoch for epoch in range(20)]
    assert not findings(Overtraining(patience_validation=4), FALLING, validation)
    assert findings(Overtraining(patience_validation=2), FALLING, validation)


@pytest.mark.parametrize("seed", range(10))
def test_a_noisy_run_that_learns_is_healthy(seed: int) -> None:
    noise = np.random.default_rng(seed).normal(0, 0.03, (2, 40))
    epochs = np.arange(40)
    training, validation = 2 * 0.96**epochs + noise[0], 2.1 * 0.96**epochs + noise[1]
    assert not findings(Overtraining(), training, validation)


def test_a_run_without_validation_is_not_evaluated() -> None:
    trial = TrialBuilder()
    for step in range(20):
        trial.step(step, {LOSS: 1.0})
    state = trial.evaluate(Overtraining())
    assert state.status.value == "Error"
    assert "no validation loss was saved" in state.reason


def test_losses_that_are_not_finite_are_no_evaluation() -> None:
    trial = TrialBuilder()
    for epoch in range(12):
        trial.step(2 * epoch, {LOSS: 1.0 / (epoch + 1)})
        trial.step(2 * epoch + 1, {LOSS: np.nan}, mode=ModeKeys.EVAL)
    assert {type(outcome) for outcome in trial.outcomes(Overtraining())} == {NotEvaluated}


def test_the_loss_that_stands_longest_is_reported() -> None:
    trial = TrialBuilder(num_workers=2)
    for epoch in range(6):
        for worker in ("worker_0", "worker_1"):
            trial.step(2 * epoch, {LOSS: 9.0 - epoch}, worker=worker)
            falls = worker == "worker_0" and epoch < 2
            losses = {LOSS: 9.0 - epoch if falls else 9.0}
            trial.step(2 * epoch + 1, losses, mode=ModeKeys.EVAL, worker=worker)
    evidence = trial.evaluate(Overtraining(patience_validation=3)).evidence
    assert evidence is not None
    assert (evidence.worker, evidence.value) == ("worker_1", 3)


@pytest.mark.parametrize(
    ("parameters", "fires"),
    [({"max_depth": 6, "eta": 1.0}, True), ({"max_depth": 1, "eta": 0.05}, False)],
)
def test_on_what_the_hook_for_xgboost_writes(
    tmp_path: Path, parameters: dict[str, Any], fires: bool
) -> None:
    data, validation = matrix(rows=slice(0, 200)), matrix(rows=slice(200, 400))
    trial = boost(tmp_path / "t", data=data, validation=validation, rounds=14, **parameters)
    state = judged(trial, Overtraining())
    assert (state.evidence is not None) == fires
    assert state.counts.evaluated == 14 - 10  # eleven passes decide
    if state.evidence is not None:
        assert state.evidence.tensor == "validation-rmse"


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 3), st.floats(0, 3)), min_size=1, max_size=25),
    st.integers(1, 6),
    st.integers(1, 6),
    st.floats(0, 0.5),
)
def test_as_the_definition(
    losses: list[tuple[float, float]], train: int, validation: int, delta: float
) -> None:
    """Compared with early stopping as its definition is written."""

    def stale(values: Sequence[float]) -> list[int]:
        best, counts = np.inf, []
        for value in values:
            improves = value < best - delta
            best = value if improves else best
            counts.append(0 if improves or not counts else counts[-1] + 1)
        return counts

    rule = Overtraining(patience_train=train, patience_validation=validation, delta=delta)
    of_training, of_validation = (list(side) for side in zip(*losses, strict=True))
    expected = [
        epoch
        for epoch, (t, v) in enumerate(zip(stale(of_training), stale(of_validation), strict=True))
        if v >= validation or min(t, v) >= train
    ]
    assert findings(rule, of_training, of_validation) == expected


def test_parameters_may_be_strings() -> None:
    rule = create_rule("Overtraining", {"patience_train": "3", "delta": "0.5"})
    assert rule == Overtraining(patience_train=3, patience_validation=10, delta=0.5)
    with pytest.raises(ParameterError, match=r"delta is -1\.0 units of the loss"):
        create_rule("Overtraining", {"delta": "-1"})
