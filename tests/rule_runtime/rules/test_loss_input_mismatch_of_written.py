"""Losses that a script writes itself, which the hook saves with what they compare."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rule_runtime.engine.outcome import IssueFound
from rule_runtime.rules.loss_input_mismatch import LossInputMismatch
from rule_runtime.testing import TrialBuilder
from tests.rule_runtime.rules.runs import found_at

RANDOM = np.random.default_rng(0)
Loss = Callable[[Any, Any], Any]


def run(
    loss: Loss,
    outputs: Callable[[], Any],
    targets: Callable[[], Any],
    *,
    name: str = "Loss",
    saved: Callable[[Any], Any] = lambda targets: targets,
) -> TrialBuilder:
    trial = TrialBuilder()
    for step in range(0, 800, 100):
        o, t = outputs(), targets()
        value = np.float64(loss(np.float64(o), np.float64(t)))
        given = {f"{name}_input_0": o, f"{name}_input_1": saved(t), f"{name}_output_0": value}
        trial.step(step, given, mode_step=step)
    return trial


def numbers(*shape: int, mean: float = 0.3, std: float = 1.0) -> Any:
    return RANDOM.normal(mean, std, shape).astype(np.float32)


def around(mean: float, size: int, std: float) -> Any:
    found = numbers(size, 1, mean=0, std=std)
    return (found - found.mean() + mean).astype(np.float32)


def squares(o: Any, t: Any) -> Any:
    return np.square(o - t).mean()


def sizes(o: Any, t: Any) -> Any:
    return np.abs(o - t).mean()


FORMS: list[Loss] = [
    squares,
    sizes,
    lambda o, t: np.sqrt(squares(o, t)),
    lambda o, t: np.square(o - t).sum() / len(o),
    lambda o, t: 0.5 * squares(o, t),
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("outputs", "targets"), [((32, 1), (32,)), ((32,), (32, 1))])
def test_outputs_and_targets_that_are_spread_over_each_other(
    form: Loss, outputs: tuple[int, ...], targets: tuple[int, ...]
) -> None:
    trial = run(form, lambda: numbers(*outputs, std=0.1), lambda: numbers(*targets))
    assert found_at(LossInputMismatch(), trial)
    outcome = next(o for o in trial.outcomes(LossInputMismatch()) if isinstance(o, IssueFound))
    assert outcome.evidence.measure == "elements"
    assert "1024 " in outcome.evidence.sentence


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", [(32, 1), (32,), (8, 4)])
def test_outputs_and_targets_of_one_shape(form: Loss, shape: tuple[int, ...]) -> None:
    trial = run(form, lambda: numbers(*shape, std=0.1), lambda: numbers(*shape))
    assert not found_at(LossInputMismatch(), trial)


@pytest.mark.parametrize(
    ("outputs", "targets"),
    [((32, 3), (32, 1)), ((32, 5), (5,)), ((32, 5), ()), ((1, 1), (1,)), ((4, 32, 5), (32, 5))],
)
def test_what_is_spread_on_purpose(outputs: tuple[int, ...], targets: tuple[int, ...]) -> None:
    trial = run(squares, lambda: numbers(*outputs), lambda: numbers(*targets))
    assert not found_at(LossInputMismatch(), trial)


def test_targets_that_are_all_the_same_tell_nothing() -> None:
    trial = run(squares, lambda: numbers(32, 1), lambda: np.zeros(32, np.float32))
    assert not found_at(LossInputMismatch(), trial)


@pytest.mark.parametrize("name", ["Loss", "MyLoss"])
def test_the_size_of_all_differences(name: str) -> None:
    def pairs(o: Any, t: Any) -> Any:
        return np.abs(o.reshape(-1, 1) - t.reshape(1, -1)).mean()

    trial = run(pairs, lambda: numbers(32, 1), lambda: numbers(32, 1), name=name)
    assert found_at(LossInputMismatch(), trial)[0] == 100  # chance is excluded by two
    outcome = trial.outcomes(LossInputMismatch())[-1]
    assert isinstance(outcome, IssueFound)
    assert "the mean size of all 1024 differences" in outcome.evidence.sentence
    own = run(sizes, lambda: numbers(32, 1), lambda: numbers(32, 1), name=name)
    assert not found_at(LossInputMismatch(), own)


def test_differences_that_are_the_same_either_way() -> None:
    # All outputs above all targets: a mean distance is that of the means, of all pairs or not.
    trial = run(sizes, lambda: numbers(32, 1, mean=50), lambda: numbers(32, 1), name="MyLoss")
    assert not found_at(LossInputMismatch(), trial)


MEANS: list[Loss] = [lambda o, t: abs((o - t).mean()), lambda o, t: (o - t).mean() ** 2]


@pytest.mark.parametrize("form", MEANS)
@pytest.mark.parametrize("size", [16, 64, 1024])
@pytest.mark.parametrize("mean", [0.3, 5.7123, -40.21])
@pytest.mark.parametrize("apart", [0.1, 0.0])
def test_a_distance_of_means(form: Loss, size: int, mean: float, apart: float) -> None:
    trial = run(
        form,
        lambda: around(mean + apart, size, 0.5),
        lambda: around(mean + RANDOM.uniform(-0.02, 0.02), size, 0.2),
        saved=lambda targets: np.float64(np.float64(targets).mean()),
    )
    assert found_at(LossInputMismatch(), trial)
    outcome = next(o for o in trial.outcomes(LossInputMismatch()) if isinstance(o, IssueFound))
    assert outcome.evidence.measure == "means"
    assert "not the mean of their distances" in outcome.evidence.sentence
    assert "mean of distances, not the distance of means" in outcome.evidence.remedy


def test_a_mean_of_differences_that_have_a_sign() -> None:
    """It has no lower end: outputs fall for ever."""
    trial = run(
        lambda o, t: (o - t).mean(),
        lambda: around(-40.0, 64, 0.01),
        lambda: around(0.1234, 64, 0.2),
        saved=lambda targets: np.float64(np.float64(targets).mean()),
    )
    assert found_at(LossInputMismatch(), trial)


@pytest.mark.parametrize("form", [squares, sizes])
@pytest.mark.parametrize("mean", [0.3, 5.0])
def test_distances_from_one_number(form: Loss, mean: float) -> None:
    trial = run(form, lambda: numbers(64, 1, mean=mean), lambda: np.float32(0.31234))
    assert not found_at(LossInputMismatch(), trial)


@pytest.mark.parametrize("form", MEANS)
def test_outputs_that_are_to_have_a_mean(form: Loss) -> None:
    trial = run(form, lambda: numbers(64, 1), lambda: np.float64(0.05))
    assert not found_at(LossInputMismatch(), trial)


@pytest.mark.parametrize("form", MEANS)
def test_a_single_output_is_its_mean(form: Loss) -> None:
    trial = run(form, lambda: numbers(1, 1), lambda: np.float64(RANDOM.normal()))
    assert not found_at(LossInputMismatch(), trial)


@pytest.mark.parametrize("form", MEANS)
@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_numbers_that_are_not_finite_tell_nothing(form: Loss, number: float) -> None:
    trial = run(form, lambda: numbers(64, 1), lambda: np.float64(number))
    assert not found_at(LossInputMismatch(), trial)
    broken = run(form, lambda: numbers(64, 1) * np.float32(number), lambda: np.float64(0.1234567))
    assert not found_at(LossInputMismatch(), broken)


@pytest.mark.parametrize("form", [squares, sizes])
def test_numbers_of_classes_that_a_script_compares_by_itself(form: Loss) -> None:
    def classes() -> Any:
        return RANDOM.integers(0, 10, (256, 1)).astype(np.float32)

    trial = run(form, lambda: numbers(256, 1, mean=4.5), classes)
    assert found_at(LossInputMismatch(), trial)
    outcome = next(o for o in trial.outcomes(LossInputMismatch()) if isinstance(o, IssueFound))
    assert "numbers of 10 classes" in outcome.evidence.sentence
