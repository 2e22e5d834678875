from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hook_layer.format.collections_file import CollectionEntry, CollectionsFile
from hook_layer.format.paths import collections_key
from rule_runtime.facts.gradient_names import (
    declared_parameters,
    parameters_by_name,
    parameters_of,
)
from rule_runtime.testing import TrialBuilder

# A Keras model of two encoders, with layers of the same names, the second of them frozen, and a
# head: the parameters and gradients that the hook saved of it.
OF_KERAS = {
    "bn/weights/bn/beta:0": "gradients/bn/betaGrad",
    "bn/weights/bn/gamma:0": "gradients/bn/gammaGrad",
    "bn/weights/bn/moving_mean:0": None,
    "bn_1/weights/bn/gamma:0": None,
    "dense/weights/dense/kernel:0": "gradients/dense/kernelGrad",
    "dense_1/weights/dense_1/kernel:0": "gradients/dense_1/kernelGrad",
    "dense_2/weights/dense/kernel:0": None,
    "dense_1_1/weights/dense_1/kernel:0": None,
    "dense_3/weights/dense/kernel:0": "gradients/dense/kernelGrad_2",
    "dense_2_1/weights/dense_2/kernel:0": "gradients/dense_2/kernelGrad",
    "own/weights/own/att/query/kernel:0": "gradients/own/att/query/kernelGrad",
    "own/weights/own/scale:0": "gradients/own/scaleGrad",
    "own/weights/own/scale:0_1": "gradients/own/scaleGrad_1",
    "gru/weights/gru/gru_cell/kernel:0": "gradients/gru/gru_cell/kernelGrad",
    "inner/weights/my_model/inner/kernel:0": "gradients/my_model/inner/kernelGrad",
}
GRADIENT_OF = {name: gradient for name, gradient in OF_KERAS.items() if gradient is not None}


@given(st.permutations(list(OF_KERAS)))
def test_the_gradients_of_a_keras_model_in_any_order(parameters: list[str]) -> None:
    found = parameters_by_name(tuple(GRADIENT_OF.values()), tuple(parameters))
    assert found == tuple(GRADIENT_OF)


def test_more_than_ten_layers_of_one_name_are_ordered_by_their_numbers() -> None:
    layers = ["dense", *(f"dense_{at}" for at in range(1, 13))]
    parameters = tuple(sorted(f"{layer}/weights/dense/kernel:0" for layer in layers))
    gradients = tuple(f"gradients/dense/kernelGrad{'_' * bool(at)}{at or ''}" for at in range(13))
    expected = tuple(f"{layer}/weights/dense/kernel:0" for layer in layers)
    assert parameters_by_name(gradients, parameters) == expected


@pytest.mark.parametrize(
    ("gradient", "parameter"),
    [
        ("gradient/Net_fc.weight", "Net_fc.weight"),
        ("gradient/dense0_bias", "dense0_bias"),  # MXNet
        ("gradients/dense/kernelGrad", "dense/weights/dense/kernel:0"),
        ("gradients/dense/MatMul_grad/tuple/control_dependency_1:0", ""),  # TensorFlow 1
        ("gradients/dense/BiasAdd_grad/BiasAddGrad:0", ""),
        ("grads_fc.weight", ""),
    ],
)
def test_a_gradient_is_reported_by_its_name_alone(gradient: str, parameter: str) -> None:
    assert parameters_by_name((gradient,), ()) == (parameter,)
    assert parameters_by_name((gradient,), ("dense/kernel:0", "Net_b.weight")) == (parameter,)


def test_several_gradients_of_one_parameter_in_a_step() -> None:
    weight = "dense/weights/dense/kernel:0"
    several = ("gradients/dense/kernelGrad_0", "gradients/dense/kernelGrad_1")
    assert parameters_by_name(several, (weight,)) == (weight, weight)
    # Without the first one it is that of another layer of the name.
    assert parameters_by_name(several[1:], (weight,)) == ("dense_1/weights/dense/kernel:0",)
    twice = ("gradients/dense/kernelGrad_1_0", "gradients/dense/kernelGrad_1_1")
    other = "dense_1/weights/dense/kernel:0"
    assert parameters_by_name(twice, (weight, other)) == (other, other)


def test_the_same_names_are_looked_at_once() -> None:
    names = tuple(GRADIENT_OF.values()), tuple(OF_KERAS)
    assert parameters_by_name(*names) is parameters_by_name(*map(tuple, map(list, names)))


def test_gradients_of_a_step_and_those_that_are_declared() -> None:
    trial = TrialBuilder(num_workers=2)
    entry = CollectionEntry(
        "gradients",
        include_regex=("^gradients",),
        tensor_names=("gradients/dense/kernelGrad_1", "gradients/dense/MatMul_grad/x:0"),
    )
    data = CollectionsFile({"gradients": entry}, num_workers=2).encode()
    trial.store.put(collections_key("worker_0"), data)
    tensors = {f"{layer}/weights/dense/kernel:0": [1.0] for layer in ("dense_4", "dense")}
    trial.step(0, {**tensors, "gradients/dense/kernelGrad": [1.0]}, worker="worker_0")
    trial.step(0, tensors, worker="worker_1")
    (view,) = trial.views()
    gradients = view.tensors(collections=("gradients",))
    assert parameters_of(view, gradients) == ("dense/weights/dense/kernel:0",)
    assert declared_parameters(view) == {"worker_0": {"dense_4/weights/dense/kernel:0"}}
