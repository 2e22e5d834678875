"""Wrong losses are recognised by what they give; right ones are not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from rule_runtime.detectors.loss_formulas import (
    WRONG_LOSSES,
    Formula,
    recognise,
)

_Loss = Callable[[Any, Any], Any]
_Batch = Callable[[np.random.Generator], Any]
NUM_STEPS = 4


def logits(*shape: int) -> _Batch:
    return lambda rng: rng.normal(0, 2, shape).astype(np.float32)


def bits(*shape: int) -> _Batch:
    return lambda rng: rng.integers(0, 2, shape).astype(np.float32)


def amounts(*shape: int, mean: float = 0.0) -> _Batch:
    return lambda rng: rng.normal(mean, 1, shape).astype(np.float32)


def classes(*shape: int) -> _Batch:
    return lambda rng: rng.integers(0, 5, shape)


def repeated_classes(rng: np.random.Generator) -> Any:
    return np.repeat(rng.integers(0, 5, (40, 1)), 5, axis=1).astype(np.float32)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def softmax(x: Any, axis: int = 1) -> Any:
    return np.exp(x) / np.exp(x).sum(axis=axis, keepdims=True)


def one_hot(rng: np.random.Generator) -> Any:
    return np.eye(5, dtype=np.float32)[rng.integers(0, 5, 40)]


def padded(rng: np.random.Generator) -> Any:
    return one_hot(rng) * (np.arange(40) < 30)[:, None]


def shares(rng: np.random.Generator) -> Any:
    return softmax(rng.normal(0, 1, (40, 5)))


def binary(p: Any, t: Any) -> Any:
    return -(t * np.log(p) + (1 - t) * np.log(1 - p)).mean()


def categorical(o: Any, t: Any, axis: int = 1) -> Any:
    logs = np.log(softmax(o, axis))
    return -np.take_along_axis(logs, np.expand_dims(t, 1), 1).mean()


def log_shares(*shape: int, axis: int) -> _Batch:
    return lambda rng: np.log(softmax(rng.normal(0, 2, shape), axis)).astype(np.float32)


def likelihood(o: Any, t: Any) -> Any:
    return -np.take_along_axis(o, t[:, None], 1).mean()


def soft(o: Any, t: Any, axis: int = 1) -> Any:
    return -(t * np.log(softmax(o, axis))).sum(axis=axis).mean()


def dice(p: Any, t: Any) -> Any:
    return 2 * (p * t).sum() / (p.sum() + t.sum())


def steps(outputs: _Batch, targets: _Batch, loss: _Loss) -> Iterator[tuple[Formula, float] | None]:
    rng, state = np.random.default_rng(0), {}
    for _ in range(NUM_STEPS):
        o, t = outputs(rng), targets(rng)
        value = float(np.float32(loss(o.astype(np.float64), t)))
        yield recognise(WRONG_LOSSES, state, (o, t), value)


WRONG: list[tuple[str, _Batch, _Batch, _Loss]] = [
    ("elements", logits(40, 1), amounts(40), lambda o, t: ((o - t) ** 2).mean()),
    ("elements", logits(40), amounts(40, 1), lambda o, t: abs(o - t).mean()),
    ("means", logits(40, 1), amounts(40, 1), lambda o, t: (o - t).mean() ** 2),
    ("sign", logits(40, 3), amounts(40, 3), lambda o, t: -((o - t) ** 2).mean()),
    ("sign", logits(40), amounts(40), lambda o, t: -abs(o - t).sum()),
    ("classes", logits(40, 5), classes(40), lambda o, t: ((o - t[:, None]) ** 2).mean()),
    ("classes", logits(40, 5), classes(40, 1), lambda o, t: abs(o - t).mean()),
    ("classes", logits(40, 5), repeated_classes, lambda o, t: ((o - t) ** 2).mean()),
    ("rows", log_shares(40, 5, axis=0), classes(40), likelihood),
]


@pytest.mark.parametrize(("name", "outputs", "targets", "loss"), WRONG)
def test_a_wrong_loss_is_recognised_at_the_second_step(
    name: str, outputs: _Batch, targets: _Batch, loss: _Loss
) -> None:
    first, *later = steps(outputs, targets, loss)
    assert first is None
    assert [match and match[0].name for match in later] == [name] * (NUM_STEPS - 1)
    assert all(match and match[0].remedy and "{" not in match[0].message for match in later)


RIGHT: list[tuple[_Batch, _Batch, _Loss]] = [
    (logits(40, 1), amounts(40, 1), lambda o, t: ((o - t) ** 2).mean()),
    (logits(40, 3), amounts(40, 3), lambda o, t: abs(o - t).mean()),
    (logits(40, 3), amounts(40, 3), lambda o, t: np.sqrt(((o - t) ** 2).mean())),
    (logits(40, 1), amounts(40, 1, mean=99.0), lambda o, t: abs(o - t).mean()),
    (logits(40, 1), amounts(40, 1), lambda o, t: (o - t).mean()),  # a critic
    (logits(40, 1), amounts(40, 1), lambda o, t: np.maximum(0.1 * (t - o), 0.9 * (o - t)).mean()),
    (logits(40, 1), lambda _: np.float64(0.05), lambda o, t: (o.mean() - t) ** 2),  # a wish
    (logits(40, 3), bits(40, 3), lambda o, t: binary(sigmoid(o), t)),
    (logits(40, 3), bits(40, 3), lambda o, t: binary(sigmoid(o), t) * 120),
    (lambda rng: rng.uniform(size=(40, 3)), bits(40, 3), binary),
    (logits(40, 3), bits(40, 3), lambda o, t: 1 - dice(sigmoid(o), t)),
    (logits(40, 1), bits(40, 1), lambda o, t: np.maximum(1 - (2 * t - 1) * o, 0).mean()),
    (logits(40, 1), bits(40, 1), lambda o, t: (5 * t * np.logaddexp(0, -o)).mean() + 0.1),
    (logits(40, 5), classes(40), categorical),
    (log_shares(40, 5, axis=1), classes(40), likelihood),
    (log_shares(5, 5, axis=0), lambda _: np.arange(5), likelihood),  # similarities of pairs
    (logits(8, 5, 6), classes(8, 6), categorical),
    (logits(40, 5), one_hot, soft),
    (logits(40, 5), shares, soft),
    (shares, classes(40), lambda o, t: -np.log(o[np.arange(40), t]).mean()),
    (shares, one_hot, lambda o, t: ((o - t) ** 2).mean()),
    (shares, padded, lambda o, t: -(t * np.log(o)).mean()),
]


@pytest.mark.parametrize(("outputs", "targets", "loss"), RIGHT)
def test_a_right_loss_is_no_wrong_one(outputs: _Batch, targets: _Batch, loss: _Loss) -> None:
    assert not any(steps(outputs, targets, loss))


def test_the_size_of_a_mean_difference_needs_both_signs() -> None:
    def run(*signs: int) -> list[str | None]:
        rng, state, found = np.random.default_rng(0), {}, []
        for sign in signs:
            t = rng.normal(size=(40, 1))
            o = t + rng.normal(0.5 * sign, 1, (40, 1))
            match = recognise(WRONG_LOSSES, state, (o, t), abs(float((o - t).mean())))
            found.append(match and match[0].name)
        return found

    assert run(1, 1, 1) == [None, None, None]  # a critic gives the same
    assert run(1, 1, -1) == [None, None, "means"]


def test_a_formula_must_match_at_the_first_step() -> None:
    """A hinge loss is 0 once all rows are classified, as a cross entropy of one score always is."""
    rng, state = np.random.default_rng(0), {}
    pairs = [(rng.normal(size=(40, 1)), bits(40, 1)(rng)) for _ in range(NUM_STEPS)]
    losses = (0.9, 0.0, 0.0, 0.0)
    assert not any(
        recognise(WRONG_LOSSES, state, pair, loss) for pair, loss in zip(pairs, losses, strict=True)
    )


@pytest.mark.parametrize(
    ("outputs", "targets"),
    [
        (np.zeros((40, 1)), np.ones((40, 1))),  # constant
        (np.full((40, 1), np.nan), np.ones((40, 1))),
        (np.zeros((0, 3)), np.zeros((0, 3))),
        (np.arange(12.0), np.array(list("abcdefghijkl"))),
        (np.float64(1.0), np.float64(2.0)),
        (np.arange(12.0), np.arange(7.0)),
    ],
)
def test_what_cannot_be_computed_is_ignored(outputs: Any, targets: Any) -> None:
    state: dict[str, Any] = {}
    for _ in range(3):
        assert (
            recognise(WRONG_LOSSES, state, (np.asarray(outputs), np.asarray(targets)), 0.0) is None
        )
