from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rule_runtime.engine.outcome import IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.rules.check_input_images import CheckInputImages
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract
from tests.rule_runtime.outcomes import evidence_of, make_run

NAME = "hybridsequential0_input_0"


class TestCheckInputImagesContract(RuleContract):
    def make_rule(self) -> CheckInputImages:
        return CheckInputImages(threshold_samples=40)

    def make_tensors(self, step: int, worker: int) -> dict[str, Any]:
        return {NAME: np.random.default_rng(step + worker).normal(0, 1, (16, 3, 4, 4))}

    def make_sick(self, tensors: dict[str, Any]) -> dict[str, Any]:
        return {NAME: np.asarray(tensors[NAME]) + 0.5}


def outcomes(rule: CheckInputImages, *steps: Any, name: str = NAME) -> list[Outcome]:
    return make_run(*({name: images} for images in steps)).outcomes(rule)


def like_fashion_mnist() -> np.ndarray:
    """Return 600 grey images in [0, 1] with the mean and deviation of FashionMNIST's."""
    values = np.random.default_rng(0).choice([0.0, 0.5, 1.0], (600, 1, 8, 8), p=[0.6, 0.225, 0.175])
    return np.asarray((values - values.mean()) / values.std() * 0.353 + 0.286, np.float32)


def test_the_original_s_test_of_2019() -> None:
    """FashionMNIST with mean 0.286 fires, normalised by 0.286 and 0.353 it does not."""
    images = like_fashion_mnist()
    evidence = evidence_of(*outcomes(CheckInputImages(), images))
    assert (evidence.tensor, evidence.measure) == (NAME, "abs_mean_of_channel")
    assert evidence.value == pytest.approx(0.286, abs=1e-6)
    assert evidence.sentence == (
        f"{NAME}: channel 0 has a mean of 0.286 over 600 images, farther from 0 than 0.2"
    )
    assert isinstance(outcomes(CheckInputImages(), (images - 0.286) / 0.353)[0], Passed)


@pytest.mark.parametrize(("mean", "fires"), [(0.25, False), (-0.25, False), (-0.26, True)])
def test_the_mean_must_be_farther_away_than_the_threshold(mean: float, fires: bool) -> None:
    rule = CheckInputImages(threshold_mean=0.25, threshold_samples=4)
    (outcome,) = outcomes(rule, np.full((4, 2, 3, 3), mean))
    assert isinstance(outcome, IssueFound if fires else Passed)


def test_each_channel_is_judged_by_itself() -> None:
    images = np.zeros((4, 3, 2, 2)) + np.array([0.5, -0.75, 0.25]).reshape(3, 1, 1)
    rule = CheckInputImages(threshold_samples=4)
    evidence = evidence_of(*outcomes(rule, images))
    assert (
        evidence.value,
        "channel 1 has a mean of -0.75" in evidence.sentence,
    ) == (
        0.75,
        True,
    )
    last = CheckInputImages(threshold_samples=4, channel=3)
    assert "channel 1" in evidence_of(*outcomes(last, np.moveaxis(images, 1, -1))).sentence


def test_images_are_counted_over_steps_and_workers() -> None:
    high, low = np.full((10, 1, 2, 2), 0.5), np.full((10, 1, 2, 2), -0.5)
    found = outcomes(CheckInputImages(threshold_samples=20), high, low, high, high, high)
    kinds = [type(outcome) for outcome in found]
    assert kinds == [NotEvaluated, Passed, Passed, IssueFound, IssueFound]
    assert found[0] == NotEvaluated("needs 20 images, had 10", needs_more=True)
    trial = TrialBuilder(num_workers=2)
    for worker, images in (("worker_0", high), ("worker_1", high[:9])):
        trial.step(0, {NAME: images}, worker=worker)
    for samples, kind in ((19, IssueFound), (20, NotEvaluated)):
        (outcome,) = trial.outcomes(CheckInputImages(threshold_samples=samples))
        assert isinstance(outcome, kind)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 6), st.floats(-1, 1)), min_size=1, max_size=8))
def test_the_mean_is_that_of_all_images(batches: list[tuple[int, float]]) -> None:
    images = [np.full((size, 1, 1, 2), value) for size, value in batches]
    mean = float(np.concatenate(images).mean())
    total = sum(size for size, _ in batches)
    if abs(abs(mean) - 0.2) < 1e-9:
        return
    outcome = outcomes(CheckInputImages(threshold_samples=total), *images)[-1]
    assert isinstance(outcome, IssueFound if abs(mean) > 0.2 else Passed)


def test_bytes_have_means_as_well() -> None:
    images = np.full((2, 1, 2, 2), 200, np.uint8)
    assert evidence_of(*outcomes(CheckInputImages(threshold_samples=2), images)).value == 200


def test_elements_that_are_not_finite_are_left_out() -> None:
    images = np.zeros((4, 2, 2, 2))
    images[0, 0, 0] = np.nan, np.inf
    rule = CheckInputImages(threshold_samples=4)
    assert isinstance(outcomes(rule, images)[0], Passed)
    images[:, 1] = np.nan
    assert isinstance(outcomes(rule, images)[0], Passed)
    (outcome,) = outcomes(rule, np.full((4, 2, 2, 2), np.nan))
    assert outcome == NotEvaluated("no element of the images is finite: see the rule NonFinite")


def test_what_are_no_images_is_not_evaluated() -> None:
    rule = CheckInputImages(threshold_samples=1)
    for images in (
        np.ones((600, 8)),
        np.ones((1, 300, 2, 2)),  # more channels than 256
        np.ones((0, 3, 2, 2)),
        np.full((1, 1, 1), "a"),
    ):
        (outcome,) = outcomes(rule, images)
        assert isinstance(outcome, NotEvaluated)
        assert f"{NAME}: shape {list(images.shape)}" in outcome.reason
    (outcome,) = outcomes(CheckInputImages(channel=7), np.zeros((1, 3, 2, 2)))
    assert isinstance(outcome, NotEvaluated)
    (_, outcome) = outcomes(rule, np.zeros((1, 3, 2, 2)), np.zeros((1, 1, 2, 2)))
    assert isinstance(outcome, NotEvaluated)
    assert "their channels changed" in outcome.reason


def test_other_names_and_the_collection() -> None:
    images = np.full((600, 3, 2, 2), 0.45)
    rule = CheckInputImages(regex=("^conv1_input_0$",))
    assert isinstance(outcomes(rule, images, name="conv1_input_0")[0], IssueFound)
    assert isinstance(outcomes(CheckInputImages(), images, name="conv1_input_0")[0], NotEvaluated)
    trial = make_run({"stem_input_0": images}, collections={"input_image": ("^stem_input",)})
    assert isinstance(trial.outcomes(CheckInputImages())[0], IssueFound)
    assert rule.requires()[0].to_json() == {
        "CollectionName": "input_image",
        "CollectionParameters": {
            "save_interval": "500",
            "save_raw_tensor": "True",
            "include_regex": "^conv1_input_0$",
        },
    }


def test_no_more_than_4_inputs_are_followed() -> None:
    trial = TrialBuilder()
    images = {f"{number}_{NAME}": np.zeros((2, 1, 2, 2)) for number in range(4)}
    trial.step(0, images)
    trial.step(1, {**images, f"9_{NAME}": np.ones((2, 1, 2, 2))})
    trial.step(2, {f"9_{NAME}": np.ones((2, 1, 2, 2))})
    found = trial.outcomes(CheckInputImages(threshold_samples=2))
    assert [type(outcome) for outcome in found] == [Passed, Passed, NotEvaluated]
