from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from hook_layer.format.collections_file import CollectionEntry, CollectionsFile
from hook_layer.format.modes import ModeKeys
from hook_layer.format.paths import collections_key
from rule_runtime.engine.outcome import IssueFound, NotApplicable
from rule_runtime.engine.rule import Rule
from rule_runtime.rules.output_contract import OutputContract
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract, SavedStep, healthy_tensors
from tests.rule_runtime.outcomes import make_run, reason_of
from tests.rule_runtime.rules.runs import found_at, judged_at

Array = npt.NDArray[Any]
Make = Callable[[np.random.Generator], Array]
ROWS, CLASSES = 32, 4
OF_KERAS = ("Binary", "Categorical", "Sparse", "Mean", "Poisson", "KlD")


def softmax(scores: Array, axis: int = 1) -> Array:
    powers = np.exp(scores)
    shares: Array = powers / powers.sum(axis=axis, keepdims=True)
    return shares


def sigmoid(scores: Array) -> Array:
    shares: Array = 1 / (1 + np.exp(-scores))
    return shares


def scores(random: np.random.Generator) -> Array:
    return random.normal(size=(ROWS, CLASSES)).astype(np.float32)


def unit(random: np.random.Generator) -> Array:
    return random.normal(size=(ROWS, 1)).astype(np.float32)


def classes(random: np.random.Generator) -> Array:
    return random.integers(0, CLASSES, ROWS)


def one_hot(random: np.random.Generator) -> Array:
    return np.eye(CLASSES, dtype=np.float32)[classes(random)]


def several(random: np.random.Generator) -> Array:
    return (random.random((ROWS, CLASSES)) < 0.5).astype(np.float32)


def binary(random: np.random.Generator) -> Array:
    return (random.random((ROWS, 1)) < 0.5).astype(np.float32)


def amounts(random: np.random.Generator) -> Array:
    return (3 * random.normal(size=(ROWS, 1))).astype(np.float32)


def many(random: np.random.Generator) -> Array:
    """Return scores of many classes, such as words."""
    return random.normal(size=(ROWS, 2000)).astype(np.float32)


def far_classes(random: np.random.Generator) -> Array:
    return 1000 * random.integers(0, 2, ROWS)


def ones(_: np.random.Generator) -> Array:
    return np.ones((ROWS, 1), np.float32)


def first(rows: int, make: Make) -> Make:
    """Return what makes batches of fewer rows."""
    return lambda random: make(random)[:rows]


def run_of(loss: str, outputs: Make, targets: Make, num_steps: int = 12) -> TrialBuilder:
    random = np.random.default_rng(0)
    trial = TrialBuilder()
    if loss.startswith(OF_KERAS):
        trial.collections(losses=("^loss$",))  # as of Keras
    for step in range(0, 10 * num_steps, 10):
        tensors = {
            f"{loss}_input_0": outputs(random),
            f"{loss}_input_1": targets(random),
            f"{loss}_output_0": np.float32(1),
            "loss": np.float32(1),
        }
        trial.step(step, tensors, mode_step=step)
    return trial


def validated(
    loss: str,
    outputs: Make,
    targets: Make,
    *,
    training: tuple[Make, Make] | None = None,
    passes: int = 4,
    extra: dict[str, Any] | None = None,
) -> TrialBuilder:
    """Return a run with a validation pass of 5 steps after each 20 training steps."""
    random = np.random.default_rng(0)
    trial = TrialBuilder()
    if loss.startswith(OF_KERAS):
        trial.collections(losses=("^loss$",))  # as of Keras

    def save(step: int, mode: ModeKeys, made: tuple[Make, Make] | None) -> None:
        mode_step = step % 25 - 20 + 5 * (step // 25) if mode is ModeKeys.EVAL else step
        tensors: dict[str, Any] = {"Net_fc.weight": np.eye(3), **(extra or {})}
        if made is not None:
            tensors |= {f"{loss}_input_{i}": make(random) for i, make in enumerate(made)}
            tensors |= {f"{loss}_output_0": np.float32(1), "loss": np.float32(1)}
        trial.step(step, tensors, mode=mode, mode_step=mode_step)

    for number in range(passes):
        save(25 * number, ModeKeys.TRAIN, training)
        for each in range(5):
            save(25 * number + 20 + each, ModeKeys.EVAL, (outputs, targets))
    return trial


def nearly_ones(random: np.random.Generator) -> Array:
    """Return a softmax over one unit, as some processors round it."""
    return (1 - 6e-8 * (random.random((ROWS, 1)) < 0.5)).astype(np.float32)


class TestOutputContractContract(RuleContract):
    def make_rule(self) -> Rule:
        return OutputContract()

    def make_steps(self, worker: int) -> Iterable[SavedStep]:
        return [self._saved(step, worker, scores) for step in range(0, 100, 10)]

    def make_sick_steps(self, worker: int) -> Iterable[SavedStep]:
        def twice(random: np.random.Generator) -> Array:
            return softmax(scores(random))

        return [self._saved(step, worker, twice) for step in range(0, 100, 10)]

    def _saved(self, step: int, worker: int, outputs: Make) -> SavedStep:
        random = np.random.default_rng(step)
        tensors = {
            **healthy_tensors(step, worker),
            "CrossEntropyLoss_input_0": outputs(random),
            "CrossEntropyLoss_input_1": classes(random),
        }
        return SavedStep(step, tensors, time=1.5e9 + step)


BROKEN: list[tuple[str, Make, Make, str]] = [
    ("CrossEntropyLoss", lambda r: softmax(scores(r)), classes, "includes a softmax"),
    ("CrossEntropyLoss", lambda r: softmax(scores(r), 0), classes, "sum to 1 over the rows"),
    ("CrossEntropyLoss", lambda r: np.maximum(scores(r), 0), classes, "outputs of a ReLU"),
    ("CrossEntropyLoss", unit, binary, "one unit a row"),
    ("CrossEntropyLoss", scores, several, "rows of targets that sum to 1"),
    ("CrossEntropyLoss", scores, lambda r: classes(r) * 0 - 100, "all -100, which it ignores"),
    ("Loss", scores, lambda r: classes(r) * 0 - 100, "all -100, which it ignores"),
    ("NLLLoss", scores, classes, "takes probabilities or their logarithms"),
    ("KLDivLoss", lambda r: softmax(scores(r)), one_hot, "takes probabilities or their logarithms"),
    ("BCEWithLogitsLoss", lambda r: sigmoid(4 * unit(r)), binary, "includes a sigmoid"),
    ("BCEWithLogitsLoss", unit, lambda r: 3 * binary(r), "takes targets from 0 to 1"),
    ("MSELoss", unit, lambda r: amounts(r)[:, 0], "compares 1024 pairs"),
    ("MSELoss", lambda r: np.maximum(unit(r), 0), amounts, "cannot reach the negative targets"),
    (
        "MSELoss",
        lambda r: sigmoid(6 * unit(r)),
        lambda r: 5 + amounts(r),
        "within their bounds",
    ),
    ("MSELoss", lambda r: np.tanh(4 * unit(r)), amounts, "within their bounds"),
    ("MSELoss", lambda r: ones(r) / 2, amounts, "the same output for all rows"),
    ("CategoricalCrossentropyLoss", lambda r: sigmoid(scores(r)), one_hot, "as of a sigmoid"),
    ("CategoricalCrossentropyLoss", scores, one_hot, "takes probabilities"),
    ("CategoricalCrossentropyLoss", ones, ones, "one unit a row"),
    ("BinaryCrossentropyLoss", ones, binary, "a softmax over one unit"),
    ("BinaryCrossentropyLoss", unit, binary, "takes probabilities"),
    ("BinaryCrossentropyWithLogitsLoss", lambda r: sigmoid(4 * unit(r)), binary, "a sigmoid"),
    (
        "SparseCategoricalCrossentropyWithLogits2Loss",
        lambda r: softmax(scores(r)),
        classes,
        "includes a softmax",
    ),
    ("BinaryCrossentropyLoss", nearly_ones, binary, "a softmax over one unit"),
    ("MSELoss", nearly_ones, amounts, "a softmax over one unit"),
    ("MeanAbsoluteErrorLoss", ones, amounts, "a softmax over one unit"),
    ("MSELoss", lambda r: unit(r) / 1e6, amounts, "the same output for all"),
    (
        "CategoricalCrossentropyLoss",
        lambda r: 0 * scores(r) + 1 / CLASSES,
        one_hot,
        "the same output for all rows",
    ),
    (
        "SparseCategoricalCrossentropyLoss",
        lambda r: softmax(scores(r)),
        lambda r: (classes(r) / (CLASSES - 1)).astype(np.float32),
        "takes whole class numbers",
    ),
    (
        "SparseCategoricalCrossentropyLoss",
        lambda r: softmax(scores(r)),
        lambda r: (classes(r) - 1.5).astype(np.float32),
        "takes whole class numbers",
    ),
    ("PoissonLoss", lambda r: np.exp(unit(r)), amounts, "takes targets that are not negative"),
    ("PoissonNLLLoss", unit, amounts, "takes targets that are not negative"),
    ("MeanSquaredLogarithmicErrorLoss", unit, amounts, "takes targets that are not negative"),
    ("MeanAbsolutePercentageErrorLoss", unit, binary, "divides by the targets"),
]


@pytest.mark.parametrize(("loss", "outputs", "targets", "words"), BROKEN)
def test_a_broken_requirement_is_found(loss: str, outputs: Make, targets: Make, words: str) -> None:
    outcomes = run_of(loss, outputs, targets).outcomes(OutputContract())
    found = [outcome for outcome in outcomes if isinstance(outcome, IssueFound)]
    assert found
    assert words in found[0].evidence.sentence
    assert found[0].evidence.remedy


IN_FEW_ROWS = {
    "includes a softmax",
    "outputs of a ReLU",
    "includes a sigmoid",
    "cannot reach the negative targets",
    "within their bounds",
    "the same output for all rows",
    "the same output for all",
    "as of a sigmoid",
    "a softmax over one unit",
    "a sigmoid",
}
FEW = [
    pytest.param(*row, rows, id=f"{row[0]} {row[3]} in {rows}")
    for row in BROKEN
    if row[3] in IN_FEW_ROWS
    for rows in (1, 10)
]


@pytest.mark.parametrize(("loss", "outputs", "targets", "words", "rows"), FEW)
def test_batches_of_few_rows_are_combined(
    loss: str, outputs: Make, targets: Make, words: str, rows: int
) -> None:
    trial = run_of(loss, first(rows, outputs), first(rows, targets), 200)
    found = [o for o in trial.outcomes(OutputContract()) if isinstance(o, IssueFound)]
    assert found
    assert words in found[0].evidence.sentence


def test_constant_outputs_of_batches_of_few_rows_may_drift() -> None:
    """The bias of the last layer learns, though all of its inputs are dead."""
    drift = iter(range(1000))

    def dead(random: np.random.Generator) -> Array:
        return ones(random)[:4] * next(drift) / 3000

    found = found_at(OutputContract(), run_of("MSELoss", dead, first(4, amounts), 60))
    assert found[0] == 10 * (4 * 11 - 1)


@pytest.mark.parametrize("rows", [4, ROWS])
def test_a_sigmoid_that_saturates_is_no_softmax(rows: int) -> None:
    begins = iter(range(16 // rows + 1))

    def outputs(random: np.random.Generator) -> Array:
        return (ones(random) if next(begins, None) is None else sigmoid(unit(random)))[:rows]

    trial = run_of("MSELoss", outputs, first(rows, amounts), 60)
    found = [o for o in trial.outcomes(OutputContract()) if isinstance(o, IssueFound)]
    assert found
    assert all("within their bounds" in one.evidence.sentence for one in found)


def test_outputs_that_start_at_zero_are_no_relu() -> None:
    """A last layer that starts with zeros, and then predicts positive numbers."""
    for rows in (1, 4, ROWS):
        started = iter([ones(np.random.default_rng(0))[:rows] * 0])

        def outputs(random: np.random.Generator, rows: int = rows, started: Any = started) -> Array:
            return next(started, np.abs(unit(random))[:rows])

        trial = run_of("MSELoss", outputs, first(rows, amounts), 60)
        assert not found_at(OutputContract(), trial)


FITTING: list[tuple[str, Make, Make]] = [
    ("CrossEntropyLoss", scores, classes),
    ("CrossEntropyLoss", scores, one_hot),
    ("NLLLoss", lambda r: np.log(softmax(scores(r))), classes),
    ("Loss", scores, lambda r: classes(r) * 0 - 1),  # as of margins
    ("KLDivLoss", lambda r: np.log(softmax(scores(r))), one_hot),
    ("BCEWithLogitsLoss", unit, binary),
    ("BCEWithLogitsLoss", lambda r: sigmoid(unit(r)), binary),  # as of a weak model
    ("BCELoss", lambda r: sigmoid(unit(r)), lambda r: 1.2 * binary(r) - 0.1),  # noisy
    ("BCELoss", ones, ones),  # as of the real side of an adversary
    ("BCELoss", lambda r: sigmoid(unit(r)), binary),
    ("MSELoss", unit, amounts),
    ("MSELoss", lambda r: np.maximum(unit(r), 0), lambda r: np.abs(amounts(r))),
    ("MSELoss", lambda r: sigmoid(unit(r)), lambda r: sigmoid(amounts(r))),
    ("MSELoss", lambda r: unit(r) / 9, amounts),  # as of an untrained model
    ("CategoricalCrossentropyLoss", lambda r: softmax(scores(r)), one_hot),
    ("BinaryCrossentropyLoss", lambda r: sigmoid(unit(r)), lambda r: binary(r)[:, 0]),
    ("BinaryCrossentropyLoss", lambda r: sigmoid(scores(r)), several),
    ("MeanSquaredErrorLoss", unit, lambda r: amounts(r)[:, 0]),  # Keras squeezes
    ("MeanSquaredErrorLoss", unit, lambda r: 1e4 * amounts(r)),  # not scaled
    ("MeanSquaredErrorLoss", unit, lambda r: 1e6 * np.exp(amounts(r) / 3)),  # prices
    (
        "SparseCategoricalCrossentropyLoss",
        lambda r: softmax(scores(r)),
        lambda r: classes(r).astype(np.float32),
    ),
    ("SparseCategoricalCrossentropyLoss", lambda r: softmax(many(r) / 50), far_classes),
    ("PoissonLoss", lambda r: np.exp(unit(r)), lambda r: np.abs(amounts(r))),
    ("PoissonNLLLoss", unit, binary),
    ("MeanAbsolutePercentageErrorLoss", unit, lambda r: 1 + binary(r)),
]


@pytest.mark.parametrize(("loss", "outputs", "targets"), FITTING)
def test_what_fits_is_not_reported(loss: str, outputs: Make, targets: Make) -> None:
    assert not found_at(OutputContract(), run_of(loss, outputs, targets))


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize(("loss", "outputs", "targets"), FITTING)
def test_what_fits_in_batches_of_few_rows_is_not_reported(
    loss: str, outputs: Make, targets: Make, rows: int
) -> None:
    trial = run_of(loss, first(rows, outputs), first(rows, targets), 200)
    assert not found_at(OutputContract(), trial)


def advice_of(loss: str, outputs: Make, targets: Make) -> str:
    outcomes = run_of(loss, outputs, targets).outcomes(OutputContract())
    assert not [outcome for outcome in outcomes if isinstance(outcome, IssueFound)]
    return " ".join(getattr(outcome, "advice", "") for outcome in outcomes)


@pytest.mark.parametrize(
    ("loss", "outputs", "targets", "is_advised"),
    [
        ("BinaryCrossentropyLoss", lambda r: sigmoid(scores(r)), one_hot, True),
        ("BCEWithLogitsLoss", scores, one_hot, True),
        ("MeanSquaredErrorLoss", lambda r: sigmoid(scores(r)), one_hot, True),
        ("MeanSquaredErrorLoss", lambda r: softmax(scores(r)), one_hot, False),
        ("MeanSquaredErrorLoss", scores, one_hot, False),
        ("BinaryCrossentropyLoss", lambda r: sigmoid(scores(r)), several, False),
        (
            "BCEWithLogitsLoss",
            lambda r: scores(r)[:, :2],
            lambda r: np.eye(2)[binary(r)[:, 0].astype(int)],
            False,
        ),
    ],
)
def test_classes_that_exclude_each_other_are_advice(
    loss: str, outputs: Make, targets: Make, is_advised: bool
) -> None:
    assert ("classes exclude each other" in advice_of(loss, outputs, targets)) is is_advised


@pytest.mark.parametrize(("loss", "outputs", "targets", "words"), BROKEN)
def test_a_requirement_broken_in_validation_is_found(
    loss: str, outputs: Make, targets: Make, words: str
) -> None:
    outcomes = validated(loss, outputs, targets).outcomes(OutputContract())
    found = [outcome for outcome in outcomes if isinstance(outcome, IssueFound)]
    assert found
    assert "in validation it" in found[0].evidence.sentence
    assert words in found[0].evidence.sentence
    assert found[0].evidence.mode == "EVAL"


@pytest.mark.parametrize(("loss", "outputs", "targets"), FITTING)
def test_what_fits_in_validation_is_not_reported(loss: str, outputs: Make, targets: Make) -> None:
    trial = validated(loss, outputs, targets)
    assert not found_at(OutputContract(), trial)
    assert len(judged_at(OutputContract(), trial)) == 20


def test_the_remedy_is_to_do_as_in_training_if_that_is_right() -> None:
    def twice(random: np.random.Generator) -> Array:
        return softmax(scores(random))

    for training, begins in ((scores, True), (twice, False)):
        trial = validated("CrossEntropyLoss", twice, classes, training=(training, classes))
        found = [o for o in trial.outcomes(OutputContract()) if isinstance(o, IssueFound)]
        last = found[-1].evidence
        assert last.mode == "EVAL"
        assert last.remedy.startswith("In training it gets others") is begins


def test_no_issue_is_decided_once_constant_outputs_could_be_found() -> None:
    """Constant outputs, and ranges, need more steps than the other requirements."""
    for num_steps, decided in ((9, 0), (10, 1)):
        trial = run_of("CrossEntropyLoss", scores, classes, num_steps)
        state = trial.evaluate(OutputContract())
        assert state.counts.evaluated == decided
    state = trial.evaluate(OutputContract(patience=12))
    assert state.reason == "needs 12 saved steps, had 10"


def test_one_validation_pass_is_one_chance() -> None:
    """Its steps have the same weights, so they are no independent evidence."""

    def of_relu(random: np.random.Generator) -> Array:
        return np.maximum(scores(random), 0)

    rule = OutputContract(range_patience=5)
    for passes, found in ((1, []), (2, [45, 46, 47, 48, 49])):
        trial = validated("CrossEntropyLoss", of_relu, classes, passes=passes)
        assert [step for step in found_at(rule, trial) if step > 25] == found


@pytest.mark.parametrize(
    ("loss", "outputs", "targets"),
    [
        ("MSELoss", lambda r: ones(r) / 2, amounts),
        ("BinaryCrossentropyLoss", ones, binary),  # saturated by unscaled activations
    ],
)
def test_outputs_before_moving_averages_are_accurate(
    loss: str, outputs: Make, targets: Make
) -> None:
    trial = validated(loss, outputs, targets)
    assert found_at(OutputContract(), trial)
    average = "bn/weights/bn/moving_mean:0"
    entries = {
        "weights": CollectionEntry("weights", tensor_names=(average,)),
        "losses": CollectionEntry("losses", include_regex=("^loss$",)),
    }
    trial.store.put(collections_key("worker_0"), CollectionsFile(entries, num_workers=1).encode())
    assert not found_at(OutputContract(), trial)
    assert len(judged_at(OutputContract(), trial)) == 20


@pytest.mark.parametrize(
    "tensors",
    [
        {"CrossEntropyLoss_output_0": np.float32(1)},
        {"CrossEntropyLoss_input_0": np.array(["a", "b"]), "CrossEntropyLoss_output_0": [1.0, 2.0]},
        {"Net_output_0": np.ones((3, 2))},
    ],
)
def test_validation_without_losses_says_nothing_about_training(tensors: dict[str, Any]) -> None:
    trial = run_of("CrossEntropyLoss", scores, classes)
    trial.step(111, tensors, mode=ModeKeys.EVAL)
    *_, outcome = trial.outcomes(OutputContract())
    assert isinstance(outcome, NotApplicable)
    assert "in validation" in outcome.reason


def test_several_losses_and_a_ragged_last_batch_in_validation() -> None:
    trial, random = TrialBuilder(), np.random.default_rng(0)
    for step in range(40):
        mode = ModeKeys.EVAL if step % 10 > 4 else ModeKeys.TRAIN
        rows = 1 if step % 10 == 9 else ROWS
        tensors: dict[str, Any] = {}
        for loss, made in (("CrossEntropyLoss", (scores, classes)), ("MSELoss", (unit, amounts))):
            tensors |= {f"{loss}_input_{i}": make(random)[:rows] for i, make in enumerate(made)}
            tensors[f"{loss}_output_0"] = random.random(rows)  # not reduced
        tensors["MSELoss_input_1"] = tensors["MSELoss_input_1"].reshape(rows, 1)
        trial.step(step, tensors, mode=mode)
    assert not found_at(OutputContract(), trial)
    assert len(judged_at(OutputContract(), trial)) == 40


def test_it_is_found_at_the_first_saved_step() -> None:
    trial = run_of("CrossEntropyLoss", lambda r: softmax(scores(r)), classes)
    assert found_at(OutputContract(), trial)[0] == 0


@pytest.mark.parametrize(("highest", "steps"), [(3, [0]), (1, [])])
def test_a_step_in_which_the_loss_failed_is_judged(highest: int, steps: list[int]) -> None:
    trial = TrialBuilder()
    trial.collections(losses=("^loss$",))
    random = np.random.default_rng(0)
    targets = random.integers(0, highest + 1, ROWS)
    trial.step(
        0,
        {
            "BinaryCrossentropyLoss_input_0": sigmoid(unit(random)),
            "BinaryCrossentropyLoss_input_1": targets.astype(np.float32),
        },
        mode_step=0,
    )
    assert found_at(OutputContract(), trial) == steps


def test_a_patience_is_waited_for() -> None:
    steps = iter([softmax(scores(np.random.default_rng(0)))])

    def first_only(random: np.random.Generator) -> Array:
        return next(steps, scores(random))

    assert not found_at(OutputContract(patience=2), run_of("CrossEntropyLoss", first_only, classes))


def test_without_inputs_of_losses_the_reason_says_how_to_get_them() -> None:
    trial = make_run({"CrossEntropyLoss_output_0": np.float32(1)})
    assert "no inputs of losses were saved" in reason_of(*trial.outcomes(OutputContract()))
