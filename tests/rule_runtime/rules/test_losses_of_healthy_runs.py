"""Healthy first: series like those of real trainings that learn, in which rules found faults."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from rule_runtime.engine.rule import Rule
from rule_runtime.rules.curve_faults import LossDiverging, LossSpike, OscillatingLoss
from rule_runtime.rules.plateaued_loss import PlateauedLoss
from rule_runtime.testing import TrialBuilder
from tests.rule_runtime.rules.runs import LOSS, found_at

RULES = (LossDiverging(), LossSpike(), OscillatingLoss(), PlateauedLoss())
SEEDS = range(3)
N = 100
AT = np.arange(N)
Losses = Mapping[str, np.ndarray]


def healthy(rng: np.random.Generator) -> Mapping[str, Losses]:
    noise = rng.normal(0, 1, N)
    policy = -0.3 * rng.random(N) + 0.001 * (AT == 0)
    kl = np.where(AT < 4, 0.08 + 0.3 * AT, 1.56 + 0.1 * noise)
    return {
        "heavy tails": {LOSS: 2.5 * rng.lognormal(0, 1.5, N)},
        "heavy tails, lucky first": {LOSS: np.where(AT == 0, 0.2, rng.lognormal(0, 1.5, N))},
        "batch of one": {LOSS: 2.3 * np.exp(-AT / 40) * rng.lognormal(0, 0.8, N)},
        "converged": {LOSS: 0.01 * rng.lognormal(0, 1, N)},
        "1000 classes": {LOSS: 7.0 - 2.3 * AT / N + 0.07 * noise},
        "warm-up": {LOSS: 2.3 - 2.2 * np.minimum(AT / 40, 1) ** 2 + 0.015 * noise},
        "variational": {"recon_loss": 23 + 22 * np.exp(-AT / 4) + 0.4 * noise, "kl_loss": kl},
        "adversarial": {"loss_D": 1.4 * np.exp(-AT / 30), "loss_G": 0.7 + 3 * AT / N},
        "policy gradient": {"policy_loss": policy},
        "log-likelihood": {LOSS: -1.0 - 0.1 * AT + 0.1 * noise},
        "boosting": {
            "train-logloss": 0.7 * np.exp(-AT / 20),
            "validation-logloss": 0.5 + 0.002 * AT,
            "train-aucpr": 0.36 + 0.5 * AT / N,
            "validation-ndcg@10": np.full(N, 0.97),
        },
    }


def faulty(kind: str, rng: np.random.Generator) -> Losses:
    noise = rng.normal(0, 1, N)
    series = {
        "thrown off": np.where(AT == 0, 3.9, 6.5 + 20 * np.exp(-AT / 5) + 0.4 * noise),
        "climbs back": np.where(AT < 40, 2.3 * np.exp(-AT / 10), 2.3) + 0.03 * noise,
        "grows": 2.3 * 1.05**AT,
        "spike": np.where((AT > 60) & (AT < 66), 8.0, 2.3 * np.exp(-AT / 30) + 0.03 * noise),
        "swings": 2.3 + np.where(AT < 20, 0.03, 1.0) * noise,
        "flat": 2.3 + 0.03 * noise,
    }
    return {LOSS: np.abs(series[kind])}


def trial_of(losses: Losses, *, beside: Mapping[int, float] | None = None) -> TrialBuilder:
    trial = TrialBuilder()
    trial.collections(losses=tuple(f"^{name}$" for name in losses))
    for at in range(N):
        tensors = {name: np.float64(series[at]) for name, series in losses.items()}
        if beside:
            tensors["Net_fc.weight"] = np.linspace(-1, 1, 20) * beside[at]
        trial.step(at * 10, tensors, mode_step=at * 10)
    return trial


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", healthy(np.random.default_rng(0)))
def test_a_run_that_learns_has_no_finding(kind: str, seed: int) -> None:
    trial = trial_of(healthy(np.random.default_rng(seed))[kind])
    assert not {type(rule).__name__ for rule in RULES if found_at(rule, trial)}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        ("thrown off", LossDiverging()),
        ("climbs back", LossDiverging()),
        ("grows", LossDiverging()),
        ("spike", LossSpike()),
        ("swings", OscillatingLoss()),
        ("flat", PlateauedLoss()),
    ],
)
def test_a_fault_is_found(kind: str, rule: Rule, seed: int) -> None:
    assert found_at(rule, trial_of(faulty(kind, np.random.default_rng(seed))))


def test_a_plateau_is_waited_for_while_weights_move_more_and_more_or_rarely() -> None:
    flat = faulty("flat", np.random.default_rng(0))
    constant = {at: 1 + 1e-4 * at for at in range(N)}
    growing = {at: 1.02**at**1.5 for at in range(N)}
    rarely = {at: 1 + 1e-3 * (at // 7) for at in range(N)}
    assert found_at(PlateauedLoss(), trial_of(flat, beside=constant))
    assert not found_at(PlateauedLoss(), trial_of(flat, beside=rarely))
    assert len(found_at(PlateauedLoss(), trial_of(flat, beside=growing))) < len(
        found_at(PlateauedLoss(), trial_of(flat, beside=constant))
    )
