"""What the saved values are: weights before the step, gradients as the Trainer uses them."""

from __future__ import annotations

from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import hook_layer.mxnet as smd
from hook_layer.testing.written_trial import WrittenTrial
from tests.frameworks.mxnet.gluon_training import LOSS, Training, every_step, same

HYBRIDIZE = pytest.mark.parametrize("hybridize", [None, {}], ids=["plain", "hybridized"])


def stored(trial: WrittenTrial, step: int, prefix: str = "") -> dict[str, np.ndarray]:
    return {n: v for n, v in trial.values(step).items() if n.startswith(prefix)}


@HYBRIDIZE
def test_weights_are_those_before_the_step(
    trial: WrittenTrial, hybridize: dict[str, Any] | None
) -> None:
    hook = every_step(trial, include_collections=["weights", "biases"])
    training = Training(hook, hybridize=hybridize)
    expected = []
    for _ in range(3):
        expected.append(training.parameters())
        training.step()
    hook.close()
    for step in range(3):
        found = stored(trial, step)
        del found[LOSS]
        assert same(found, expected[step])


def test_weights_that_are_initialised_in_the_first_pass_are_saved_with_it(
    trial: WrittenTrial,
) -> None:
    net = nn.HybridSequential(prefix="net_")
    net.add(nn.Conv2D(2, 3, prefix="conv0_"), nn.Dense(10, prefix="dense0_"))
    hook = every_step(trial, include_collections=["weights"])
    training = Training(hook, net)
    training.backward()
    expected = training.parameters()["dense0_weight"]
    training.trainer.step(4)
    hook.close()
    assert same(trial.values(0)["dense0_weight"], expected)


@pytest.mark.parametrize("contexts", [1, 2])
@pytest.mark.parametrize("on_store", [None, False])
def test_gradients_are_those_that_the_trainer_uses(
    trial: WrittenTrial, contexts: int, on_store: bool | None
) -> None:
    hook = every_step(trial, include_collections=["gradients"])
    training = Training(
        hook, contexts=contexts, update_on_kvstore=on_store if contexts > 1 else None
    )
    expected = []
    for _ in range(3):
        training.backward()
        gradients = [g for p in training.net.collect_params().values() for g in p.list_grad()]
        for gradient in gradients:
            gradient[:] = 0.5 * gradient  # as clipping does
        expected.append(training.gradients())
        training.trainer.step(4)
    hook.close()
    for step in range(3):
        found = stored(trial, step, "gradient/")
        assert found.keys() == expected[step].keys()
        for name, value in found.items():
            np.testing.assert_allclose(value, expected[step][name], rtol=1e-6)


def test_gradients_that_the_script_reduced_itself(trial: WrittenTrial) -> None:
    hook = every_step(trial, include_collections=["gradients"])
    training = Training(hook, contexts=2, update_on_kvstore=False)
    expected = []
    for _ in range(2):
        training.backward()
        expected.append(training.gradients())
        training.trainer.allreduce_grads()
        training.trainer.update(4)
    hook.close()
    for step in range(2):
        for name, value in stored(trial, step, "gradient/").items():
            np.testing.assert_allclose(value, expected[step][name], rtol=1e-6)


def test_gradients_of_a_loop_without_a_trainer(trial: WrittenTrial) -> None:
    net = nn.Dense(1, in_units=3, prefix="dense0_")
    net.initialize()
    hook = every_step(trial)
    hook.register_block(net)
    expected = []
    for _ in range(3):
        with autograd.record():
            loss = net(mx.nd.random.normal(shape=(4, 3))) ** 2
        loss.backward()
        expected.append(net.weight.grad().asnumpy())
        net.weight.set_data(net.weight.data() - 0.1 * net.weight.grad())
        net.weight.grad()[:] = 0
    hook.close()
    for step in range(3):
        assert same(trial.values(step)["gradient/dense0_weight"], expected[step])


def test_accumulated_gradients_are_the_sums_so_far(trial: WrittenTrial) -> None:
    hook = every_step(trial, include_collections=["gradients"])
    training = Training(hook)
    training.net.collect_params().setattr("grad_req", "add")
    expected = []
    for _ in range(2):
        for _ in range(2):
            training.backward()
            expected.append(training.gradients())
        training.trainer.step(8)
        training.net.collect_params().zero_grad()
    hook.close()
    for step in range(4):
        assert same(stored(trial, step, "gradient/"), expected[step])


def test_no_gradient_without_a_backward_pass(trial: WrittenTrial) -> None:
    hook = every_step(trial, include_collections=["weights", "gradients"])
    training = Training(hook)
    training.step()
    training.net(mx.nd.ones((2, 1, 12, 12)))
    hook.close()
    assert any(name.startswith("gradient/") for name in trial.names(0))
    assert trial.names(1) == {"conv0_weight", "dense0_weight"}


def test_parameters_that_are_not_trained_have_no_gradients(trial: WrittenTrial) -> None:
    hook = every_step(trial, include_collections=["gradients"])
    training = Training(hook)
    training.net[0].collect_params().setattr("grad_req", "null")
    training.step()
    hook.close()
    gradients = {name for name in trial.names(0) if name.startswith("gradient/")}
    assert gradients == {"gradient/dense0_weight", "gradient/dense0_bias"}


@pytest.mark.parametrize("contexts", [1, 2])
def test_state_of_the_optimiser(trial: WrittenTrial, contexts: int) -> None:
    hook = every_step(trial, include_collections=["optimizer_variables", "weights"])
    training = Training(hook, contexts=contexts, optimizer="adam")
    for _ in range(2):
        training.step()
    hook.close()
    names = {f"optimizer_variables/{name}/{i}" for name in training.parameters() for i in (0, 1)}
    states = stored(trial, 1, "optimizer_variables/")
    assert states.keys() == names
    assert all(value.any() for value in states.values())
    collections = trial.collections().collections
    assert set(collections["optimizer_variables"].tensor_names) == names
    assert collections["weights"].tensor_names == ("conv0_weight", "dense0_weight")


def test_reductions_are_numpys(trial: WrittenTrial) -> None:
    config = smd.ReductionConfig(["mean", "std"], ["max"], ["l2"], save_shape=True)
    hook = every_step(trial, include_collections=["weights"], reduction_config=config)
    training = Training(hook)
    weight = training.parameters()["dense0_weight"]
    training.step()
    hook.close()
    found = stored(trial, 0, "smdebug/reductions/")
    of_weight = {
        name.split("/")[2]: v for name, v in found.items() if name.endswith("dense0_weight")
    }
    expected = {
        "mean": weight.mean(),
        "std": weight.std(),
        "abs_max": np.abs(weight).max(),
        "l2": np.linalg.norm(weight.ravel()),
    }
    assert of_weight.keys() == expected.keys()
    for name, value in of_weight.items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-5)
    assert "dense0_weight" not in trial.values(0)
    statistics = trial.statistics(0)["dense0_weight"]
    np.testing.assert_allclose(statistics["mean"], weight.mean(), rtol=1e-5)
    assert statistics["size"] == weight.size


def test_statistics_alone_copy_no_value_into_the_files(trial: WrittenTrial) -> None:
    nothing = smd.ReductionConfig()
    hook = every_step(trial, include_collections=["weights"], reduction_config=nothing)
    training = Training(hook)
    weight = training.parameters()["dense0_weight"]
    training.step()
    hook.close()
    assert trial.values(0).keys() == {LOSS}
    np.testing.assert_allclose(trial.statistics(0)["dense0_weight"]["max"], weight.max())


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32", "int8", "uint8"])
def test_types_are_kept(trial: WrittenTrial, dtype: str) -> None:
    hook = every_step(trial)
    value = mx.nd.array([[1, 2], [3, 4]], dtype=dtype)
    hook.save_tensor("mine", value)
    hook.save_scalar("one", mx.nd.array([3], dtype=dtype))
    hook.close()
    assert same(trial.values(0)["mine"], value.asnumpy())
    assert trial.values(0)["scalar/one"].item() == 3


def test_bfloat16_is_saved_as_float32(trial: WrittenTrial) -> None:
    hook = every_step(trial)
    bfloat16 = np.dtype([("bfloat16", np.uint16)])
    hook.save_tensor("mine", mx.nd.array([1.5, -2.0]).astype(bfloat16))
    hook.close()
    assert same(trial.values(0)["mine"], np.array([1.5, -2.0], np.float32))
    statistics = trial.indexes()[0].statistics
    assert statistics is not None
    assert statistics.dtypes == ("bfloat16",)


def test_sparse_gradients_are_saved_dense(trial: WrittenTrial) -> None:
    net = nn.Embedding(5, 2, sparse_grad=True, prefix="embedding0_")
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    hook = every_step(trial)
    hook.register_block(net)
    for _ in range(2):
        with autograd.record():
            loss = net(mx.nd.array([0, 3, 3])).sum()
        loss.backward()
        trainer.step(1)
    hook.close()
    expected = np.array([[1, 1], [0, 0], [0, 0], [2, 2], [0, 0]], np.float32)
    assert same(trial.values(1)["gradient/embedding0_weight"], expected)


def test_arrays_with_numpys_semantics(trial: WrittenTrial) -> None:
    mx.npx.set_np()
    try:
        net = nn.Dense(3, in_units=3, prefix="dense0_")
        net.initialize()
        hook = every_step(trial, save_all=True)
        hook.register_block(net)
        with autograd.record():
            outputs = net(mx.np.ones((2, 3)))
            loss = (outputs**2).sum()
        loss.backward()
        hook.close()
        values = trial.values(0)
        assert values["Loss_output_0"].shape == ()
        assert same(values["dense0_output_0"], outputs.asnumpy())
    finally:
        mx.npx.reset_np()
