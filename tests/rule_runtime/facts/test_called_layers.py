"""Parts of a model whose loss does not count yet, beside layers that are cut off or dead."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from hook_layer.format.collections_file import CollectionEntry, CollectionsFile
from hook_layer.format.paths import collections_key
from rule_runtime.engine.outcome import IssueFound, Passed
from rule_runtime.engine.rule import Rule
from rule_runtime.facts.called_layers import count_later
from rule_runtime.rules.missing_gradient import MissingGradient
from rule_runtime.rules.vanishing_gradient import VanishingGradient
from rule_runtime.testing import TrialBuilder
from tests.rule_runtime.rules.runs import found_at

RULES = (MissingGradient(), VanishingGradient(max_share=1e-6, patience=10))
ZERO, CONSTANT = np.zeros((8, 4)), np.full((8, 4), 0.5)


def signal(seed: int) -> Any:
    return np.random.default_rng(seed).normal(size=(8, 4))


def layer(
    name: str,
    into: Any,
    out: Any,
    gradient: float | None = 1.0,
    *,
    bias: bool = True,
    call: int = 0,
) -> dict[str, Any]:
    """Return what is saved of a layer: weight, input, output and, unless None, gradients."""
    module = name.partition("_")[2]
    tensors = {f"{name}.weight": np.random.default_rng(0).uniform(-0.25, 0.25, (32, 16))}
    tensors |= {f"{module}_input_{call}": into, f"{module}_output_{call}": out}
    if gradient is not None:
        tensors[f"gradient/{name}.weight"] = np.full((32, 16), gradient)
        if bias:
            tensors[f"gradient/{name}.bias"] = np.full(32, gradient)
    return tensors


def loss(name: str, compared: Any) -> dict[str, Any]:
    return {f"{name}_input_0": compared, f"{name}_output_0": np.float64(0.7)}


def run(*parts: dict[str, Any], first_step: int = 0, num_workers: int = 1) -> TrialBuilder:
    trial = TrialBuilder(num_workers=num_workers)
    tensors = {name: value for part in parts for name, value in part.items()}
    for step in range(first_step, first_step + 10):
        for worker in range(num_workers):
            trial.step(step, tensors, mode_step=step, worker=f"worker_{worker}")
    names = tuple(f"gradient/{name}" for name in tensors if name.endswith(".weight"))
    entries = {
        "gradients": CollectionEntry("gradients", include_regex=("^gradient",), tensor_names=names),
        "weights": CollectionEntry("weights", include_regex=("^(?!gradient).*weight$",)),
        "losses": CollectionEntry("losses", include_regex=("Loss_output_[0-9]+$",)),
    }
    for worker in range(num_workers):
        file = CollectionsFile(entries, num_workers=num_workers)
        trial.store.put(collections_key(f"worker_{worker}"), file.encode())
    return trial


def two_models(of_first: float | None, of_second: float | None) -> TrialBuilder:
    """Return a run of a model and of an adversary that takes its answer, both with a `net.0`."""
    x, hidden, answer, other, verdict = map(signal, range(5))
    return run(
        layer("G_net.0", x, hidden, of_first),
        layer("G_net.2", hidden, answer, of_first),
        {"G_output_0": answer},
        layer("D_net.0", answer, other, of_second, call=1),
        layer("D_net.2", other, verdict, of_second, call=1),
        {"D_output_0": verdict},
        loss("MSELoss", answer),
    )


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("of_first", "of_second", "fires"), [(1.0, 0.0, False), (0.0, 1.0, True), (1.0, 1.0, False)]
)
def test_two_models_whose_layers_have_the_same_names(
    rule: Rule, of_first: float, of_second: float, *, fires: bool
) -> None:
    assert bool(found_at(rule, two_models(of_first, of_second))) is fires


@pytest.mark.parametrize(("of_first", "of_second", "fires"), [(None, 1.0, True), (1.0, 1.0, False)])
def test_one_of_such_models_may_be_cut_off(
    of_first: float | None, of_second: float | None, *, fires: bool
) -> None:
    rule = MissingGradient(absent_percent=100.0)  # so that two of four weights are few
    assert bool(found_at(rule, two_models(of_first, of_second))) is fires


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("into", "fires"), [(signal(1), False), (ZERO, True)], ids=["weight 0", "dead units ahead"]
)
def test_a_last_layer_without_a_bias(rule: Rule, into: Any, *, fires: bool) -> None:
    head = layer("Net_b", into, signal(2), 0.0, bias=False)
    assert bool(found_at(rule, run(layer("Net_a", signal(0), signal(1)), head))) is fires


def aux_first(*after: dict[str, Any], of_trunk: float = 1.0, taken: int = 1) -> TrialBuilder:
    """Return a run whose auxiliary head is called ahead of the main one, and multiplied by 0."""
    return run(
        layer("Net_trunk", signal(0), signal(1), of_trunk),
        layer("Net_aux1", signal(1), signal(2), 0.0),
        layer("Net_aux2", signal(2), signal(3), 0.0),
        layer("Net_head", signal(taken), signal(4)),
        {"Net_output_0": signal(4)},
        *after,
        loss("CrossEntropyLoss", signal(4)),
    )


@pytest.mark.parametrize("rule", RULES)
def test_a_head_that_is_called_ahead_of_the_main_one(rule: Rule) -> None:
    assert not found_at(rule, aux_first(loss("BCEWithLogitsLoss", signal(3))))
    assert not found_at(rule, aux_first({"Net_output_1": signal(3)}))
    # Nobody knows where its output goes: layers behind it may be cut off.
    assert found_at(rule, aux_first())
    # The main head takes it, too, or what is cut off comes before it.
    assert found_at(rule, aux_first(loss("BCEWithLogitsLoss", signal(3)), taken=3))
    assert found_at(rule, aux_first(loss("BCEWithLogitsLoss", signal(3)), of_trunk=0.0))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("own", "answer", "fires"),
    [
        (signal(2), ZERO, True),
        (signal(2), abs(signal(2)), False),
        (signal(2), np.zeros(8, int), False),  # the class that it answers
        (ZERO, CONSTANT, False),  # a head that begins with weights of zero
    ],
)
def test_units_may_be_dead_at_the_end(rule: Rule, own: Any, answer: Any, *, fires: bool) -> None:
    body, head = layer("Net_a", signal(0), signal(1)), layer("Net_b", signal(1), own, 0.0)
    assert bool(found_at(rule, run(body, head, {"Net_output_0": answer}))) is fires


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("first_step", "fires"), [(99_980, False), (100_000, True)])
def test_a_loss_that_never_counts_is_one_that_was_forgotten(
    rule: Rule, first_step: int, *, fires: bool
) -> None:
    parts = layer("Net_a", signal(0), signal(1)), layer("Net_b", signal(1), signal(2), 0.0)
    assert bool(found_at(rule, run(*parts, first_step=first_step))) is fires


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("of_head", "fires"), [(1.0, True), (0.0, False)])
def test_several_workers_are_judged_each_by_its_own_calls(
    rule: Rule, of_head: float, *, fires: bool
) -> None:
    first, second = layer("Net_a", signal(0), signal(1)), layer("Net_b", signal(1), signal(2), 0.0)
    head = layer("Net_c", signal(2), signal(3), of_head)
    last = run(first, second, head, num_workers=2).outcomes(rule)[-1]
    assert isinstance(last, IssueFound if fires else Passed)


def num_calls(num_layers: int) -> int:
    """Return how many functions run while a model, half of it with gradients of zero, is judged."""
    parts = [
        layer(f"Net_{at}", signal(at), signal(at + 1), float(at < num_layers / 2))
        for at in reversed(range(num_layers))
    ]
    step = run(*parts).views()[0]
    gradients = step.tensors(collections=("gradients",))
    count_later(step, gradients)  # what names mean is worked out once
    found = 0

    def count(*_: object) -> None:
        nonlocal found
        found += 1

    sys.setprofile(count)
    try:
        count_later(step, gradients)
    finally:
        sys.setprofile(None)
    return found


def test_the_cost_grows_as_the_number_of_layers_does() -> None:
    assert num_calls(160) < 5 * num_calls(40)
