"""Labels that were written into the inputs, as a bright pixel at the place of the class."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rule_runtime.engine.outcome import IssueFound
from rule_runtime.rules.suspiciously_good import SuspiciouslyGood
from rule_runtime.testing import TrialBuilder
from tests.rule_runtime.rules.runs import found_at

ROWS = 64
STEPS = range(0, 800, 100)


def run(written: Any, *, num_classes: int = 5, pixels: Any = None) -> TrialBuilder:
    """Return steps with images [B, 1, 6, 6] into which something is written by their classes."""
    random, trial = np.random.default_rng(0), TrialBuilder()
    for step in STEPS:
        classes = random.integers(0, num_classes, ROWS)
        images = random.integers(0, 17, (ROWS, 36)) / 16 if pixels is None else pixels(random)
        written(images, classes, random)
        tensors = {
            "Net_input_0": images.reshape(ROWS, 1, 6, 6).astype(np.float32),
            "Net_output_0": random.normal(size=(ROWS, num_classes)),
            "CrossEntropyLoss_input_0": random.normal(size=(ROWS, num_classes)),
            "CrossEntropyLoss_input_1": classes,
            "CrossEntropyLoss_output_0": np.float64(1),
        }
        trial.step(step, tensors, mode_step=step)
    return trial


def bright(images: Any, classes: Any, _: Any) -> None:
    images[np.arange(ROWS), classes % 36] = 3.0


def test_a_bright_pixel_at_the_place_of_the_class() -> None:
    trial = run(bright)
    assert found_at(SuspiciouslyGood(), trial)[0] == 300
    outcome = trial.outcomes(SuspiciouslyGood())[-1]
    assert isinstance(outcome, IssueFound)
    assert "columns 0, 1, 2, 3 ... predict the target" in outcome.evidence.sentence


def test_an_ordinary_brightness_is_no_mark() -> None:
    def written(images: Any, classes: Any, _: Any) -> None:
        images[np.arange(ROWS), classes] = 1.0

    assert not found_at(SuspiciouslyGood(), run(written))


def test_a_few_rows_without_their_mark_are_enough_to_say_nothing() -> None:
    left_out = iter([False] * 3 + [True] * 5)

    def written(images: Any, classes: Any, random: Any) -> None:
        bright(images, classes, random)
        if next(left_out):
            images[:8] = 0.5

    assert not found_at(SuspiciouslyGood(), run(written))


@pytest.mark.parametrize("same", [True, False])
def test_the_same_rows_again_show_nothing_new(same: bool) -> None:
    images = np.random.default_rng(1).normal(size=(ROWS, 36))

    def pixels(random: Any) -> Any:
        return images.copy() if same else random.normal(size=(ROWS, 36))

    def written(images: Any, classes: Any, random: Any) -> None:
        classes[:] = np.arange(ROWS) % 5
        bright(images, classes, random)

    assert bool(found_at(SuspiciouslyGood(), run(written, pixels=pixels))) is not same


def test_pictures_in_black_and_white_have_no_marks() -> None:
    def pixels(random: Any) -> Any:
        return random.integers(0, 2, (ROWS, 36)) * 1.0

    assert not found_at(SuspiciouslyGood(), run(lambda *_: None, pixels=pixels))
