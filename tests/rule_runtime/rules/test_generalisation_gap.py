from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.outcome import IssueFound
from rule_runtime.engine.rule import Rule
from rule_runtime.rules.generalisation_gap import GeneralisationGap
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract, SavedStep
from tests.rule_runtime.rules.runs import LOSS, found_at


def passes(pairs: Iterable[tuple[float, float]]) -> list[SavedStep]:
    """Return a run in which losses of training and validation take turns, 5 steps each."""
    steps: list[SavedStep] = []
    for training, validation in [*pairs, (1.0, 1.0)]:
        for mode, loss in ((ModeKeys.TRAIN, training), (ModeKeys.EVAL, validation)):
            for _ in range(5):
                steps.append(SavedStep(len(steps), {LOSS: np.float64(loss)}, mode, len(steps)))
    return steps[:-9]


def trial_of(steps: Iterable[SavedStep]) -> TrialBuilder:
    trial = TrialBuilder()
    for saved in steps:
        trial.step(saved.step, saved.tensors, mode=saved.mode, mode_step=saved.mode_step)
    return trial


class TestGeneralisationGapContract(RuleContract):
    def make_rule(self) -> Rule:
        return GeneralisationGap()

    def make_steps(self, worker: int) -> Iterable[SavedStep]:  # noqa: ARG002
        return passes([(2.0, 1.9), (1.0, 1.0), (0.5, 0.6), (0.1, 0.3), (0.01, 0.3)])

    def make_sick_steps(self, worker: int) -> Iterable[SavedStep]:  # noqa: ARG002
        return passes([(2.0, 1.9), (1.0, 1.0), (0.3, 0.9), (0.01, 1.2), (0.01, 1.5)])


def test_fires_behind_the_second_pass_with_a_gap() -> None:
    trial = trial_of(passes([(2.0, 1.9), (0.3, 0.8), (0.1, 0.9), (0.1, 0.9)]))
    assert found_at(GeneralisationGap(), trial) == [29, 39]
    found = next(o for o in trial.outcomes(GeneralisationGap()) if isinstance(o, IssueFound))
    assert found.evidence.value == pytest.approx(100 * (0.9 - 0.1) / 2.0)
    assert "a gap of 40 % of 2, more than 20 %" in found.evidence.sentence


@pytest.mark.parametrize(("validation", "fires"), [(0.51, True), (0.49, False)])
def test_the_gap_is_measured_by_the_beginning(validation: float, fires: bool) -> None:
    trial = trial_of(passes([(2.0, 1.9)] + [(0.1, validation)] * 4))
    assert bool(found_at(GeneralisationGap(), trial)) is fires


@pytest.mark.parametrize(("validation", "fires"), [(4.01, True), (3.99, False)])
def test_and_must_be_a_part_of_the_loss(validation: float, fires: bool) -> None:
    trial = trial_of(passes([(2.0, 1.9), *[(2.0, validation)] * 4]))
    assert bool(found_at(GeneralisationGap(), trial)) is fires


@pytest.mark.parametrize(
    ("name", "validation", "training", "fires"),
    [
        ("MSELoss", 0.09, 0.0004, True),  # errors of 0.3 and 0.02, of 1.1 at the beginning
        ("MSELoss", 0.05, 0.0004, False),
        ("SmoothL1Loss", 0.09, 0.0004, True),  # half of the square of a small error
        ("HuberLoss", 0.05, 0.0004, False),
        ("MSELoss", 0.30, 0.1, False),  # not twice the error
        ("CrossEntropyLoss", 0.09, 0.0004, False),
        ("L1Loss", 0.09, 0.0004, False),
    ],
)
def test_squares_are_also_compared_by_their_roots(
    name: str, validation: float, training: float, *, fires: bool
) -> None:
    steps = passes([(1.21, 1.2), *[(training, validation)] * 4])
    renamed = [saved._replace(tensors={f"{name}_output_0": saved.tensors[LOSS]}) for saved in steps]
    assert bool(found_at(GeneralisationGap(), trial_of(renamed))) is fires


@pytest.mark.parametrize(("training", "fires"), [(0.21, False), (0.02, True)])
def test_a_part_of_a_loss_that_the_others_push_up_is_left_alone(
    training: float, *, fires: bool
) -> None:
    """The divergence of a variational training begins at zero."""
    rising = [(training, 0.57 + 0.01 * at) for at in range(6)]
    trial = trial_of(passes([(0.04, 0.1), *rising]))
    assert bool(found_at(GeneralisationGap(), trial)) is fires


def test_a_pass_is_averaged() -> None:
    steps = []
    for saved in passes([(2.0, 1.0)] * 5):
        loss = 9.0 if saved.mode is ModeKeys.EVAL and saved.step % 5 == 0 else None
        steps.append(saved if loss is None else saved._replace(tensors={LOSS: np.float64(loss)}))
    assert not found_at(GeneralisationGap(), trial_of(steps))  # (9 + 4 x 1) / 5 = 2.6


def test_the_last_pass_of_a_run_is_judged() -> None:
    steps = passes([(2.0, 1.9), (0.3, 0.8), (0.1, 0.9)])[:-1]  # nothing behind the last pass
    assert steps[-1].mode is ModeKeys.EVAL
    assert found_at(GeneralisationGap(), trial_of(steps)) == [29]


def test_the_scatter_of_small_batches_is_no_gap() -> None:
    rng = np.random.default_rng(0)
    steps: list[SavedStep] = []
    for _ in range(20):
        losses = [*rng.lognormal(0, 1.5, 10), 3.0]
        for at, loss in enumerate(losses):
            mode = ModeKeys.EVAL if at == len(losses) - 1 else ModeKeys.TRAIN
            steps.append(SavedStep(len(steps), {LOSS: np.float64(loss)}, mode, len(steps)))
    assert not found_at(GeneralisationGap(), trial_of(steps))


def test_metrics_that_should_grow_are_not_judged() -> None:
    trial = TrialBuilder()
    trial.collections(losses=("-aucpr$",))
    for step in range(10):
        trial.step(step, {"train-aucpr": [0.1], "validation-aucpr": [0.9]})
    assert not found_at(GeneralisationGap(), trial)


def run_of(
    passes_of_validation: Iterable[float], training: tuple[float, float], noise: float = 0.0
) -> TrialBuilder:
    """Return a run whose training loss falls evenly, with passes of validation of one step each."""
    validation = list(passes_of_validation)
    rng = np.random.default_rng(0)
    begin, end = training
    steps: list[SavedStep] = []
    for loss in validation:
        share = len(steps) / (11 * len(validation) - 1)
        for at in range(10):
            now = begin + (end - begin) * (share + at / (11 * len(validation)))
            steps.append(tell(len(steps), now + noise * rng.normal(), ModeKeys.TRAIN))
        steps.append(tell(len(steps), loss, ModeKeys.EVAL))
    return trial_of(steps)


def tell(step: int, loss: float, mode: ModeKeys) -> SavedStep:
    return SavedStep(step, {LOSS: np.float64(loss)}, mode, step)


def test_what_is_learned_by_heart_never_comes_to_validation() -> None:
    # Labels that were mixed up: validation stays at the loss of guessing, and rises in the end.
    trial = run_of([2.31, 2.31, 2.32, 2.33, 2.35, 2.4], (2.35, 1.9))
    found = found_at(GeneralisationGap(), trial)
    assert found[:1] == [65]  # the second pass in a row that lies above the first
    outcomes = trial.outcomes(GeneralisationGap())
    outcome = next(outcome for outcome in outcomes if isinstance(outcome, IssueFound))
    assert outcome.evidence.threshold == 0
    assert outcome.evidence.tensor == LOSS
    assert "was 2.31 at first, and never better since" in outcome.evidence.sentence


@pytest.mark.parametrize(("num_passes", "is_found"), [(3, False), (4, True)])
def test_it_takes_four_passes_to_tell(num_passes: int, *, is_found: bool) -> None:
    trial = run_of([1.0, 1.0, 1.02, 1.02][-num_passes:], (1.0, 0.7))
    assert bool(found_at(GeneralisationGap(patience=1), trial)) is is_found


@pytest.mark.parametrize(
    ("validation", "training", "noise"),
    [
        # A weak signal, and all of it is in validation, too.
        ([0.998, 0.985, 0.97, 0.96, 0.955, 0.95, 0.95, 0.95], (1.0, 0.94), 0.0),
        # What there is to learn was learned ahead of the first pass.
        ([0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5], (1.0, 0.49), 0.0),
        # The same, and training goes on to learn a little by heart.
        ([0.62, 0.62, 0.62, 0.62, 0.62, 0.62, 0.62, 0.62], (1.0, 0.31), 0.0),
        # A weak signal that was learned ahead of the first pass, by both alike.
        ([0.93, 0.93, 0.93, 0.93, 0.93, 0.93, 0.93, 0.93], (1.0, 0.9), 0.0),
        # Training began where it ends: there was nothing to learn, or it was learned before.
        ([0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1], (0.1, 0.098), 0.0),
        # Training fell by less than small batches scatter.
        ([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0], (1.0, 0.9), 0.2),
        # Validation falls slowly, and goes on falling.
        ([1.0, 0.99, 0.98, 0.97, 0.96, 0.95, 0.94, 0.93], (1.0, 0.8), 0.0),
    ],
)
def test_healthy_neighbours_of_learning_by_heart(
    validation: list[float], training: tuple[float, float], noise: float
) -> None:
    assert not found_at(GeneralisationGap(), run_of(validation, training, noise))


def test_boosted_trees_that_learn_by_heart() -> None:
    for part_of_fall, is_found in ((-0.1, True), (0.1, False), (0.9, False)):
        trial = TrialBuilder()
        trial.collections(losses=("-logloss$",))
        for step in range(30):
            fall = 0.2 * step / 30
            losses = {"train-logloss": fall, "validation-logloss": part_of_fall * fall}
            trial.step(step, {name: np.float64(0.69 - by) for name, by in losses.items()})
        assert bool(found_at(GeneralisationGap(), trial)) is is_found


def test_a_density_may_be_negative() -> None:
    steps: list[SavedStep] = []
    for _ in range(12):
        for _ in range(10):
            loss = -9 + 10 * np.exp(-len(steps) / 30)
            steps.append(tell(len(steps), loss, ModeKeys.TRAIN))
        steps.append(tell(len(steps), loss + 0.3, ModeKeys.EVAL))
    assert not found_at(GeneralisationGap(), trial_of(steps))


def test_a_pass_longer_than_the_one_before_is_one_pass() -> None:
    steps: list[SavedStep] = []
    for length, validation in ((2, 0.1), (2, 0.1), (10, 3.0), (0, 0.0)):
        for _ in range(10):
            steps.append(tell(len(steps), 0.1 if len(steps) > 9 else 2.0, ModeKeys.TRAIN))
        steps += [tell(len(steps) + at, validation, ModeKeys.EVAL) for at in range(length)]
    assert not found_at(GeneralisationGap(), trial_of(steps))  # patience asks for two


@pytest.mark.parametrize(
    ("name", "is_sum", "has_gap"),
    [
        ("BoundLoss", True, False),
        ("BoundLoss", True, True),
        ("BoundLoss", False, True),
        ("CrossEntropyLoss", False, True),
    ],
)
def test_a_sum_over_more_rows_is_larger(name: str, *, is_sum: bool, has_gap: bool) -> None:
    trial = TrialBuilder()
    step = 0
    for at in range(6):
        for mode, size in ((ModeKeys.TRAIN, 8), (ModeKeys.EVAL, 64)):
            for _ in range(5):
                loss = 2.0 * 0.3**at
                if mode is ModeKeys.EVAL:
                    loss = loss * 1.2 if not has_gap or not at else 1.5
                loss *= size if is_sum else 1
                inputs = {f"{name}_input_0": np.zeros((size, 9)), f"{name}_output_0": loss}
                trial.step(step, inputs, mode=mode, mode_step=step)
                step += 1
    assert bool(found_at(GeneralisationGap(), trial)) is has_gap


def test_a_mean_stays_one_where_inputs_are_saved_now_and_then() -> None:
    trial = TrialBuilder()
    step = 0
    for at in range(6):
        for mode, size in ((ModeKeys.TRAIN, 8), (ModeKeys.EVAL, 64)):
            for number in range(10):
                is_first = not (at or number)
                loss = 1.6 if mode is ModeKeys.EVAL else 2.2 if is_first else 0.2  # 1 to 8, too
                inputs = {"NLLLoss_input_0": np.zeros((size, 9))} if is_first else {}
                trial.step(step, {**inputs, "NLLLoss_output_0": loss}, mode=mode, mode_step=step)
                step += 1
    assert found_at(GeneralisationGap(), trial)


def test_a_mean_of_numbers_is_no_sum_however_far_training_has_fallen() -> None:
    trial = TrialBuilder()
    targets = np.random.default_rng(0).normal(0, 1, 640)
    step = 0
    for at in range(6):
        for mode, size in ((ModeKeys.TRAIN, 8), (ModeKeys.EVAL, 640)):
            inputs = {f"MSELoss_input_{number}": targets[:size] for number in range(2)}
            loss = 1.1 if mode is ModeKeys.EVAL or not step else 0.012 * 0.3**at  # 1 to 80, too
            trial.step(step, {**inputs, "MSELoss_output_0": loss}, mode=mode, mode_step=step)
            step += 1
    assert found_at(GeneralisationGap(), trial)


def test_shares_of_errors_are_next_to_zero_from_the_beginning() -> None:
    trial = TrialBuilder()
    trial.collections(losses=("-merror$",))
    for step in range(20):
        error = np.float64(0.014 if step < 2 else 0.0)
        trial.step(step, {"train-merror": error, "validation-merror": [0.028]})
    assert not found_at(GeneralisationGap(), trial)


def test_a_loss_that_begins_at_zero_has_no_beginning_to_be_measured_by() -> None:
    trial = TrialBuilder()
    trial.collections(losses=("-error$",))
    for step in range(20):
        trial.step(step, {"train-error": [0.0], "validation-error": [0.2]})
    assert not found_at(GeneralisationGap(), trial)


@pytest.mark.parametrize(
    ("begin", "training", "validation", "is_found"),
    [
        (1.0, 0.1, [0.4, 0.33, 0.329, 0.329], False),  # as far behind as trees always are
        (1.0, 0.1, [0.5, 0.4, 0.37, 0.36], True),
    ],
)
def test_boosted_trees_lag_behind_until_validation_turns(
    begin: float, training: float, validation: list[float], *, is_found: bool
) -> None:
    trial = TrialBuilder()
    trial.collections(losses=("-gamma-nloglik$",))
    for step in range(80):
        at = step / 80
        losses = {
            "train-gamma-nloglik": max(begin - 2 * at * (begin - training), training),
            "validation-gamma-nloglik": np.interp(at, np.linspace(0, 1, 4), validation),
        }
        trial.step(step, {name: np.float64(loss) for name, loss in losses.items()})
    assert bool(found_at(GeneralisationGap(), trial)) is is_found
