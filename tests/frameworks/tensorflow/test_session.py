"""The hook for sessions: steps, names, values, what it never does, and how training ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hook_layer.tensorflow as smd
from hook_layer.autopatch.hook_source import HookSource
from hook_layer.errors import HookConfigurationError
from hook_layer.format.job_file import StopFile
from hook_layer.format.paths import STOP_FILE
from hook_layer.tensorflow.unchanged import watch_unchanged
from hook_layer.testing.written_trial import WrittenTrial
from tests.frameworks.tensorflow.session_training import Network, feed, read, train, v1
from tests.frameworks.tutorials import example

EVERY_STEP = smd.SaveConfig(save_interval=1)
ALL = ["weights", "biases", "gradients", "losses", "optimizer_variables"]


def watching(trial: WrittenTrial, **arguments: Any) -> smd.SessionHook:
    return smd.SessionHook(trial.uri, **{"save_config": EVERY_STEP, **arguments})


def modes_of(trial: WrittenTrial) -> list[tuple[str, int]]:
    return [(index.mode.name, index.mode_step) for _, index in sorted(trial.indexes().items())]


def test_names_and_collections_of_a_training(trial: WrittenTrial) -> None:
    hook = watching(trial, include_collections=ALL)
    losses, _ = train(hook)
    hook.close()
    assert modes_of(trial) == [("GLOBAL", step) for step in range(4)]
    collections = trial.collections().collections
    members = {name: set(collections[name].tensor_names) for name in ALL}
    assert members["weights"] == {"w1:0", "w2:0"}
    assert members["biases"] == {"bias1:0"}
    assert members["losses"] == {"loss:0"}
    assert len(members["gradients"]) == 3
    assert all(name.startswith("gradients/") for name in members["gradients"])
    assert members["optimizer_variables"] >= {"w1/Adam:0", "w2/Adam_1:0", "beta1_power:0"}
    assert trial.names(2) == set().union(*members.values())
    assert [trial.values(step)["loss:0"].item() for step in range(4)] == losses
    assert trial.end_marker() is not None
    assert not hook.report().errors


def test_variables_have_the_values_before_the_step(trial: WrittenTrial) -> None:
    hook = watching(trial, include_collections=["weights"])
    seen: list[Any] = []

    def run(session: Any, network: Network, step: int) -> None:
        seen.append(read(session, network.parts["weights"]))

    train(hook, run=run)
    hook.close()
    for step in range(1, 4):
        values = trial.values(step)
        np.testing.assert_array_equal(values["w1:0"], seen[step - 1][0])
        np.testing.assert_array_equal(values["w2:0"], seen[step - 1][2])


def test_gradients_are_those_that_the_optimiser_gets(trial: WrittenTrial) -> None:
    hook = watching(trial, include_collections=["gradients", "weights"])
    with tf.Graph().as_default():
        network = Network(hook, v1.train.GradientDescentOptimizer(0.5))
        with v1.train.MonitoredSession(hooks=[hook]) as session:
            for step in range(2):
                session.run(network.parts["train"], feed(step))
    hook.close()
    before, after = trial.values(0), trial.values(1)
    (gradient,) = [v for n, v in before.items() if n.startswith("gradients/") and v.shape == (3, 4)]
    np.testing.assert_allclose(after["w1:0"], before["w1:0"] - 0.5 * gradient, rtol=1e-6)


def test_nothing_is_fetched_in_other_steps(trial: WrittenTrial) -> None:
    hook = watching(trial, include_collections=ALL, save_config=smd.SaveConfig(save_interval=3))
    runs: list[Any] = []
    original = v1.Session.run

    def run(self: Any, fetches: Any, *args: Any, **kwargs: Any) -> Any:
        runs.append(fetches)
        return original(self, fetches, *args, **kwargs)

    v1.Session.run = run
    try:
        train(hook, steps=5)
    finally:
        v1.Session.run = original
    hook.close()
    of_steps = [f for f in runs if isinstance(f, dict) and "caller" in f]
    with_more = [len(fetches) > 1 for fetches in of_steps]
    assert with_more == [True, False, False, True, False]
    assert sorted(trial.indexes()) == [0, 3]


def test_a_run_of_something_else_does_not_fail(trial: WrittenTrial) -> None:
    hook = watching(trial, save_all=True)

    def run(session: Any, network: Network, step: int) -> None:
        hook.set_mode(smd.modes.EVAL)
        session.run({"a": (network.parts["twice"],)}, {"x:0": feed(step)["x:0"]})  # y is not given
        session.run("w1:0")
        hook.set_mode(smd.modes.TRAIN)

    hook.set_mode(smd.modes.TRAIN)
    train(hook, steps=2, run=run)
    hook.close()
    of_a_step = [("TRAIN", 0), ("EVAL", 0), ("EVAL", 1), ("TRAIN", 1), ("EVAL", 2), ("EVAL", 3)]
    assert modes_of(trial) == of_a_step
    assert {"twice:0", "x:0", "hidden:0"} <= trial.names(1)
    assert not {"loss:0", "y:0"} & trial.names(1)
    assert not any(name.startswith("gradients/") for name in trial.names(1))
    assert {"loss:0", "outputs:0", "w1:0"} <= trial.names(0)
    assert not hook.report().errors


def test_a_loss_that_is_not_asked_for_is_saved(trial: WrittenTrial) -> None:
    plain = train()
    hook = watching(trial)
    with tf.Graph().as_default():
        network = Network(hook)
        with v1.train.MonitoredSession(hooks=[hook]) as session:
            for step in range(4):
                session.run(network.parts["train"], feed(step))
            weights = read(session, network.parts["weights"])
    hook.close()
    assert [trial.values(step)["loss:0"].item() for step in range(4)] == plain[0]
    for expected, found in zip(plain[1], weights, strict=True):
        np.testing.assert_array_equal(expected, found)


def test_what_the_script_adds(trial: WrittenTrial) -> None:
    hook = watching(trial, include_collections=["mine"], include_regex="hidden")
    with tf.Graph().as_default():
        network = Network()
        hook.add_to_collection("mine", network.parts["twice"])
        hook.get_collection("mine").add([network.parts["weights"][0], "outputs:0"])
        hook.add_to_collection("losses", tf.identity(network.parts["loss"], name="again"))
        with pytest.raises(HookConfigurationError, match="tensor or variable"):
            hook.add_to_collection("mine", 3)
        with v1.train.MonitoredSession(hooks=[hook]) as session:
            fetches = [network.parts["train"], network.parts["twice"], "again:0"]
            session.run(fetches, feed(0))
    hook.close()
    names = {"twice:0", "w1:0", "outputs:0", "loss:0", "again:0", "hidden:0"}
    assert trial.names(0) >= names


def test_branches_and_loops_of_tensorflow_1(trial: WrittenTrial) -> None:
    hook = watching(trial, save_all=True)
    v1.disable_control_flow_v2()
    try:
        with tf.Graph().as_default():
            x = v1.placeholder(tf.float32, [], name="x")
            chosen = v1.cond(x > 0, lambda: x * 2, lambda: x * 3, name="branch")
            counted = v1.while_loop(lambda i: i < 3, lambda i: i + 1, [0], name="count")
            with v1.train.MonitoredSession(hooks=[hook]) as session:
                assert session.run([chosen, counted], {x: 2.0}) == [4.0, 3]
                assert session.run([chosen, counted], {x: -2.0}) == [-6.0, 3]
    finally:
        v1.enable_control_flow_v2()
    hook.close()
    assert chosen.name in trial.names(0)
    assert not hook.report().errors


def test_a_stop_request_ends_the_session(
    trial: WrittenTrial, caplog: pytest.LogCaptureFixture
) -> None:
    hook = watching(trial, stop_poll_s=600.0)

    class Rule(v1.train.SessionRunHook):
        def after_run(self, *_: Any) -> None:
            if hook.step == 2:
                hook.flush()
                request = StopFile("the loss grows", "2026-01-01T00:00:00Z", trial.job().run_id)
                trial.store.put(STOP_FILE, request.encode())
                session: Any = hook.session.trial
                session.stop_signal.check()

    losses, _ = train(hook, steps=9, hooks=[Rule()])
    assert len(losses) == 3
    assert "training ends after step 2, as requested: the loss grows" in caplog.messages
    hook.close()
    assert trial.end_marker() is not None


def test_two_sessions_with_one_hook(trial: WrittenTrial) -> None:
    hook = watching(trial, include_collections=["weights", "gradients"])
    for _ in range(2):
        train(hook, steps=2)
    hook.close()
    assert sorted(trial.indexes()) == [0, 1, 2, 3]
    assert trial.names(0) == trial.names(3)


def test_embeddings_have_the_values_of_their_slices(trial: WrittenTrial) -> None:
    hook = watching(trial, include_collections=["gradients"])
    with tf.Graph().as_default():
        table = v1.get_variable("table", shape=[9, 2])
        loss = tf.reduce_sum(tf.nn.embedding_lookup(table, [1, 4, 4]), name="loss")
        train_op = hook.wrap_optimizer(v1.train.GradientDescentOptimizer(0.1)).minimize(loss)
        with v1.train.MonitoredSession(hooks=[hook]) as session:
            session.run(train_op)
    hook.close()
    (gradient,) = [v for n, v in trial.values(0).items() if n.startswith("gradients/")]
    assert gradient.shape == (3, 2)


def test_hooks_by_type(trial: WrittenTrial) -> None:
    hook = watching(trial)
    assert smd.get_hook("session") is hook
    assert smd.get_hook() is hook
    with pytest.raises(HookConfigurationError, match=r"no tf\.estimator since 2\.16"):
        smd.get_hook("estimator")
    with pytest.raises(HookConfigurationError, match="KerasHook"):
        smd.EstimatorHook("path")
    with pytest.raises(HookConfigurationError, match="session"):
        smd.get_hook("sesion")
    with pytest.raises(HookConfigurationError, match=r"KerasHook\.wrap_optimizer"):
        hook.wrap_optimizer(tf.keras.optimizers.Adam())
    with pytest.raises(HookConfigurationError, match="either gradients or"):
        hook.set_gradients()


def test_a_script_without_a_hook_gets_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    optimizer = v1.train.Optimizer
    for kind, names in (
        (optimizer, ("compute_gradients", "apply_gradients")),
        (v1.train.MonitoredSession, ("__init__",)),
        (v1.train.SingularMonitoredSession, ("__init__",)),
    ):
        for name in names:
            monkeypatch.setattr(kind, name, getattr(kind, name))  # put back at the end
    plain = train(steps=3)
    smd.del_hook()
    watch_unchanged(HookSource(out_dir=str(tmp_path / "run")))
    assert train(steps=3)[0] == plain[0]
    hook = smd.get_hook("session")
    assert hook is not None
    assert hook.step >= 2
    last = hook.step
    train(steps=3)  # only the first is watched
    assert hook.step == last
    hook.close()
    written = WrittenTrial(str(tmp_path / "run"))
    assert written.names(0) == {"loss:0"}
    assert modes_of(written)[0] == ("TRAIN", 0)
    assert len(written.collections().collections["gradients"].tensor_names) == 3


def test_a_script_imports_it_as_the_original(tmp_path: Path) -> None:
    code = (
        "import sys, hook_layer.tensorflow as smd\n"
        "assert 'hook_layer.keras' not in sys.modules\n"
        "print(smd.SessionHook.__name__, smd.modes.TRAIN.name)\n"
    )
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    assert found.stdout.strip() == "SessionHook TRAIN"


def test_the_example_in_the_documentation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(example("tensorflow"), names)
    names["hook"].close()
    written = WrittenTrial("runs/session-1")
    assert sorted(written.indexes()) == [*range(11), *range(12, 40, 2)]
    assert {"loss:0", "weights:0"} < written.names(30)
