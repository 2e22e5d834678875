"""Steps, modes, several contexts, the end, and that training is left alone."""

from __future__ import annotations

from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import hook_layer.mxnet as smd
from hook_layer.errors import HookConfigurationError
from hook_layer.format.job_file import StopFile
from hook_layer.format.paths import STOP_FILE
from hook_layer.testing.written_trial import WrittenTrial
from tests.frameworks.mxnet.gluon_training import LOSS, Training, every_step, same


def losses(trial: WrittenTrial) -> set[str]:
    return {name for name in trial.names(0) if name.startswith("loss0_output")}


@pytest.mark.parametrize("hybridize", [None, {}], ids=["plain", "hybridized"])
def test_passes_on_several_contexts_are_one_step(
    trial: WrittenTrial, hybridize: dict[str, Any] | None
) -> None:
    hook = every_step(trial, save_all=True)
    training = Training(hook, contexts=2, hybridize=hybridize)
    expected = [training.step() for _ in range(3)]
    hook.close()
    assert sorted(trial.indexes()) == [0, 1, 2]
    assert losses(trial) == {"loss0_output_0", "loss0_output_1"}
    outputs = {name for name in trial.names(0) if name.startswith("conv0_output")}
    assert outputs == {"conv0_output_0", "conv0_output_1"}
    for step in range(3):
        found = [trial.values(step)[f"loss0_output_{i}"] for i in (0, 1)]
        assert same(np.concatenate(found), expected[step])


def test_a_context_that_comes_again_begins_a_step(trial: WrittenTrial) -> None:
    hook = every_step(trial)
    training = Training(hook, contexts=2)
    for _ in range(2):  # evaluation: no Trainer steps in between
        for context in training.contexts:
            training.net(mx.nd.ones((1, 1, 12, 12), context))
    hook.close()
    assert sorted(trial.indexes()) == [0, 1]


def test_a_step_may_use_fewer_contexts(trial: WrittenTrial) -> None:
    hook = every_step(trial)
    training = Training(hook, contexts=2)
    training.step()
    with autograd.record():
        loss = training.criterion(training.net(mx.nd.ones((1, 1, 12, 12))), mx.nd.ones((1,)))
    loss.backward()
    training.trainer.step(1, ignore_stale_grad=True)
    training.step()
    hook.close()
    assert sorted(trial.indexes()) == [0, 1, 2]
    assert len([name for name in trial.names(1) if name.startswith("loss0_output")]) == 1


def test_modes(trial: WrittenTrial) -> None:
    hook = every_step(trial, include_collections=["weights", "gradients", "optimizer_variables"])
    training = Training(hook, optimizer="adam")
    hook.set_mode(smd.modes.TRAIN)
    training.step()
    training.step()
    hook.set_mode(smd.modes.EVAL)
    training.criterion(training.net(mx.nd.ones((1, 1, 12, 12))), mx.nd.ones((1,)))
    hook.close()
    assert [(i.mode.name, i.mode_step) for _, i in sorted(trial.indexes().items())] == [
        ("TRAIN", 0),
        ("TRAIN", 1),
        ("EVAL", 0),
    ]
    assert trial.names(2) == {"conv0_weight", "dense0_weight", LOSS}


def test_several_trainers_make_one_step_together(trial: WrittenTrial) -> None:
    hook = every_step(trial, include_collections=["gradients"])
    training = Training(hook)
    first, second = training.net[0].collect_params(), training.net[-1].collect_params()
    trainers = []
    for parameters in (first, second):
        for parameter in parameters.values():
            parameter._trainer = None  # that of the whole net
        trainers.append(gluon.Trainer(parameters, "sgd", {"learning_rate": 0.1}))
    for _ in range(3):
        training.backward()
        for trainer in trainers:
            trainer.step(4)
    hook.close()
    assert sorted(trial.indexes()) == [0, 1, 2]
    assert all(set(training.gradients()) < trial.names(step) for step in range(3))
    assert hook.report().late_tensors == 0


def test_a_step_is_stored_when_it_is_captured(trial: WrittenTrial) -> None:
    hook = every_step(trial)
    training = Training(hook)
    for _ in range(3):
        training.step()
    hook.flush()
    assert sorted(trial.indexes()) == [0, 1, 2]


def test_a_scalar_behind_the_step_belongs_to_it(trial: WrittenTrial) -> None:
    hook = every_step(trial)
    training = Training(hook)
    for step in range(3):
        training.step()
        hook.save_scalar("lr", step)
    hook.close()
    values = [trial.values(step).get("scalar/lr") for step in range(3)]
    assert [None if value is None else value.item() for value in values] == [0, 1, 2]


def test_a_stop_request_ends_training_ahead_of_the_next_step(trial: WrittenTrial) -> None:
    hook = every_step(trial, stop_poll_s=600.0)
    training = Training(hook)
    training.step()
    hook.flush()
    stop = StopFile("loss is NaN", "2026-11-21T10:00:00Z", trial.job().run_id)
    trial.store.put(STOP_FILE, stop.encode())
    assert hook.session.trial is not None
    hook.session.trial.stop_signal.check()
    before = training.parameters()
    with pytest.raises(smd.TrainingStoppedError, match="loss is NaN"):
        training.step()
    assert same(training.parameters(), before)
    assert trial.end_marker() is not None
    training.step()  # who trains on nevertheless can


@pytest.mark.parametrize("wrong", [None, "net", mx.nd.ones((1,))])
def test_what_is_no_block_is_refused(trial: WrittenTrial, wrong: Any) -> None:
    hook = every_step(trial)
    for register in (hook.register_block, hook.register_loss, hook.register_hook):
        with pytest.raises(HookConfigurationError, match=r"must be a mxnet\.gluon\.Block"):
            register(wrong)


def test_a_block_is_registered_once(trial: WrittenTrial) -> None:
    hook = every_step(trial)
    training = Training(hook)
    with pytest.raises(HookConfigurationError, match="the block net is already registered"):
        hook.register_block(training.net)
    outer = nn.HybridSequential(prefix="outer_")
    outer.add(training.net)
    with pytest.raises(HookConfigurationError, match="a part of outer, is already registered"):
        hook.register_block(outer)
