"""The contract of hooks, kept by the hook for sessions of TensorFlow 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

import stepwatch.tensorflow
from hook_layer.core.hook import BaseHook
from hook_layer.tensorflow import SessionHook, modes
from hook_layer.testing.hook_contract import HookContract, OnStep, Trained, digest_of, nothing
from tests.frameworks.default_hooks import DefaultHookContract

v1 = tf.compat.v1
tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)


def batch(step: int) -> dict[str, Any]:
    generator = np.random.default_rng(step)
    inputs = generator.normal(size=(5, 6)).astype(np.float32)
    return {"x:0": inputs, "y:0": inputs.sum(axis=1, keepdims=True)}


class TestSession(HookContract):
    adapter = "TensorFlow sessions"
    hook_type = SessionHook
    loss_name = "loss:0"
    names = {
        "losses": "loss:0",
        "weights": "hidden:0",
        "biases": "bias:0",
        "gradients": "gradients/layer_grad/tuple/control_dependency_1:0",
        "optimizer_variables": "hidden/Momentum:0",
    }
    more_names = ("x:0", "layer:0", "outputs:0")
    stop_raises = False

    def train(
        self,
        hook: BaseHook | None,
        *,
        steps: int,
        evaluations: int = 0,
        on_step: OnStep = nothing,
    ) -> Trained:
        hooks = [] if hook is None else [hook]
        losses = []
        with tf.Graph().as_default():
            v1.set_random_seed(7)
            x = v1.placeholder(tf.float32, [None, 6], name="x")
            y = v1.placeholder(tf.float32, [None, 1], name="y")
            weights = [v1.get_variable("hidden", shape=[6, 4]), v1.get_variable("bias", shape=[4])]
            layer = tf.nn.relu(tf.matmul(x, weights[0], name="layer") + weights[1])
            weights.append(v1.get_variable("head", shape=[4, 1]))
            outputs = tf.matmul(tf.nn.dropout(layer, rate=0.2), weights[2], name="outputs")
            loss = tf.reduce_mean(tf.square(outputs - y), name="loss")
            optimizer = v1.train.MomentumOptimizer(0.01, 0.9)
            if isinstance(hook, SessionHook):
                optimizer = hook.wrap_optimizer(optimizer)
                hook.set_mode(modes.TRAIN)
            train_op = optimizer.minimize(loss)

            class Script(v1.train.SessionRunHook):  # type: ignore[name-defined]
                step = -1

                def after_run(self, *_: Any) -> None:
                    self.step += 1
                    if self.step < steps:
                        on_step(self.step)

            with v1.train.MonitoredSession(hooks=[Script(), *hooks]) as session:
                for step in range(steps):
                    if not session.should_stop():
                        losses += [float(session.run([loss, train_op], batch(step))[0])]
                if isinstance(hook, SessionHook):
                    hook.set_mode(modes.EVAL)
                for step in range(evaluations):
                    session.run(loss, batch(step))
                found = [] if session.should_stop() else session.run_step_fn(_reader(weights))
        return Trained(digest_of(found), tuple(losses))


def _reader(variables: Any) -> Any:
    def step(step_context: Any) -> Any:
        return step_context.session.run(variables)

    return step


class TestDefaultHookOfSession(DefaultHookContract):
    """What `stepwatch.tensorflow.SessionHook` saves."""

    hook_type = SessionHook
    default_type = stepwatch.tensorflow.SessionHook
    train = TestSession.train
