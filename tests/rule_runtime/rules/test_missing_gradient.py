from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.outcome import IssueFound, NotEvaluated
from rule_runtime.engine.rule import Rule
from rule_runtime.rules.missing_gradient import MissingGradient
from rule_runtime.rules.vanishing_gradient import VanishingGradient
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract, Tensors
from tests.rule_runtime.outcomes import first_finding, make_run, reason_of
from tests.rule_runtime.rules.runs import found_at, with_maxima, write_gradient_stops


class TestMissingGradientContract(RuleContract):
    def make_rule(self) -> Rule:
        return MissingGradient(ignore_regex=("frozen",))

    def make_sick(self, tensors: dict[str, Any]) -> Tensors:
        return {**tensors, "gradient/Net_conv1.weight": np.zeros((8, 4))}


def run(num_steps: int = 15, *, gradient: object | None = None, **gradients: float) -> TrialBuilder:
    trial = TrialBuilder()
    for step in range(num_steps):
        tensors: dict[str, Any] = {"Net_a.weight": np.ones(3), "Net_b.weight": np.ones(3)}
        tensors |= {f"gradient/Net_{name}.weight": np.full(3, v) for name, v in gradients.items()}
        if gradient is not None:
            tensors["gradient/Net_a.weight"] = gradient
        trial.step(step, tensors)
    return trial


def test_fires_for_a_weight_without_a_gradient() -> None:
    trial = run(b=1.0)
    assert found_at(MissingGradient(), trial) == [9, 10, 11, 12, 13, 14]
    found = first_finding(MissingGradient(), trial)
    assert found.tensor == "Net_a.weight"
    message = "has had no gradient for 10 saved steps, as 1 of 2 weights"
    assert found.sentence == f"Net_a.weight: {message}"


def test_names_what_stops_the_gradient() -> None:
    stop = "`detach` at net.py:3, after Net_a"
    for stops in ({stop: ("Net_a.weight",)}, {stop: ("Net_a.weight",), "`gt`": ("Net_b.weight",)}):
        trial = run(b=1.0)
        write_gradient_stops(trial, stops)
        found = first_finding(MissingGradient(), trial)
        assert found.stopped_by == stop
        assert found.sentence.endswith(f"; gradients are stopped by {stop}")
    write_gradient_stops(trial, {"`gt`": ("Net_b.weight",)})
    found = first_finding(MissingGradient(), trial)
    assert found.stopped_by is None
    assert "stopped" not in found.sentence


def test_a_stop_alone_is_no_finding() -> None:
    trial = run(a=1.0, b=1.0)
    write_gradient_stops(trial, {"`detach`": ("Net_a.weight",)})
    assert not found_at(MissingGradient(), trial)


def test_any_number_of_other_weights_may_learn() -> None:
    """At most 2,048 weights are remembered, but only such that lack a gradient."""
    names = [f"layer{at}" for at in range(3000)]
    trial = TrialBuilder()
    for step in range(3):
        tensors = {f"Net_{name}.weight": np.ones(1) for name in names}
        tensors |= {f"gradient/Net_{name}.weight": np.ones(1) for name in names[:-1]}
        tensors[f"gradient/Net_{names[-1]}.weight"] = np.zeros(1)
        trial.step(step, tensors)
    (found,) = (o for o in trial.outcomes(MissingGradient(patience=3)) if isinstance(o, IssueFound))
    assert found.evidence.tensor == "Net_layer2999.weight"


def test_a_gradient_of_zeros_is_none() -> None:
    outcomes = run(a=0.0, b=1.0).outcomes(MissingGradient())
    found = next(outcome for outcome in outcomes if isinstance(outcome, IssueFound))
    assert "has had a gradient of exactly zero for 10 saved steps" in found.evidence.sentence
    assert not found_at(MissingGradient(), run(a=1e-30, b=1.0))


@pytest.mark.parametrize("value", [np.full(3, np.nan), np.full(3, np.inf)])
def test_a_gradient_that_is_not_finite_is_there(value: object) -> None:
    assert not found_at(MissingGradient(), run(gradient=value, b=1.0))


@pytest.mark.parametrize(("percent", "fires"), [(0.0, True), (50.0, True), (51.0, False)])
def test_a_few_weights_may_be_frozen(percent: float, fires: bool) -> None:
    assert bool(found_at(MissingGradient(absent_percent=percent), run(b=1.0))) is fires
    assert found_at(MissingGradient(absent_percent=percent), run(a=0.0, b=1.0))


def test_weights_that_are_frozen_on_purpose_can_be_named() -> None:
    assert not found_at(MissingGradient(ignore_regex=("_a[.]",)), run(b=1.0))


def test_the_collections_file_shows_which_weights_are_trained() -> None:
    for trained, fires in (("b",), False), (("a", "b"), True):
        trial = run(b=1.0)
        names = tuple(f"gradient/Net_{name}.weight" for name in trained)
        _declare(trial, names)
        assert bool(found_at(MissingGradient(), trial)) is fires


def test_without_any_gradient_nothing_is_known() -> None:
    for trial in (run(), run(a=0.0, b=0.0)):
        assert all(isinstance(o, NotEvaluated) for o in trial.outcomes(MissingGradient()))
    trial = make_run({"Net_a.weight": [1.0], "gradient/Net_b.weight": [1.0]}, mode=ModeKeys.EVAL)
    assert isinstance(trial.outcomes(MissingGradient())[0], NotEvaluated)


def _declare(trial: TrialBuilder, gradients: tuple[str, ...]) -> None:
    from hook_layer.format.collections_file import CollectionEntry, CollectionsFile
    from hook_layer.format.paths import collections_key

    entries = {
        "gradients": CollectionEntry(
            "gradients", include_regex=("^gradient",), tensor_names=gradients
        ),
        "weights": CollectionEntry("weights", include_regex=("^(?!gradient).*weight",)),
    }
    trial.store.put(collections_key("worker_0"), CollectionsFile(entries, num_workers=1).encode())


NAMES = ("a", "b", "c", "d", "e")


def run_of_layers(
    *without: str, moves: bool = False, declared: bool = True, weight: Any = (0.0, 1.0, 2.0)
) -> TrialBuilder:
    """Return a run of five layers, called one after the other, some without a gradient."""
    trial = TrialBuilder()
    for step in range(12):
        tensors: dict[str, Any] = {}
        for name in NAMES:
            tensors[f"Net_{name}.weight"] = np.asarray(weight) + step * moves
            tensors[f"{name}_output_0"] = np.ones(3)
            if name not in without:
                tensors[f"gradient/Net_{name}.weight"] = np.ones(3)
        trial.step(step, tensors)
    if declared:
        _declare(trial, tuple(f"gradient/Net_{name}.weight" for name in NAMES))
    return trial


@pytest.mark.parametrize(
    ("without", "fires"), [(("a",), True), (("a", "b"), True), (("e",), False), (("c",), False)]
)
def test_what_is_cut_off_from_the_loss_is_so_from_the_first_layer_on(
    without: tuple[str, ...], fires: bool
) -> None:
    assert bool(found_at(MissingGradient(), run_of_layers(*without))) is fires
    assert not found_at(MissingGradient(), run_of_layers(*without, declared=False))


@pytest.mark.parametrize("is_initial", [True, False])
def test_what_was_pretrained_may_run_without_gradients(is_initial: bool) -> None:
    random = np.random.default_rng(0)
    initial, pretrained = random.uniform(-0.2, 0.2, (40, 25)), random.normal(0, 0.2, (40, 25))
    trial = run_of_layers("a", "b", "c", weight=initial if is_initial else pretrained)
    assert bool(found_at(MissingGradient(), trial)) is is_initial


def test_weights_that_move_are_trained_at_steps_that_were_not_saved() -> None:
    without = ("a", "b", "c")  # as the generator is while the discriminator learns
    assert found_at(MissingGradient(), run_of_layers(*without))
    assert not found_at(MissingGradient(), run_of_layers(*without, moves=True))


def frozen_run(frozen: Any, *, moves: bool = False, num_steps: int = 15) -> TrialBuilder:
    """Train a head on top of a weight that is frozen by `requires_grad`."""
    trial = TrialBuilder()
    for step in range(num_steps):
        tensors = {
            "Net_body.weight": frozen * (1 - 1e-3 * step * moves),
            "Net_head.weight": np.ones(3) * step,
            "gradient/Net_head.weight": np.ones(3),
            "body_output_0": np.ones(3),
            "head_output_0": np.ones(3),
        }
        trial.step(step, tensors)
    _declare(trial, ("gradient/Net_head.weight",))
    return trial


INITIAL = {
    "torch's linear layer": np.random.default_rng(0).uniform(-0.25, 0.25, (32, 16)),
    "torch's convolution": np.random.default_rng(0).uniform(-1 / 6, 1 / 6, (32, 4, 3, 3)),
    "Keras's dense layer": np.random.default_rng(0).uniform(-0.25, 0.25, (64, 32)),  # sqrt(6 / 96)
}


@pytest.mark.parametrize("frozen", INITIAL.values(), ids=INITIAL)
def test_what_was_frozen_before_it_was_ever_trained(frozen: Any) -> None:
    trial = frozen_run(frozen)
    assert found_at(MissingGradient(), trial)[0] == 9
    assert not found_at(MissingGradient(ignore_regex=("body",)), trial)
    assert not found_at(MissingGradient(), frozen_run(frozen, moves=True))  # a momentum encoder


@pytest.mark.parametrize(
    "frozen",
    [
        np.random.default_rng(0).normal(0, 0.14, (32, 16)),
        np.random.default_rng(0).uniform(-0.25, 0.25, (32, 16)) * 1.3,
        np.random.default_rng(0).uniform(-0.25, 0.25, (32, 16)) * 0.9,
        np.random.default_rng(0).uniform(-0.25, 0.25, (5, 16)),  # too few
        np.clip(np.random.default_rng(0).normal(0, 0.14, (64, 16)), -0.25, 0.25),
        np.zeros((32, 16)),
    ],
)
def test_what_was_trained_may_be_frozen(frozen: Any) -> None:
    assert not found_at(MissingGradient(), frozen_run(frozen))


@pytest.mark.parametrize(
    ("gain", "norm", "fires"), [(1.0, 1.0, True), (1.1, 1.0, False), (1.0, None, False)]
)
def test_a_frozen_trunk_may_be_drawn_from_a_normal_distribution(
    gain: float, norm: float | None, fires: bool
) -> None:
    """New normalisations are constant; those of a pretrained trunk are not."""
    random, trial = np.random.default_rng(0), TrialBuilder()
    conv = gain * random.normal(0, np.sqrt(2 / (64 * 9)), (64, 32, 3, 3))
    norms = np.full(64, norm) if norm else random.normal(1, 0.1, 64)
    for step in range(12):
        tensors = {"Net_conv.weight": conv, "Net_norm.weight": norms}
        tensors |= {"Net_head.weight": np.ones(3) * step, "gradient/Net_head.weight": np.ones(3)}
        tensors |= {f"{name}_output_0": np.ones(3) for name in ("conv", "norm", "head")}
        trial.step(step, tensors)
    _declare(trial, ("gradient/Net_head.weight",))
    assert bool(found_at(MissingGradient(), trial)) is fires


@pytest.mark.parametrize("beside", ["0.down", "0.wrapped.down", "0"])
def test_what_is_frozen_beside_adapters_may_be_untrained(beside: str) -> None:
    trial, initial = TrialBuilder(), INITIAL["torch's linear layer"]
    for step in range(12):
        tensors = {f"Net_{name}.weight": initial for name in ("stem", "0.base")}
        for name in (beside, "head"):
            tensors |= {f"Net_{name}.weight": np.full(3, step)}
            tensors |= {f"gradient/Net_{name}.weight": np.ones(3)}
        calls = ("stem", "0.base", beside, "head")
        trial.step(step, tensors | {f"{name}_output_0": np.ones(3) for name in calls})
    _declare(trial, tuple(f"gradient/Net_{name}.weight" for name in (beside, "head")))
    assert not found_at(MissingGradient(), trial)


def recurrent_run(*inputs: tuple[int, ...], names: tuple[str, str] = ("x", "h")) -> TrialBuilder:
    """Return a run of a recurrent layer whose matrix of the state has a gradient of zero."""
    trial, (of_input, of_state) = TrialBuilder(), names
    for step in range(12):
        tensors: dict[str, Any] = {"gradient/Net_head.weight": np.ones((2, 8))}
        for name, size, matrix in ((of_input, 1.0, (32, 5)), (of_state, 0.0, (32, 8))):
            tensors[f"Net_rnn.{name}"] = np.full(matrix, 1.0 + step)
            tensors[f"gradient/Net_rnn.{name}"] = np.full(matrix, size)
        tensors |= {f"rnn_input_{at}": np.ones(shape) for at, shape in enumerate(inputs)}
        calls = {f"{name}_output_0": np.ones(3) for name in ("rnn", "head")}
        trial.step(step, tensors | calls | {"Net_head.weight": np.full((2, 8), step)})
    return trial


@pytest.mark.parametrize(
    ("inputs", "fires"),
    [
        (((4, 1, 5),), False),
        (((1, 4, 5),), False),
        (((4, 5),), False),  # a cell
        (((4, 5), (4, 8)), False),
        (((4, 5), (4, 8), (4, 5), (4, 8)), True),  # a cell that is called twice
        (((4, 9, 5),), True),
    ],
)
def test_one_time_step_has_no_state_before_it(
    inputs: tuple[tuple[int, ...], ...], fires: bool
) -> None:
    trial = recurrent_run(*inputs, names=("weight_i", "weight_s"))
    assert bool(found_at(MissingGradient(), trial)) is fires
    assert bool(found_at(VanishingGradient(), trial)) is fires
    assert bool(found_at(VanishingGradient(max_share=1e-6), trial)) is fires


@pytest.mark.parametrize("given", [None, (0, 16), (4, 16)])
def test_an_expert_without_tokens_needs_no_gradient(given: tuple[int, ...] | None) -> None:
    """An expert is not called, or with no rows."""
    trial = TrialBuilder()
    for step in range(12):
        tensors: dict[str, Any] = {}
        for name, size in (("gate", 1.0), ("experts.0", 0.0), ("experts.1", 1.0), ("head", 1.0)):
            tensors[f"Net_{name}.weight"] = np.full(3, float(step))
            tensors[f"gradient/Net_{name}.weight"] = np.full(3, size)
            shape = given if not size else (4, 16)
            if shape is not None:
                tensors |= {f"{name}_{kind}_0": np.ones(shape) for kind in ("input", "output")}
        trial.step(step, tensors)
    is_called = given == (4, 16)
    assert bool(found_at(MissingGradient(), trial)) is is_called
    assert bool(found_at(VanishingGradient(max_share=1e-6), trial)) is is_called


def test_what_had_a_gradient_may_be_frozen_later() -> None:
    """As the body of a model whose adapters are trained later."""
    trial = TrialBuilder()
    ones = np.ones(3)
    for step in range(40):
        gradients = {"gradient/Net_a.weight": ones} if step < 12 else {}
        weights = {"Net_a.weight": ones * min(step, 12), "Net_b.weight": ones * step}
        trial.step(step, weights | gradients | {"gradient/Net_b.weight": ones})
    assert not found_at(MissingGradient(), trial)
    assert found_at(MissingGradient(), run(num_steps=40, b=1.0))


@pytest.mark.parametrize("is_trained", [False, True])
def test_a_model_that_is_called_later_is_evaluated_from_then_on(is_trained: bool) -> None:
    """As a generator that is called after the first step of its discriminator."""
    trial = TrialBuilder()
    ones = np.ones(3)
    for step in range(20):
        tensors = {"D_fc.weight": ones * step, "gradient/D_fc.weight": ones}
        if step:
            tensors["G_fc.weight"] = ones
        if is_trained and step % 5 == 1:
            tensors["gradient/G_fc.weight"] = ones
        trial.step(step, tensors)
    assert bool(found_at(MissingGradient(), trial)) is not is_trained


def test_why_no_gradient_is_known() -> None:
    for trial, message in (
        (
            with_maxima("Net_a.weight", "gradient/Net_a.weight"),
            "saved gradients have no abs_mean",
        ),
        (run(a=0.0, b=0.0), "all saved gradients are zero"),
    ):
        assert reason_of(trial.outcomes(MissingGradient())[0]).startswith(message)


def run_of_parts(names: tuple[str, ...], gradients: dict[str, float | None]) -> TrialBuilder:
    """Return a run of layers as initialised, called in order, with biases; None is no gradient."""
    trial = TrialBuilder()
    weight = INITIAL["torch's linear layer"]
    for step in range(12):
        tensors: dict[str, Any] = {}
        for name in names:
            tensors |= {f"Net_{name}.weight": weight, f"{name}_output_0": np.ones(3)}
            size = gradients.get(name, 1.0)
            if size is not None:
                tensors[f"gradient/Net_{name}.weight"] = np.full(3, size)
                tensors[f"gradient/Net_{name}.bias"] = np.full(3, size)
        trial.step(step, tensors)
    _declare(trial, tuple(f"gradient/Net_{name}.weight" for name in names))
    return trial


@pytest.mark.parametrize(
    ("zeros", "fires"), [(("d", "e"), False), (("e",), False), (("c", "d"), True), (("a",), True)]
)
def test_a_part_whose_loss_does_not_count_yet(zeros: tuple[str, ...], fires: bool) -> None:
    trial = run_of_parts(NAMES, dict.fromkeys(zeros, 0.0))
    assert bool(found_at(MissingGradient(), trial)) is fires
    assert bool(found_at(VanishingGradient(max_share=1e-6), trial)) is fires
    assert found_at(VanishingGradient(), trial)  # as the original's


@pytest.mark.parametrize(("without", "fires"), [("e", False), ("c", False), ("a", True)])
def test_what_is_called_after_a_layer_that_learns_may_be_trained_later(
    without: str, fires: bool
) -> None:
    trial = run_of_parts(NAMES, {without: None})
    assert bool(found_at(MissingGradient(), trial)) is fires


def test_the_name_of_a_layer_may_end_that_of_another_one() -> None:
    assert found_at(MissingGradient(), run_of_parts(("x", "b", "c", "my_x"), {"x": None}))
