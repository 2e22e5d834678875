"""The training is left alone: results, memory, what was wrapped, models and their copies."""

from __future__ import annotations

import copy
import gc
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any
from weakref import ref

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon

import hook_layer.mxnet as smd
from hook_layer.mxnet import capture
from hook_layer.mxnet.capture import ArrayBackend
from hook_layer.testing.written_trial import WrittenTrial
from tests.frameworks.mxnet.gluon_training import EVERY_STEP, Training, every_step, same


@pytest.mark.parametrize("contexts", [1, 2])
@pytest.mark.parametrize("hybridize", [None, {}, {"static_alloc": True, "static_shape": True}])
def test_results_are_the_same_bit_by_bit(
    trial: WrittenTrial, hybridize: dict[str, Any] | None, contexts: int
) -> None:
    def trained(hook: smd.Hook | None) -> tuple[list[bytes], dict[str, np.ndarray]]:
        mx.random.seed(0)
        np.random.seed(0)
        training = Training(hook, hybridize=hybridize, contexts=contexts, optimizer="adam")
        steps = [training.step().tobytes() for _ in range(5)]
        if hook is not None:
            hook.close()
            assert hook.report().errors == {}
        return steps, training.parameters()

    plain_losses, plain_weights = trained(None)
    for interval in (1, 2):
        hook = smd.Hook(
            f"{trial.uri}{interval}",
            save_config=smd.SaveConfig(save_interval=interval),
            save_all=True,
            include_collections=["optimizer_variables"],
        )
        found_losses, found_weights = trained(hook)
        assert found_losses == plain_losses
        assert same(found_weights, plain_weights)


def test_nothing_is_copied_in_steps_in_which_nothing_is_due(
    trial: WrittenTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = smd.Hook(trial.uri, save_config=smd.SaveConfig(save_interval=100), save_all=True)
    training = Training(hook, hybridize={})
    training.step()
    operator = training.net._cached_op
    monkeypatch.setattr(mx.nd.NDArray, "copyto", lambda *_: pytest.fail("is copied"))
    monkeypatch.setattr(mx.nd.NDArray, "asnumpy", lambda _: pytest.fail("waits for MXNet"))
    for _ in range(3):
        training.backward()
        training.trainer.step(4)
        assert training.net._cached_op is operator
    assert not training.net[1]._forward_hooks


def test_the_hook_never_waits_for_mxnet(
    trial: WrittenTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    hook = every_step(trial, save_all=True)
    training = Training(hook)
    training.step()
    main, waits = threading.get_ident(), []
    asnumpy = mx.nd.NDArray.asnumpy

    def spied(array: mx.nd.NDArray) -> np.ndarray:
        waits.append(threading.get_ident() == main)
        value: np.ndarray = asnumpy(array)
        return value

    monkeypatch.setattr(mx.nd.NDArray, "asnumpy", spied)
    for _ in range(3):
        training.backward()
        training.trainer.step(4)
    hook.flush()
    assert waits
    assert not any(waits)


def test_the_kill_switch(trial: WrittenTrial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USE_SMDEBUG", "0")
    step, backward = gluon.Trainer.step, autograd.backward
    hook = every_step(trial)
    training = Training(hook)
    training.step()
    hook.close()
    assert (gluon.Trainer.step, autograd.backward) == (step, backward)
    assert not training.net._forward_pre_hooks
    assert list(trial.store.list()) == []


def test_what_was_wrapped_is_as_before_when_the_last_hook_is_closed(trial: WrittenTrial) -> None:
    owners = [(gluon.Trainer, "step"), (gluon.Trainer, "_update"), (mx.nd.NDArray, "backward")]
    before = [vars(owner)[name] for owner, name in owners]
    hooks = [every_step(WrittenTrial(f"{trial.uri}{i}")) for i in range(2)]
    trainings = [Training(hook) for hook in hooks]
    for training in trainings:
        training.step()
    hooks[0].close()
    assert [vars(owner)[name] for owner, name in owners] != before
    hooks[1].close()
    assert [vars(owner)[name] for owner, name in owners] == before
    assert not trainings[0].net._forward_pre_hooks
    assert not trainings[0].net._forward_hooks


def test_a_newer_hook_on_the_same_model_takes_over(trial: WrittenTrial, tmp_path: Path) -> None:
    first = smd.Hook(str(tmp_path), save_config=EVERY_STEP, save_all=True)
    training = Training(first)
    training.step()
    second = smd.Hook(str(tmp_path), save_config=EVERY_STEP, save_all=True)
    second.register_block(training.net)
    for _ in range(3):
        training.step()
    second.close()
    assert not first.is_active
    assert first.report().errors == {}


def test_a_model_is_copied_and_pickled_without_its_hook(trial: WrittenTrial) -> None:
    hook = every_step(trial)
    training = Training(hook)
    training.step()
    call = next(iter(training.net._forward_pre_hooks.values()))
    for other in (copy.deepcopy(call), pickle.loads(pickle.dumps(call))):
        assert other(training.net, ()) is None
        assert type(other).__module__ != type(call).__module__


def test_a_hook_that_nobody_holds_is_collected(trial: WrittenTrial) -> None:
    training = Training(every_step(trial))
    training.step()
    hook = ref(smd.get_hook(create_if_not_exists=False))
    smd.del_hook()
    gc.collect()
    assert hook() is None
    training.step()


SCRIPT_THAT_FORGETS_ITS_HOOK = """
import gc, sys
import hook_layer.mxnet as smd
from tests.frameworks.mxnet.gluon_training import Training

hook = smd.Hook(sys.argv[1], save_config=smd.SaveConfig(save_interval=1), save_all=True)
training = Training(hook)
weight = training.parameters()["dense0_weight"]
training.step()  # stays open, for it is the first
hook.itself = hook  # so that the collector finds it
del hook
smd.del_hook()
gc.collect()
for _ in range(50):
    training.step()  # writes over memory that is free
print(weight.tobytes().hex())
"""


def test_a_step_of_a_forgotten_hook_is_stored_at_the_end(tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT_THAT_FORGETS_ITS_HOOK, tmp_path],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    saved = WrittenTrial(str(tmp_path)).values(0)["dense0_weight"]
    assert saved.tobytes().hex() == process.stdout.strip()


def test_copies_that_nobody_needs_are_freed(trial: WrittenTrial) -> None:
    gc.collect()
    before = set(capture._held)
    hook = every_step(trial, save_all=True)
    training = Training(hook)
    training.step()  # stays open, for it is the first
    assert set(capture._held) - before
    training.step()
    for _ in range(2):
        hook.save_tensor("mine", mx.nd.ones((3,)))  # takes the place of the one before
    hook.close()
    ArrayBackend().snapshots([mx.nd.ones((3,))])[0].release()
    assert set(capture._held) <= before
