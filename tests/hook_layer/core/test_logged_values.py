"""Logged scalars in the steps of a hook."""

from __future__ import annotations

import math

import pytest

from hook_layer.configuration.collections import Collection
from hook_layer.configuration.save_config import SaveConfig
from hook_layer.format.modes import ModeKeys
from hook_layer.testing.written_trial import WrittenTrial
from rule_runtime import create_trial
from tests.hook_layer.fixed_workers import FixedWorkers
from tests.hook_layer.tiny_hook import W, make_hook


def stored(trial: WrittenTrial, name: str) -> dict[int, float]:
    tensor = create_trial(trial.uri).tensor(name)
    return {step: float(tensor.value(step).item()) for step in tensor.steps()}


def test_the_newest_value_since_the_last_saved_step_is_saved_with_the_scripts_step(
    trial: WrittenTrial,
) -> None:
    with make_hook(trial, save_config=SaveConfig(save_interval=3)) as hook:
        for step in range(8):
            hook.train(W)
            hook.logged.add({"rate": 10.0 * step}, 100 + step)
    assert stored(trial, "scalar/rate") == {0: 0.0, 3: 30.0, 6: 60.0, 7: 70.0}
    assert stored(trial, "logged_step/rate") == {0: 100, 3: 103, 6: 106, 7: 107}


def test_a_value_that_is_not_finite_is_not_replaced_before_it_is_saved(
    trial: WrittenTrial,
) -> None:
    with make_hook(trial, save_config=SaveConfig(save_interval=3)) as hook:
        for value in (1.0, math.nan, 2.0, 3.0, 4.0, 5.0, 6.0):
            hook.train(W)
            hook.logged.add({"reward": value}, None)
    values = stored(trial, "scalar/reward")
    assert [math.isnan(value) for value in values.values()] == [False, True, False]
    assert stored(trial, "logged_step/reward") == dict.fromkeys(values, -1)


def test_values_of_a_validation_wait_for_a_training_step(trial: WrittenTrial) -> None:
    with make_hook(trial) as hook:
        hook.set_mode(ModeKeys.EVAL)
        hook.train(W)
        hook.logged.add({"accuracy": 0.5}, 0)
        hook.set_mode(ModeKeys.TRAIN)
        hook.train(W)
    assert stored(trial, "scalar/accuracy") == {1: 0.5}


@pytest.mark.parametrize(
    ("rank", "names"), [(0, ["loss", "rank_0/loss", "rank1"]), (1, ["rank1"]), (12, [])]
)
def test_ranks_keep_only_names_of_their_own(trial: WrittenTrial, rank: int, names: list) -> None:
    hook = make_hook(trial, workers=FixedWorkers(rank, 16))
    hook.logged.add({"loss": 1.0, "rank_0/loss": 1.0, "rank1": 1.0}, 0)
    hook.logged.leave()
    of_scalars = [name for name in hook.recorder.pending_names if name.startswith("scalar/")]
    assert of_scalars == sorted(f"scalar/{name}" for name in names)


def test_the_number_of_names_is_bounded(
    trial: WrittenTrial, caplog: pytest.LogCaptureFixture
) -> None:
    hook = make_hook(trial)
    for number in range(3000):
        hook.logged.add({f"sample-{number}": 1.0}, number)
    hook.logged.leave()
    assert len(hook.recorder.pending_names) == 2000  # each with its step
    assert caplog.text.count("only the first 1000 names") == 1


def test_a_logged_scalar_is_no_weight_whatever_it_is_called(trial: WrittenTrial) -> None:
    weights = Collection("weights", ["^(?!gradient).*weight"])
    with make_hook(trial, weights) as hook:
        hook.train({**W, "layer.weight": W["w"]})
        hook.logged.add({"weight_decay": 0.1}, 0)
    read = create_trial(trial.uri)
    assert read.tensor_names(collection="weights") == ["layer.weight"]
    assert read.tensor_names(collection="logged") == ["scalar/weight_decay"]
