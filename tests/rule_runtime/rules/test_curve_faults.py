"""Curves with one change each: when LossDiverging, LossSpike, OscillatingLoss and
GradientNormExplosion find a fault.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.outcome import IssueFound, NotEvaluated
from rule_runtime.engine.rule import Rule
from rule_runtime.rules.curve_faults import (
    GradientNormExplosion,
    LossDiverging,
    LossSpike,
    OscillatingLoss,
)
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract, SavedStep
from tests.rule_runtime.outcomes import make_run, reason_of
from tests.rule_runtime.rules.runs import LOSS, found_at, run_of_losses, with_losses, with_maxima
from tests.tables import table

FALLING = [2.0 * 0.9**at for at in range(15)]
QUIET = [2.0, *np.linspace(1.1, 0.9, 21)]
CALM = [2.0, 2.01] * 5
LEVEL = [2.0] * 5 + [1.0, 1.001] * 15
NOISY = [2.0] * 5 + [0.5, 1.5] * 15
RANDOM = np.random.default_rng(0)
AGAIN = [2.2 * 0.93**at * RANDOM.lognormal(0, 0.08) for at in range(40)]
SMALL = 0.01 * np.random.default_rng(0).lognormal(0, 1.5, 200)
SCATTER = np.random.default_rng(1).uniform(0.6, 1.4, 60)
ONES = [1.0] * 10


class _OfLosses(RuleContract):
    def make_sick_steps(self, worker: int) -> Iterable[SavedStep]:
        return with_losses(self.loss_at, worker)

    @staticmethod
    def loss_at(step: int) -> float:
        raise NotImplementedError


class TestLossDivergingContract(_OfLosses):
    def make_rule(self) -> Rule:
        return LossDiverging()

    @staticmethod
    def loss_at(step: int) -> float:
        return 9.0 if step else 2.3


class TestLossSpikeContract(_OfLosses):
    def make_rule(self) -> Rule:
        return LossSpike()

    @staticmethod
    def loss_at(step: int) -> float:
        return 9.0 if 100 <= step < 120 else 2.3 * 0.98**step + 0.01 * (step % 3)


class TestOscillatingLossContract(_OfLosses):
    def make_rule(self) -> Rule:
        return OscillatingLoss()

    @staticmethod
    def loss_at(step: int) -> float:
        return 4.0 if step > 50 and step % 10 else 2.0 + step % 2 / 100


class TestGradientNormExplosionContract(RuleContract):
    def make_rule(self) -> Rule:
        return GradientNormExplosion()

    def make_sick_steps(self, worker: int) -> Iterable[SavedStep]:
        for saved in self.make_steps(worker):
            factor = 1e4 if saved.step >= 100 else 1
            scaled = {
                name: np.asarray(value) * factor
                for name, value in saved.tensors.items()
                if name.startswith("gradient")
            }
            yield saved._replace(tensors={**saved.tensors, **scaled})


def run_of_norms(norms: Iterable[float], start: int = 0, interval: int = 5) -> TrialBuilder:
    trial = TrialBuilder()
    for step, norm in zip(itertools.count(start, interval), norms):
        tensors = {
            "gradient/Net_a.weight": [0.6 * norm, 0.0],
            "gradient/Net_b.weight": [0.0, 0.8 * norm],
        }
        trial.step(step, tensors, mode_step=step)
    return trial


@pytest.mark.parametrize("start", [0, 5000])
def test_two_large_batches_at_the_first_steps_are_no_explosion(start: int) -> None:
    norms = [1.0] * 5 + [30.0] * 2 + [1.0] * 20
    assert not found_at(NORM, run_of_norms(norms, start, interval=1))


def run_of(rule: Rule, numbers: Sequence[float]) -> TrialBuilder:
    is_of_norms = isinstance(rule, GradientNormExplosion)
    return run_of_norms(numbers) if is_of_norms else run_of_losses(numbers)


DIVERGING, SPIKE, SWINGS, NORM = (
    LossDiverging(),
    LossSpike(),
    OscillatingLoss(),
    GradientNormExplosion(),
)


@table(
    "rule, numbers, first",
    {
        # eight high losses after a fall, at three steps in a row
        "a loss that rises again": (DIVERGING, FALLING + [1.8] * 12, 5 * 24),
        "at once": (LossDiverging(patience=1), FALLING + [1.8] * 12, 5 * 22),
        "too patient": (LossDiverging(patience=40), FALLING + [1.8] * 12, None),
        "above 50 %": (DIVERGING, [4.0] * 10 + ONES + [3.04] * 12, 5 * 29),
        "exactly 50 %": (DIVERGING, [4.0] * 10 + ONES + [3.0] * 12, None),
        "a second training": (DIVERGING, [*FALLING, *AGAIN], None),
        "a stuck one": (DIVERGING, [*FALLING, *np.maximum(AGAIN, 1.8)], 5 * 26),
        "scatter of a small loss": (DIVERGING, [2.0, 1.0, 0.5, *SMALL], None),
        "single jumps": (DIVERGING, [*FALLING, 50, 0.4, 0.4, 50, 0.4, 0.4], None),
        "negative losses": (DIVERGING, [-9.0] * 8 + [-3.0] * 40, None),
        "a fall without end": (DIVERGING, [4.0 - 100.0**at for at in range(20)], 5 * 11),
        "a likelihood that grows": (DIVERGING, [1e-3, *-np.geomspace(1, 1e6, 60)], None),
        "no scale": (DIVERGING, [0.0] * 10 + ONES, None),
        "three high losses": (SPIKE, [*QUIET, 5.0, 5.2, 5.5, 1.0, 1.0], 5 * 24),
        "two bad batches": (SPIKE, [*QUIET, 5.0, 1.0, 1.0, 5.0, 1.0], None),
        "one high loss": (LossSpike(patience=1), [*QUIET, 5.0, 1.0], 5 * 22),
        "a spike above 20 %": (SPIKE, [*LEVEL, *[1.4205] * 3], 5 * 37),
        "a spike below 20 %": (SPIKE, [*LEVEL, *[1.3805] * 3], None),
        "noise": (SPIKE, [*NOISY, 4.0, 4.0, 4.0], None),
        "more than noise": (SPIKE, [*NOISY, 40.0, 40.0, 40.0], 5 * 37),
        "a new level": (SPIKE, [*QUIET, *[5.0] * 40], 5 * 24),
        "a loss that begins late": (SPIKE, [0.0] * 26 + [1.0, 1.1, 1.2], None),
        "one that returns": (SPIKE, [2.0] + [0.0] * 25 + [1.0, 1.1, 1.2], 5 * 28),
        "a quarter window": (SPIKE, [2.0, 1.9, 1.8, 1.7, 1.6, 9.0, 9.0, 9.0], 5 * 7),
        "a loss that swings": (SWINGS, CALM + [2.0, 4.0] * 20, 130),
        "a swing above 30 %": (SWINGS, CALM + [2.0, 2.58] * 15, 130),
        "a swing below 30 %": (SWINGS, CALM + [2.0, 2.56] * 15, None),
        "a fall": (SWINGS, 4 * np.exp(-np.arange(60) / 20) * SCATTER, None),
        "a low loss": (SWINGS, [2.0] * 5 + [0.05, 1.2] * 20, None),
        "swings without a scale": (SWINGS, [0.0, 4.0] * 20, None),
        "norms that grow": (NORM, [*ONES, 21.0, 21.0, 1.0], 55),
        "exactly 20 times": (NORM, [*ONES, 20.0, 20.0], None),
        "single large norms": (NORM, [*ONES, 500.0, 1.0, 500.0, 1.0], None),
        "one large norm": (GradientNormExplosion(patience=1), [*ONES, 21.0], 50),
        "small ones scatter": (NORM, [1.0] * 6 + [1e-3] * 30 + [0.5] * 3, None),
        "norms that are large from the start": (NORM, [900.0] * 30, None),
    },
)
def test_when_a_curve_has_a_fault(rule: Rule, numbers: Sequence[float], first: int | None) -> None:
    found = found_at(rule, run_of(rule, numbers))
    assert (found[0] if found else None) == first


@pytest.mark.parametrize(
    ("rule", "numbers", "tensor", "measured", "text"),
    [
        (
            DIVERGING,
            FALLING + [1.8] * 12,
            LOSS,
            (100 * (1.8 - np.median(FALLING[5:])) / 2.0, 50.0),
            "to 1.8, by",
        ),
        (DIVERGING, [4.0] * 9 + [-5e6] * 3, LOSS, (-5e6, -4e6), "has no lower bound"),
        (SPIKE, [*QUIET, 5.0, 5.2, 5.5], LOSS, (5.5, 1.58804), "the median before is 0.995"),
        # |difference| is 2 throughout: 1.4826 x 2 / sqrt(2), in percent of 2.005 at the beginning
        (
            SWINGS,
            CALM + [2.0, 4.0] * 10,
            LOSS,
            (100 * 1.4826 * 2 / 2**0.5 / 2.005, 30.0),
            "does not fall",
        ),
        (NORM, [*ONES, 21.0, 21.0], "gradient/Net_b.weight", (21.0, 20.0), "20 times what it was"),
    ],
)
def test_the_evidence(
    rule: Rule, numbers: list[float], tensor: str, measured: tuple[float, float], text: str
) -> None:
    outcomes = run_of(rule, numbers).outcomes(rule)
    evidence = next(each.evidence for each in outcomes if isinstance(each, IssueFound))
    assert evidence.tensor == tensor
    assert (evidence.value, evidence.threshold) == pytest.approx(measured)
    assert text in evidence.sentence


@pytest.mark.parametrize(
    ("rule", "num", "reason"),
    [
        (DIVERGING, 1, "needs 12 losses, had 1"),
        (SPIKE, 7, "needs 8 losses, had 7"),
        (SWINGS, 10, "needs 27 losses, had 10"),
    ],
)
def test_curves_that_are_too_short(rule: Rule, num: int, reason: str) -> None:
    assert run_of_losses([1.0] * num).outcomes(rule)[-1] == NotEvaluated(reason, needs_more=True)


@pytest.mark.parametrize(
    ("loss", "scores", "targets", "fires"),
    [
        ("CrossEntropyLoss", (32, 257), np.zeros(32, int), False),  # the right one comes first
        ("CrossEntropyLoss", (32, 257), np.arange(32), True),
        ("CrossEntropyLoss", (8, 257), np.zeros(8, int), True),
        ("CrossEntropyLoss", (32, 2), np.zeros(32, int), False),  # an adversary
        ("BCEWithLogitsLoss", (32, 1), np.zeros((32, 1)), False),
    ],
)
def test_a_contrastive_loss_rises_while_its_queue_fills(
    loss: str, scores: tuple[int, ...], targets: object, *, fires: bool
) -> None:
    given = np.random.default_rng(0).normal(size=scores)
    saved = {f"{loss}_input_0": given, f"{loss}_input_1": targets}
    trial = run_of_losses([1.3] + [4.1] * 20, name=f"{loss}_output_0", beside=saved)
    assert bool(found_at(DIVERGING, trial)) is fires


@pytest.mark.parametrize(("rows", "fires"), [(1, False), (32, True)])
def test_losses_of_single_rows_scatter(rows: int, *, fires: bool) -> None:
    saved: dict[str, Any] = {"MSELoss_input_1": np.arange(float(rows))}
    saved["MSELoss_input_0"] = np.zeros(rows)
    losses = [2.0 + (1.5 * (-1) ** step if step > 10 else 0.0) for step in range(60)]
    trial = run_of_losses(losses, name="MSELoss_output_0", beside=saved)
    trial.collections(losses=("Loss_output_0$",))
    assert bool(found_at(SWINGS, trial)) is fires


WOBBLE = (
    # at steps 0 to 10, at every second one to 50, and at every tenth
    *(2.89, 2.87, 2.82, 2.78, 2.74, 2.71, 2.78, 2.76, 2.75, 2.64, 2.52),
    *(2.49, 2.64, 2.45, 2.31, 2.48, 2.71, 2.55, 2.71, 2.83, 3.19, 3.58, 3.30, 4.15, 4.02, 4.87),
    *(4.62, 5.05, 4.98),
)


@table(
    "losses, first",
    {
        "it falls again": ((*WOBBLE, 4.66, 4.15, 3.08, 2.48, 2.01, 1.60), None),
        "it rises on": ((*WOBBLE, 5.21, 5.66, 5.90, 6.48, 6.01, 6.60), 60),
        "it stays": ((*WOBBLE, *[4.9, 5.1] * 3), 60),
    },
)
def test_a_rise_among_the_dense_first_steps_must_last(
    losses: Sequence[float], first: int | None
) -> None:
    trial, steps = TrialBuilder(), [*range(10), *range(10, 50, 2), *range(50, 200, 10)]
    for step, loss in zip(steps, losses, strict=False):
        trial.step(step, {LOSS: np.float64(loss)}, mode_step=step)
    found = found_at(DIVERGING, trial)
    assert (found[0] if found else None) == first


def several(**losses: Iterable[float]) -> TrialBuilder:
    """Return a run of some losses, by name."""
    trial = TrialBuilder()
    for at, numbers in enumerate(zip(*losses.values(), strict=True)):
        named = zip(losses, numbers, strict=True)
        trial.step(at, {f"{name}_loss_output_0": np.float64(number) for name, number in named})
    return trial


GROWN = 1 + np.arange(60.0)
JUMP = np.where(np.arange(20) > 0, 3.0, 1.0)


@pytest.mark.parametrize(
    ("rule", "losses", "tensor"),
    [
        (DIVERGING, {"a": JUMP, "b": 2 * JUMP - 1}, "b_loss_output_0"),
        (DIVERGING, {f"{at:02d}": GROWN for at in range(40)}, "00_loss_output_0"),
        (DIVERGING, {"generator": GROWN, "discriminator": 0.5**GROWN}, ""),
        (DIVERGING, {"a": GROWN, "b": 3 * GROWN, "unused": 0 * GROWN}, "b_loss_output_0"),
        (SWINGS, {"a": np.array(CALM + [2.0, 4.0] * 20)}, "a_loss_output_0"),
        (SWINGS, {name: np.array(CALM + [2.0, 4.0] * 20) for name in "ab"}, ""),
    ],
    ids=["the worst", "too many", "an adversary", "one without scale", "one swings", "two swing"],
)
def test_several_losses(rule: Rule, losses: dict[str, np.ndarray], tensor: str) -> None:
    found = [each for each in several(**losses).outcomes(rule) if isinstance(each, IssueFound)]
    assert (found[-1].evidence.tensor if found else "") == tensor


@pytest.mark.parametrize(("num_large", "steps"), [(5, []), (6, [45]), (8, [45])])
def test_at_each_step_of_a_dense_start_the_norm_must_be_large_for_5_steps(
    num_large: int, steps: list[int]
) -> None:
    trial = TrialBuilder()
    for step in range(60):
        trial.step(
            2 * step, {"gradient/a": [90.0 if 40 <= step < 40 + num_large else 1.0]}, mode_step=step
        )
        trial.step(2 * step + 1, {"loss": [1.0]}, mode=ModeKeys.EVAL, mode_step=step)
    assert found_at(NORM, trial) == [2 * step for step in steps]


def test_each_worker_has_its_own_norm() -> None:
    trial = TrialBuilder(num_workers=2)
    for step in range(12):
        for worker in (0, 1):
            tensors = {"gradient/a": [100.0 if worker and step > 8 else 1.0]}
            trial.step(step, tensors, mode_step=5 * step, worker=f"worker_{worker}")
    found = [each for each in trial.outcomes(NORM) if isinstance(each, IssueFound)]
    assert {each.evidence.worker for each in found} == {"worker_1"}


@pytest.mark.parametrize(
    ("tensors", "mode", "rule", "reason"),
    [
        ({LOSS: 1.0}, ModeKeys.EVAL, DIVERGING, "steps of mode EVAL are not training steps"),
        ({LOSS: np.nan}, ModeKeys.TRAIN, DIVERGING, "no saved loss is finite"),
        (
            {"validation-rmse": 1.0},
            ModeKeys.GLOBAL,
            DIVERGING,
            "validation-rmse is no training loss, or need not fall",
        ),
        ({"gradient/a": [1.0]}, ModeKeys.EVAL, NORM, "steps of mode EVAL are not training steps"),
        ({"gradient/a": [np.inf, np.nan]}, ModeKeys.TRAIN, NORM, "no saved gradient is finite"),
        (
            {"gradient/a": [1e300], "gradient/b": [1e300]},
            ModeKeys.TRAIN,
            NORM,
            "the norm of all gradients is not finite",
        ),
        ({"a_weight": [1.0]}, ModeKeys.TRAIN, NORM, "no tensor of the collection gradients was"),
    ],
)
def test_why_a_step_is_not_evaluated(
    tensors: dict[str, Any], mode: ModeKeys, rule: Rule, reason: str
) -> None:
    trial = make_run(
        {name: np.array(value) for name, value in tensors.items()},
        collections={"losses": ("rmse", "[Ll]oss")},
        mode=mode,
    )
    assert reason_of(*trial.outcomes(rule)).startswith(reason)


def test_losses_without_a_mode_are_of_training() -> None:
    rising = [1.0 + at for at in range(30)]
    assert found_at(DIVERGING, run_of_losses(rising, mode=ModeKeys.GLOBAL))


def test_maxima_alone_have_no_norm() -> None:
    reason = reason_of(*with_maxima("gradient/a", "gradient/b").outcomes(NORM))
    assert "saved gradients have no l2: save their" in reason
