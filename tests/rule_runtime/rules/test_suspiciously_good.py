from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.outcome import NotEvaluated
from rule_runtime.engine.rule import Rule
from rule_runtime.rules.suspiciously_good import SuspiciouslyGood
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract, SavedStep
from tests.rule_runtime.outcomes import evidence_of, first_finding, make_run
from tests.rule_runtime.rules.runs import LOSS, found_at, trial_of
from tests.rule_runtime.rules.xgboost_trials import boost, judged


def passes(pairs: Iterable[tuple[float, float]], name: str = LOSS) -> list[SavedStep]:
    """Return a run in which pairs of losses of training and validation take turns, 5 steps each."""
    steps: list[SavedStep] = []
    number = {ModeKeys.TRAIN: 0, ModeKeys.EVAL: 0}
    for training, validation in pairs:
        for mode, loss in ((ModeKeys.TRAIN, training), (ModeKeys.EVAL, validation)):
            for _ in range(5):
                at = len(steps)
                steps.append(SavedStep(at, {name: np.float64(loss)}, mode, number[mode]))
                number[mode] += 1
    steps.append(SavedStep(len(steps), {name: np.float64(training)}, ModeKeys.TRAIN, 10**4))
    return steps


HEALTHY = [(2.3, 2.2), (1.0, 1.1), (0.5, 0.6), (0.2, 0.4), (0.1, 0.4)]
LEAKING = [(2.3, 1.0), (0.2, 0.0008), (0.0008, 0.0005), (0.0002, 0.0002), (0.0002, 0.0002)]


def of_trees(pairs: Iterable[tuple[float, float]]) -> list[SavedStep]:
    """Return a run of boosted trees with these losses of training and validation in its rounds."""
    names = ("train-logloss", "validation-logloss")
    tensors = [dict(zip(names, map(np.float64, pair), strict=True)) for pair in pairs]
    return [SavedStep(at, one, ModeKeys.TRAIN, at) for at, one in enumerate(tensors)]


class TestSuspiciouslyGoodContract(RuleContract):
    def make_rule(self) -> Rule:
        return SuspiciouslyGood()

    def make_collections(self) -> dict[str, tuple[str, ...]]:
        return {"losses": ("-logloss$",)}

    def make_steps(self, worker: int) -> Iterable[SavedStep]:  # noqa: ARG002
        return of_trees(HEALTHY)

    def make_sick_steps(self, worker: int) -> Iterable[SavedStep]:  # noqa: ARG002
        return of_trees(LEAKING)


def test_fires_at_the_second_round_that_is_too_good() -> None:
    trial = trial_of(of_trees(LEAKING))
    trial.collections(losses=("-logloss$",))
    patient, hasty = SuspiciouslyGood(), SuspiciouslyGood(patience=1)
    assert found_at(patient, trial) == [2, 3, 4]
    found = first_finding(patient, trial)
    assert found.value == pytest.approx(0.0005)
    assert found.threshold == pytest.approx(0.02 * 2.3)
    assert "the validation loss is 0.0005, below 0.046" in found.sentence
    assert found_at(hasty, trial) == [1, 2, 3, 4]


@pytest.mark.parametrize("name", [LOSS, "MSELoss_output_0", "loss"])
def test_the_loss_of_a_net_may_be_next_to_zero_without_any_fault(name: str) -> None:
    assert not found_at(SuspiciouslyGood(), trial_of(passes(LEAKING, name)))


def test_xgboost_has_validation_beside_training() -> None:
    for validation, fires in ((0.01, True), (0.02, False)):
        trial = make_run(
            {"train-logloss": [0.7], "validation-logloss": [0.69]},
            collections={"losses": ("-logloss$",)},
        )
        for step in (1, 2, 3, 4):
            trial.step(step, {"train-logloss": [0.01], "validation-logloss": [validation]})
        assert bool(found_at(SuspiciouslyGood(), trial)) is fires
        if fires:
            found = first_finding(SuspiciouslyGood(), trial)
            assert "validation-logloss: the validation loss is 0.01" in found.sentence


def test_what_cannot_be_judged() -> None:
    trial = make_run({LOSS: [1.0]}, mode=ModeKeys.TRAIN)
    trial.step(1, {LOSS: [1.0]}, mode=ModeKeys.PREDICT)
    trial.step(2, {LOSS: [np.nan]}, mode=ModeKeys.TRAIN)
    trial.step(3, {LOSS: [1.0]}, mode=ModeKeys.EVAL)
    outcomes = trial.outcomes(SuspiciouslyGood())
    assert all(isinstance(outcome, NotEvaluated) for outcome in outcomes)
    assert "no values of the model's inputs were saved" in outcomes[-1].reason


def test_targets_that_are_series_of_numbers_are_not_judged() -> None:
    trial, series = TrialBuilder(), np.sin(np.arange(400.0).reshape(20, 20))
    values = {"Net_input_0": series, "MSELoss_input_0": series, "MSELoss_input_1": series + 1}
    trial.step(0, {"Net_fc.weight": np.eye(2), "MSELoss_output_0": [1.0], **values})
    trial.step(1, {"Net_fc.weight": np.eye(2), "MSELoss_output_0": [1.0]})
    for outcome in trial.outcomes(SuspiciouslyGood()):
        assert isinstance(outcome, NotEvaluated)
        assert "only if they are tables with a few targets" in outcome.reason


def test_a_negative_loss_has_no_zero_to_be_near() -> None:
    trial = trial_of(of_trees([(1.0, 1.0)] + [(-5.0, -5.0)] * 4))
    trial.collections(losses=("-logloss$",))
    assert not found_at(SuspiciouslyGood(), trial)


def test_more_losses_than_can_be_followed_do_not_break_it() -> None:
    trial = TrialBuilder()
    trial.collections(losses=("-logloss$",))
    for step in range(8):
        names = ("train-logloss", *(f"validation_{at:02d}-logloss" for at in range(40)))
        trial.step(step, {name: [0.7 if step < 2 else 0.0001] for name in names})
    assert found_at(SuspiciouslyGood(), trial)


def boosted(
    metric: str,
    validation: float,
    training: float,
    *,
    begin: float = 0.7,
    labels: object = None,
) -> TrialBuilder:
    trial = TrialBuilder()
    trial.collections(losses=(f"-{metric}$",), labels=("^labels$",))
    others = {} if labels is None else {"labels": np.asarray(labels)}
    for step in range(6):
        losses = (training, validation) if step else (begin, begin)
        names = (f"train-{metric}", f"validation-{metric}")
        trial.step(step, dict(zip(names, map(np.float64, losses), strict=True)) | others)
    return trial


@pytest.mark.parametrize(("share", "is_found"), [(0.019, True), (0.021, False)])
def test_an_rmse_is_measured_by_the_spread_of_the_labels(share: float, *, is_found: bool) -> None:
    labels = np.array([100.0, 140.0] * 20)  # of mean 120 and standard deviation 20
    rmse = 20 * share
    trial = boosted("rmse", rmse, rmse, begin=120.0, labels=labels)
    assert bool(found_at(SuspiciouslyGood(), trial)) is is_found
    if is_found:
        evidence = evidence_of(trial.outcomes(SuspiciouslyGood())[-1])
        assert evidence.threshold == pytest.approx(20 * 0.02)


@pytest.mark.parametrize(
    ("metric", "labels"),
    [
        ("rmse", None),
        ("rmse", np.full(40, 7.0)),
        ("mae", np.arange(40.0)),
        ("rmsle", np.arange(40)),
    ],
)
def test_other_distances_have_no_known_baseline(metric: str, labels: object) -> None:
    trial = boosted(metric, 1e-6, 1e-6, begin=120.0, labels=labels)
    assert not found_at(SuspiciouslyGood(), trial)


def test_columns_of_labels_may_be_in_unlike_units() -> None:
    turns = np.array([-1.0, 1.0] * 20)
    labels = np.stack([turns, 100 + 3 * turns, 1e4 + 5 * turns], axis=1)
    assert not found_at(SuspiciouslyGood(), boosted("rmse", 0.1, 0.1, begin=5e3, labels=labels))


def test_labels_saved_once_are_remembered() -> None:
    trial = make_run(
        {"labels": np.arange(40.0), "train-rmse": [25.0], "validation-rmse": [25.0]},
        collections={"losses": ("-rmse$",), "labels": ("^labels$",)},
    )
    for step in (1, 2, 3):
        trial.step(step, {"train-rmse": [0.1], "validation-rmse": [0.1]})
    assert found_at(SuspiciouslyGood(), trial) == [2, 3]


RANDOM = np.random.default_rng(0)


def run_of_inputs(
    targets: np.ndarray, *more: np.ndarray, inputs: np.ndarray | None = None, batch: int = 16
) -> TrialBuilder:
    """Return a training whose model is given random numbers and further columns."""
    noise = RANDOM.normal(0, 1, (len(targets), 4)) if inputs is None else inputs
    given = np.column_stack([noise, *more]) if more else noise
    trial = TrialBuilder()
    for step, start in enumerate(range(0, len(targets) - batch + 1, batch)):
        rows = slice(start, start + batch)
        tensors = {
            "Net_layer.weight": np.ones((4, 4)),
            "Net_input_0": given[rows],
            "MSELoss_input_1": targets[rows],
            "MSELoss_output_0": np.float64(1.0),
        }
        trial.step(step, tensors, mode=ModeKeys.TRAIN, mode_step=step)
    return trial


NUMBERS = RANDOM.lognormal(0, 1, 96)
CLASSES = RANDOM.integers(0, 3, 96)
MANY = np.random.default_rng(1).integers(0, 3, 272)


@pytest.mark.parametrize(
    ("targets", "column", "fewest"),
    [
        (NUMBERS, np.log(NUMBERS), 50),
        (NUMBERS[:, None], -NUMBERS, 50),
        (MANY, 3.0 - MANY, 200),
        (np.eye(3)[MANY], MANY / 2, 200),
    ],
)
def test_a_column_of_the_inputs_that_is_the_target(
    targets: np.ndarray, column: np.ndarray, fewest: int
) -> None:
    trial = run_of_inputs(targets, column)
    at = found_at(SuspiciouslyGood(), trial)[0]
    assert 16 * (at + 1) >= fewest
    evidence = evidence_of(trial.outcomes(SuspiciouslyGood())[at])
    assert evidence.tensor == "Net_input_0"
    assert "column 4 predicts the target MSELoss_input_1, in " in evidence.sentence


@pytest.mark.parametrize(
    ("targets", "column"),
    [
        (NUMBERS, NUMBERS + RANDOM.normal(0, 0.05, 96)),  # a good feature
        (NUMBERS, np.roll(NUMBERS, 1)),
        (CLASSES, np.where(CLASSES == 1, 1.0, RANDOM.normal(0, 1, 96))),
        (CLASSES, CLASSES == 1),  # marks one class of three
        (CLASSES, CLASSES + RANDOM.normal(0, 0.1, 96)),  # classes far apart: an easy task
        (np.column_stack([NUMBERS, NUMBERS, NUMBERS]), NUMBERS),  # as of an autoencoder
    ],
)
def test_columns_that_are_not_the_target(targets: np.ndarray, column: np.ndarray) -> None:
    assert not found_at(SuspiciouslyGood(), run_of_inputs(targets, column))


def test_a_window_that_is_one_sample_too_long() -> None:
    random = np.random.default_rng(0)
    samples = np.cumsum(random.normal(0, 1, (110, 2)), 0)
    windows = np.lib.stride_tricks.sliding_window_view(samples, 9, 0).transpose(0, 2, 1)[:96]
    windows = random.permutation(windows)
    assert not found_at(SuspiciouslyGood(), run_of_inputs(windows[:, -1], inputs=windows[:, :-1]))
    trial = run_of_inputs(windows[:, -1], inputs=windows)
    assert found_at(SuspiciouslyGood(), trial) == [3, 4, 5]
    found = first_finding(SuspiciouslyGood(), trial)
    assert "column 16 predicts the target MSELoss_input_1, in 64 rows" in found.sentence


@pytest.mark.parametrize(("lag", "is_found"), [(0, True), (1, False)])
def test_a_series_whose_columns_are_its_targets(lag: int, *, is_found: bool) -> None:
    series = np.random.default_rng(0).normal(size=(64, 12, 3)).cumsum(1)
    targets = series[:, 2:]
    inputs = np.concatenate([series[:, :-2], series[:, 2 - lag : 12 - lag]], 2)
    trial = run_of_inputs(targets, inputs=inputs)
    assert bool(found_at(SuspiciouslyGood(), trial)) is is_found


def test_the_same_rows_again_show_nothing_new() -> None:
    one = np.column_stack([np.random.default_rng(0).normal(size=(16, 4)), NUMBERS[:16]])
    again = run_of_inputs(np.tile(NUMBERS[:16], 6), inputs=np.tile(one, (6, 1)))
    assert not found_at(SuspiciouslyGood(), again)


@pytest.mark.parametrize("num_wrong", [0, 1, 10])
def test_labels_are_used_where_no_module_has_the_targets(num_wrong: int) -> None:
    random = np.random.default_rng(0)
    labels = np.arange(240) % 2
    column = np.where(np.arange(240) < num_wrong, 1 - labels, labels)
    trial = TrialBuilder()
    tensors = {"Net_layer.weight": np.ones((4, 4)), "Loss_output_0": np.float64(1.0)}
    inputs = np.column_stack([random.normal(size=(240, 3)), column])
    tensors |= {"Net_input_0": inputs, "labels": labels}
    trial.step(0, tensors, mode=ModeKeys.TRAIN)
    assert found_at(SuspiciouslyGood(), trial) == ([] if num_wrong else [0])


def test_one_column_alone_is_no_leak() -> None:
    trial = run_of_inputs(NUMBERS, inputs=np.log(NUMBERS)[:, None])
    assert not found_at(SuspiciouslyGood(), trial)


def test_what_predicts_one_batch_must_predict_the_next() -> None:
    column = np.concatenate([NUMBERS[:48], NUMBERS[:47:-1]])
    assert not found_at(SuspiciouslyGood(), run_of_inputs(NUMBERS, column))


@pytest.mark.parametrize("has_leak", [True, False])
def test_trees_that_are_given_their_labels_in_another_form(
    tmp_path: Path, *, has_leak: bool
) -> None:
    xgboost = pytest.importorskip("xgboost")
    features, labels = pytest.importorskip("sklearn.datasets").load_diabetes(return_X_y=True)
    message = np.log(labels) if has_leak else np.random.default_rng(0).permutation(labels)
    data = xgboost.DMatrix(np.column_stack([features, message]), labels)
    rows = np.arange(len(labels))
    trial = boost(
        tmp_path,
        "labels",
        data=data.slice(rows[:300]),
        validation=data.slice(rows[300:]),
        include_regex="^input_values$",
    )
    evidence = judged(trial, SuspiciouslyGood()).evidence
    assert (evidence is not None) is has_leak
    if evidence is not None:
        assert (
            "input_values: column 10 predicts the target labels, in 142 rows" in evidence.sentence
        )


def test_an_input_that_is_a_single_number_is_skipped() -> None:
    trial = TrialBuilder()
    targets = np.arange(8) % 2
    for step in range(3):
        saved = {LOSS: [1.0], "Net_input_0": np.array(7), "CrossEntropyLoss_input_1": targets}
        trial.step(step, saved)
    assert {type(outcome) for outcome in trial.outcomes(SuspiciouslyGood())} == {NotEvaluated}
