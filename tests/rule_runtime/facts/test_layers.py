"""The layers of a model, and how far gradients get through them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rule_runtime.facts.layers import Layers
from tests.rule_runtime.outcomes import make_run

WORKER = "worker_0"


def layer(name: str, weight: tuple[int, ...], into: tuple[int, ...], out: tuple[int, ...]) -> Any:
    """Return what is saved of a layer `name` of a model `Net`."""
    rng = np.random.default_rng(sum(name.encode()))
    return {
        f"Net_{name}.weight": rng.normal(size=weight),
        f"{name}_input_0": rng.normal(size=into),
        f"{name}_output_0": rng.normal(size=out),
    }


def layers_of(*parts: dict[str, Any]) -> Layers:
    trial = make_run({name: value for part in parts for name, value in part.items()})
    return trial.views()[0].fact(Layers)


def chain(*names: str) -> Layers:
    return layers_of(*(layer(name, (4, 4), (8, 4), (8, 4)) for name in names))


def weights(*names: str) -> set[str]:
    return {f"Net_{name}.weight" for name in names}


@pytest.mark.parametrize(
    ("learning", "before", "after"),
    [
        ("abc", "", ""),
        ("c", "ab", ""),
        ("ac", "", ""),
        ("b", "a", "c"),
        ("", "", ""),
    ],
)
def test_layers_called_before_and_after_those_that_learn(
    learning: str, before: str, after: str
) -> None:
    found = chain("a", "b", "c").before_and_after(WORKER, weights(*learning))
    assert found == (weights(*before), weights(*after))


def test_the_order_is_that_of_calls_and_not_of_names() -> None:
    assert chain("b", "x", "a").before_and_after(WORKER, weights("x")) == (
        weights("b"),
        weights("a"),
    )


def test_a_parameter_of_no_layer_may_be_a_prompt() -> None:
    assert chain("a", "b").before_and_after(WORKER, {"Net_prompt", "Net_b.weight"}) == (
        set(),
        set(),
    )


def test_a_layer_inside_a_module_that_learns_is_not_before_it() -> None:
    """As the frozen layer of LoRA, whose module has the matrices that learn."""
    lora = layer("0", (2, 4), (8, 4), (8, 4))
    lora = {"Net_0.base.weight": np.ones((4, 4)), "0.base_output_0": np.ones((8, 4)), **lora}
    found = layers_of(layer("a", (4, 4), (8, 4), (8, 4)), lora)
    assert found.before_and_after(WORKER, weights("0")) == (weights("a"), set())


FROZEN_AND_LEARNING = {
    "a trunk and a head": ("a b | c", "a b"),
    "in one module": ("net.a net.b | net.c net.d", "net.a net.b"),
    "an adapter before a frozen layer": ("a | b | c", ""),
    "an adapter in a module with a frozen layer": ("a 0.base | 0.down 0.up head", ""),
    "an adapter in a part of a module": ("a 0.x.base | 0.y.down head", ""),
}


@pytest.mark.parametrize(("calls", "trunk"), FROZEN_AND_LEARNING.values(), ids=FROZEN_AND_LEARNING)
def test_a_frozen_trunk_has_no_adapters(calls: str, trunk: str) -> None:
    """Calls are of frozen, learning and again frozen layers."""
    frozen, learning, later = (part.split() for part in f"{calls}|".split("|")[:3])
    found = chain(*frozen, *learning, *later)
    idle = weights(*frozen, *later)
    assert found.frozen_trunk(WORKER, idle, weights(*learning)) == weights(*trunk.split())


def test_a_layer_beside_a_frozen_one_is_an_adapter() -> None:
    parts = [layer(name, (4, 4), (8, 4), (8, 4)) for name in ("a", "b", "c")]
    parts[2]["c_input_0"] = 2 * parts[1]["b_input_0"]
    frozen, learning = weights("a", "b"), weights("c")
    parts[0]["a_input_0"] = 3 * parts[1]["b_input_0"]
    assert layers_of(*parts).frozen_trunk(WORKER, frozen, learning) == frozen
    parts[2]["c_input_0"] = parts[1]["b_input_0"]
    assert not layers_of(*parts).frozen_trunk(WORKER, frozen, learning)


@pytest.mark.parametrize(
    ("constant", "shared", "found"),
    [
        (False, ("aux.0", "c"), "aux.0 aux.1"),
        (False, ("aux.1", "c"), ""),
        (True, ("aux.0", "c"), ""),
    ],
)
def test_a_part_of_its_own_is_bypassed(constant: bool, shared: tuple[str, str], found: str) -> None:
    names = ("a", "aux.0", "aux.1", "c")
    parts = {name: layer(name, (4, 4), (8, 4), (8, 4)) for name in names}
    first, later = shared
    parts[later][f"{later}_input_0"] = parts[first][f"{first}_input_0"]
    if constant:
        parts["aux.1"]["aux.1_output_0"] = np.zeros((8, 4))
    layers = layers_of(*parts.values())
    assert layers.bypassed(WORKER, weights("a", "c")) == weights(*found.split())


def test_the_inputs_of_a_layer_are_known_once_it_is_called() -> None:
    called = chain("a")
    assert called.shapes_at("Net_a.weight", WORKER) == [(8, 4)]
    assert called.shapes_at("Net_a.weight", WORKER, "output") == [(8, 4)]
    assert called.shapes_at("Net_b.weight", WORKER) == []
    assert layers_of({"Net_a.weight": np.ones(3)}).shapes_at("Net_a.weight", WORKER) is None


def test_modules_of_two_models_with_one_name_have_no_known_order() -> None:
    other = {"Other_a.weight": np.ones((4, 4))}
    found = layers_of(layer("a", (4, 4), (8, 4), (8, 4)), layer("b", (4, 4), (8, 4), (8, 4)), other)
    assert found.before_and_after(WORKER, weights("b")) == (set(), set())


@pytest.mark.parametrize(
    ("weight", "into", "out", "is_linear"),
    [
        ((6, 4), (8, 4), (8, 6), True),
        ((6, 4), (8, 5, 4), (8, 5, 6), True),
        ((6, 3, 3, 3), (8, 3, 9, 9), (8, 6, 7, 7), True),
        ((6, 1, 3, 3), (8, 6, 9, 9), (8, 6, 7, 7), False),  # depthwise
        ((40, 6), (8, 5), (8, 5, 6), False),  # an embedding
        ((4,), (8, 4), (8, 4), False),
    ],
)
def test_linear_layers_are_recognised_by_shapes(
    weight: tuple[int, ...], into: tuple[int, ...], out: tuple[int, ...], is_linear: bool
) -> None:
    found = layers_of(layer("a", weight, into, out)).linear
    assert bool(found) is is_linear
    if found:
        assert (found[0].outputs, found[0].inputs) == weight[:2]


def test_why_no_layer_is_linear() -> None:
    divided = layers_of(layer("a", (12,), (8, 4), (8, 6)))
    assert "divided among ranks" in divided.why_none_is_linear
    flat = {"gradient/Net_flat_param": np.ones(9)}
    assert "use_orig_params" in layers_of(flat).why_none_is_linear


def test_a_layer_of_a_further_model_has_the_name_of_its_owner() -> None:
    first = layer("a", (4, 4), (8, 4), (8, 4))
    second = {name.replace("Net_a", "a").replace("a_", "Net2_a_"): of for name, of in first.items()}
    second["Net2_a.weight"] = np.ones((2, 3))
    del second["a.weight"]
    found = layers_of(first, second)
    assert found.shapes_of("a", WORKER) == [(4, 4)]
    assert found.shapes_of("Net2_a", WORKER) == [(2, 3)]
