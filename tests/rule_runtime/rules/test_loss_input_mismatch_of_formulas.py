"""Losses that are written wrongly, which only values of outputs and targets tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rule_runtime.engine.outcome import IssueFound
from rule_runtime.rules.loss_input_mismatch import LossInputMismatch
from rule_runtime.testing import TrialBuilder
from tests.rule_runtime.rules.runs import found_at

STEPS = (0, 100, 200, 300)
_Loss = Callable[[Any, Any], Any]


def scores(*shape: int) -> Any:
    return np.random.default_rng(0).normal(0, 2, (len(STEPS), *shape)).astype(np.float32)


def yes(*shape: int) -> Any:
    return np.random.default_rng(1).integers(0, 2, (len(STEPS), *shape)).astype(np.float32)


def amounts(*shape: int) -> Any:
    return np.random.default_rng(2).normal(0, 1, (len(STEPS), *shape)).astype(np.float32)


def sigmoid(of: Any) -> Any:
    return 1 / (1 + np.exp(-of))


def run(
    outputs: Any, targets: Any, loss: _Loss, *, name: str = "OwnLoss", others: Any = None
) -> TrialBuilder:
    trial = TrialBuilder()
    for step, o, t in zip(STEPS, outputs, targets, strict=True):
        given = {f"{name}_input_0": o, f"{name}_input_1": t, "Net_output_0": o, "Net_input_0": o}
        given[f"{name}_output_0"] = np.float64(loss(o.astype(float), t))
        trial.step(step, {**given, **(others or {})}, mode_step=step)
    return trial


def message(trial: TrialBuilder) -> str:
    outcome = trial.outcomes(LossInputMismatch())[-1]
    return outcome.evidence.sentence if isinstance(outcome, IssueFound) else ""


def entropy(p: Any, t: Any) -> Any:
    return -(t * np.log(p) + (1 - t) * np.log(1 - p))


OF_YES: list[tuple[_Loss, str]] = [
    (lambda o, t: entropy(sigmoid(o), t).mean(), ""),
    (lambda o, t: -(t * np.log(sigmoid(o))).mean(), "of yes alone"),
    (lambda o, t: -(t * np.log(sigmoid(o))).sum(), "of yes alone"),
    (lambda o, t: entropy(sigmoid(o), 1 - t).mean(), "takes yes for no"),
    (lambda o, t: np.maximum(1 - t * o, 0).mean(), "a hinge, which takes -1 and 1, of targets 0"),
    (lambda o, t: np.maximum(1 - (2 * t - 1) * o, 0).mean(), ""),
    (lambda o, t: np.log1p(np.exp(-t * o)).mean(), "takes -1 and 1, of targets 0 and 1"),
    (lambda o, t: (5 * t * np.logaddexp(0, -o) + (1 - t) * np.logaddexp(0, o)).mean(), ""),
    (lambda o, t: ((sigmoid(o) - t) ** 2).mean(), ""),
]


@pytest.mark.parametrize("shape", [(40, 1), (40,), (40, 3)])
@pytest.mark.parametrize(("loss", "words"), OF_YES)
def test_a_loss_of_yes_and_no(loss: _Loss, words: str, shape: tuple[int, ...]) -> None:
    trial = run(scores(*shape), yes(*shape), loss)
    assert found_at(LossInputMismatch(), trial) == ([100, 200, 300] if words else [])
    assert words in message(trial)


def test_probabilities_in_place_of_scores() -> None:
    trial = run(sigmoid(scores(40, 8)), yes(40, 8), lambda o, t: -(t * np.log(o)).mean())
    assert "of yes alone" in message(trial)


def test_a_cross_entropy_of_probabilities_of_classes_is_right() -> None:
    powers = np.exp(scores(40, 3))
    shares = powers / powers.sum(axis=2, keepdims=True)
    classes = np.eye(3)[np.random.default_rng(3).integers(0, 3, (len(STEPS), 40))]
    trial = run(shares, classes, lambda o, t: -(t * np.log(o)).sum(axis=1).mean())
    assert not found_at(LossInputMismatch(), trial)


OF_AMOUNTS: list[tuple[_Loss, str]] = [
    (lambda o, t: ((o - t) ** 2).mean(), ""),
    (lambda o, t: abs(o - t).mean(), ""),
    (lambda o, t: (o - t).mean() ** 2, "how far the means of all outputs are"),
    (lambda o, t: abs((o - t) / t).mean(), "the errors as parts of targets, of which some are"),
    (lambda o, t: (o - t).mean(), ""),  # as that of a critic is, and it diverges
    (lambda o, t: (np.logaddexp(0, o) - t * o).mean(), "of yes and no, with targets below"),
    (lambda o, t: np.maximum(0.05 * (t - o), 0.95 * (o - t)).mean(), ""),  # a quantile is meant
]


@pytest.mark.parametrize("shape", [(40, 1), (40,), (40, 3)])
@pytest.mark.parametrize(("loss", "words"), OF_AMOUNTS)
def test_a_loss_of_amounts(loss: _Loss, words: str, shape: tuple[int, ...]) -> None:
    trial = run(scores(*shape), amounts(*shape), loss)
    assert found_at(LossInputMismatch(), trial) == ([100, 200, 300] if words else [])
    assert words in message(trial)


@pytest.mark.parametrize(("axis", "of"), [(1, "rows"), (0, "columns")])
def test_means_of_rows_or_columns(axis: int, of: str) -> None:
    def loss(o: Any, t: Any) -> Any:
        return ((o.mean(axis=axis) - t.mean(axis=axis)) ** 2).mean()

    assert f"the means of {of} are" in message(run(scores(40, 3), amounts(40, 3), loss))


def test_outputs_that_are_all_too_low_have_the_mean_of_their_errors() -> None:
    trial = run(scores(40, 1), amounts(40, 1) + 99, lambda o, t: abs((o - t).mean()))
    assert not found_at(LossInputMismatch(), trial)


def test_beside_another_loss_means_may_be_compared() -> None:
    others = {"MSELoss_output_0": np.float64(1)}
    trial = run(scores(40, 1), amounts(40, 1), lambda o, t: (o - t).mean() ** 2, others=others)
    assert not found_at(LossInputMismatch(), trial)


def class_losses(o: Any, t: Any) -> Any:
    return np.log(np.exp(o).sum(axis=1)) - o[np.arange(len(t)), t]


def run_of_classes(left_out: list[int], *, name: str, shape: tuple[int, ...] = (60, 5)) -> Any:
    classes = np.random.default_rng(4).integers(0, 5, (len(STEPS), 60))
    given = scores(*shape)
    if len(left_out) > 1:
        given[:, :, left_out] -= 9

    def loss(o: Any, t: Any) -> Any:
        return class_losses(o, t)[~np.isin(t, left_out)].mean()

    return run(given, classes, loss, name=name)


@pytest.mark.parametrize("name", ["CrossEntropyLoss", "Loss", "OwnLoss"])
@pytest.mark.parametrize(
    ("left_out", "words"),
    [([], ""), ([0], "class 0"), ([3], "class 3"), ([1, 2], "classes 1, 2")],
)
def test_classes_that_are_left_out(left_out: list[int], words: str, name: str) -> None:
    trial = run_of_classes(left_out, name=name)
    assert found_at(LossInputMismatch(), trial) == ([100, 200, 300] if words else [])
    assert words in message(trial)


def test_padding_of_texts_is_left_out() -> None:
    trial = TrialBuilder()
    classes = np.random.default_rng(5).integers(0, 5, (len(STEPS), 60))
    for step, o, t in zip(STEPS, scores(60, 5), classes, strict=True):
        loss = class_losses(o.astype(float), t)[t > 0].mean()
        given = {"CrossEntropyLoss_input_0": o, "CrossEntropyLoss_input_1": t}
        given |= {"Net_output_0": o.reshape(6, 10, 5), "Net_input_0": t.reshape(6, 10)}
        trial.step(step, {**given, "CrossEntropyLoss_output_0": loss}, mode_step=step)
    assert not found_at(LossInputMismatch(), trial)


@pytest.mark.parametrize(
    ("loss", "steps"),
    [
        (lambda o, t: abs((o - t).mean()), [200, 300]),  # when both signs were seen
        (lambda o, t: (o - t).mean(), []),  # as of a critic
    ],
)
def test_the_size_of_a_mean_difference(loss: _Loss, steps: list[int]) -> None:
    targets = amounts(40, 1)
    outputs = (
        targets + 0.1 * scores(40, 1) + np.array([0.1, -0.1, 0.1, 0.1], np.float32)[:, None, None]
    )
    trial = run(outputs, targets, loss)
    assert found_at(LossInputMismatch(), trial) == steps
    if steps:
        assert "the mean difference, in which errors cancel out" in message(trial)


@pytest.mark.parametrize(
    "loss",
    [
        lambda o, t: ((o[:, 1] - t[:, 1]) ** 2).mean(),
        lambda o, t: abs(o[:, 1] - t[:, 1]).mean(),
    ],
)
def test_one_of_several_columns(loss: _Loss) -> None:
    assert "is of column 1 of 3 alone" in message(run(scores(40, 3), amounts(40, 3), loss))


def test_classes_that_hold_together() -> None:
    def first(o: Any, t: Any) -> Any:
        return class_losses(o, t.argmax(axis=1)).mean()

    assert "and several hold together" in message(run(scores(40, 5), yes(40, 5), first))


@pytest.mark.parametrize(("axis", "is_found"), [(0, True), (1, False), (2, True)])
def test_a_softmax_along_another_axis(axis: int, is_found: bool) -> None:
    classes = np.random.default_rng(4).integers(0, 5, (len(STEPS), 8, 6))

    def loss(o: Any, t: Any) -> Any:
        logarithms = o - np.log(np.exp(o).sum(axis=axis, keepdims=True))
        return -np.take_along_axis(logarithms, t[:, None], 1).mean()

    trial = run(scores(8, 5, 6), classes, loss, name="Loss")
    assert bool(message(trial)) is is_found
    assert not is_found or f"along dimension {axis}, and not along dimension 1" in message(trial)


@pytest.mark.parametrize(
    ("shift", "loss", "is_found"), [(0, 0.1, True), (0, 1.0, False), (1, 0.1, False)]
)
def test_a_language_model_that_is_to_say_what_it_is_given(
    shift: int, loss: float, is_found: bool
) -> None:
    trial = TrialBuilder()
    for step, text in zip(STEPS, np.random.default_rng(6).integers(0, 20, (4, 8, 11)), strict=True):
        given = {"Net_input_0": text[:, :-1], "Net_output_0": scores(8, 10, 20)[0]}
        given |= {"CrossEntropyLoss_input_0": scores(80, 20)[0]}
        given |= {"CrossEntropyLoss_input_1": text[:, shift : shift + 10].reshape(-1)}
        trial.step(step, {**given, "CrossEntropyLoss_output_0": np.float64(loss)}, mode_step=step)
    assert bool(found_at(LossInputMismatch(), trial)) is is_found
    assert not is_found or "the same 80 tokens that Net is given" in message(trial)


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (lambda o, t: -(t * np.log(sigmoid(o) + 1e-7)).mean(), "of yes alone"),
        (lambda o, t: 2 * (sigmoid(o) * t).sum() / (sigmoid(o) + t).sum(), "the overlap"),
    ],
)
def test_what_is_wrong_soon_is_nearly_0(loss: _Loss, words: str) -> None:
    outputs = scores(40, 2)
    outputs[1:] += 12 if words == "of yes alone" else -12
    trial = run(outputs, yes(40, 2), loss)
    assert found_at(LossInputMismatch(), trial) == [100, 200, 300]
    assert words in message(trial)


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (lambda of: of[:, 0], "gets column 0 alone of the 3 columns that Net returns"),
        (lambda of: of[:, 2], ""),  # the last place of a series
        (lambda of: of.mean(), "gets nothing but the mean of the 3 columns that Net returns"),
        (lambda of: of.mean(axis=1), ""),
        (lambda of: of, ""),
    ],
)
def test_a_part_of_what_a_model_returns(part: Callable[[Any], Any], words: str) -> None:
    trial = TrialBuilder()
    for step, o, t in zip(STEPS, scores(40, 3), amounts(40, 3), strict=True):
        given = {"MSELoss_input_0": part(o), "MSELoss_input_1": part(t), "Net_output_0": o}
        trial.step(step, {**given, "MSELoss_output_0": np.float64(1)}, mode_step=step)
    assert found_at(LossInputMismatch(), trial) == ([100, 200, 300] if words else [])
    assert words in message(trial)


@pytest.mark.parametrize(
    ("name", "targets", "is_found"),
    [
        ("MultiLabelMarginLoss", yes(40, 5).astype(np.int64), True),
        ("MultiLabelMarginLoss", np.tile([3, 0, -1, 1, 2], (len(STEPS), 40, 1)), False),
        ("MultiLabelSoftMarginLoss", yes(40, 5), False),
        ("MultiLabelSoftMarginLoss", 2 * yes(40, 5) - 1, True),
        ("PoissonNLLLoss", np.abs(amounts(40, 5)), False),
        ("PoissonNLLLoss", amounts(40, 5), True),
        ("KLDivLoss", np.full((len(STEPS), 40, 5), 0.2), False),
        ("KLDivLoss", np.full((len(STEPS), 40, 5), np.log(0.2)), False),  # log_target
        ("KLDivLoss", amounts(40, 5), True),
        ("KLDivLoss", yes(40, 5), True),
    ],
)
def test_targets_that_a_loss_is_not_made_for(name: str, targets: Any, is_found: bool) -> None:
    trial = run(-np.abs(scores(40, 5)), targets, lambda _o, _t: 1.0, name=name)
    for step in range(310, 340, 10):
        given = {f"{name}_input_0": -np.abs(scores(40, 5)[0]), f"{name}_input_1": targets[0]}
        trial.step(step, {**given, f"{name}_output_0": np.float64(1)}, mode_step=step)
    assert bool(found_at(LossInputMismatch(), trial)) is is_found


def test_distances_are_large_where_two_are_unlike() -> None:
    def loss(o: Any, t: Any) -> Any:
        return (t * np.logaddexp(0, o) + (1 - t) * np.logaddexp(0, -o)).mean()

    assert not found_at(LossInputMismatch(), run(np.abs(scores(40, 1)), yes(40, 1), loss))
    assert found_at(LossInputMismatch(), run(scores(40, 1), yes(40, 1), loss))


def test_the_same_classes_must_be_left_out_each_time() -> None:
    classes = np.random.default_rng(4).integers(0, 5, (len(STEPS), 60))
    missing = iter(range(len(STEPS)))

    def loss(o: Any, t: Any) -> Any:
        return class_losses(o, t)[t != next(missing)].mean()

    trial = run(scores(60, 5), classes, loss, name="CrossEntropyLoss")
    assert not found_at(LossInputMismatch(), trial)
