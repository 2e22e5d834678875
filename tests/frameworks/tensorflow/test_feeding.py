"""Runs of a session that are given, by `feed_dict`, what the graph would compute itself."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

import hook_layer.tensorflow as smd
from hook_layer.testing.written_trial import WrittenTrial
from tests.frameworks.tensorflow.session_training import v1


@pytest.mark.parametrize("arguments", [{"save_all": True}, {"include_regex": "^x"}])
def test_what_stands_behind_a_fed_tensor_is_left_alone(
    trial: WrittenTrial, arguments: dict[str, Any]
) -> None:
    """A dataset does not go on for it, and a placeholder need not be given."""

    def train_and_try(hook: smd.SessionHook | None) -> list[list[float]]:
        hooks = [] if hook is None else [hook]
        with tf.Graph().as_default():
            rows = tf.data.Dataset.range(8).batch(1)
            batch = v1.data.make_one_shot_iterator(rows).get_next()
            inputs = tf.cast(batch, tf.float32, name="x")
            scaled = tf.multiply(v1.placeholder(tf.float32, name="given"), 2.0, name="x_scaled")
            weight = v1.get_variable("w", shape=[1], initializer=v1.ones_initializer())
            loss = tf.reduce_sum((inputs + 0 * scaled) * weight, name="loss")
            train_op = v1.train.GradientDescentOptimizer(0.0).minimize(loss)
            tries: list[list[float]] = []
            with v1.train.MonitoredSession(hooks=hooks) as session:
                for _ in range(3):
                    found = session.run([inputs, train_op], {scaled: 1.0})[0]
                    tried = session.run(loss, {inputs: [7.0], scaled: 1.0})
                    tries.append([*found.tolist(), float(tried)])
        return tries

    plain = train_and_try(None)
    hook = smd.SessionHook(trial.uri, save_config=smd.SaveConfig(save_interval=1), **arguments)
    assert train_and_try(hook) == plain
    hook.close()
    assert not hook.report().errors
    assert {"x:0", "x_scaled:0"} <= trial.names(0) & trial.names(1)
    assert trial.values(1)["x:0"].tolist() == [7.0]
    is_read = [any(name.startswith("IteratorGetNext") for name in trial.names(s)) for s in (0, 1)]
    assert is_read == ["save_all" in arguments, False]
    assert not any("given:0" in trial.names(step) for step in (0, 1))
