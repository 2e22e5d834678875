"""Names of layers in all frameworks, and the last layer before a loss."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from hook_layer.format.collections_file import (
    CollectionEntry,
    CollectionsFile,
    LayerKind,
    parse_collections,
)
from hook_layer.format.errors import CollectionsFileError
from hook_layer.format.paths import collections_key
from rule_runtime.engine.outcome import IssueFound
from rule_runtime.facts.last_layers import LastLayer, last_layers
from rule_runtime.facts.layer_names import Place, WeightShape, owners_of, place_of
from rule_runtime.facts.layers import Layers
from rule_runtime.rules.output_contract import OutputContract
from rule_runtime.testing import TrialBuilder

WORKER = "worker_0"
RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("block.fc_input_0", Place("block.fc", "input", 0)),
        ("fc_output_12", Place("fc", "output", 12)),
        ("fc/inputs", Place("fc", "input", 0)),
        ("fc/outputs_1", Place("fc", "output", 1)),
        ("loss", Place("loss", "", 0)),
    ],
)
def test_inputs_and_outputs_are_known_by_name(name: str, place: Place) -> None:
    assert place_of(name) == place


def test_parameters_show_their_layers() -> None:
    assert owners_of("My_Net_fc.weight") == ["My_Net_fc", "Net_fc", "fc"]
    assert owners_of("fc/weights/outer/fc/kernel:0") == ["fc"]


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("Net_fc.weight", (3, 8), WeightShape(3, 8, (), (-1,))),
        ("Net_conv.weight", (3, 8, 5, 5), WeightShape(3, 8, (5, 5), (1,))),
        ("fc/weights/fc/kernel:0", (8, 3), WeightShape(3, 8, (), (-1,))),
        ("conv/weights/conv/kernel:0", (5, 5, 8, 3), WeightShape(3, 8, (5, 5), (-1, 1))),
        ("rnn/weights/rnn/simple_rnn_cell/kernel:0", (8, 3), None),
        ("words/weights/words/embeddings:0", (8, 3), None),
        ("fc/weights/fc/bias:0", (3,), None),
    ],
)
def test_weights_have_outputs_and_inputs(
    name: str, shape: tuple[int, ...], expected: WeightShape | None
) -> None:
    assert WeightShape.of(name, shape) == expected


def model(outputs: Any, layers: dict[str, LayerKind], targets: Any) -> TrialBuilder:
    """Return a run of one step whose last layer `head` feeds a loss through a reshape."""
    x = RNG.normal(size=(16, 8))
    trial = TrialBuilder()
    trial.step(
        0,
        {
            "head_input_0": x,
            "head_output_0": outputs,
            "flat_output_0": outputs.reshape(-1),
            "MSELoss_input_0": outputs.reshape(-1),
            "MSELoss_input_1": targets,
            "MSELoss_output_0": np.float64(80.0),
        },
    )
    trial.store.put(collections_key(WORKER), CollectionsFile({}, layers=layers).encode())
    return trial


TANH = np.tanh(RNG.normal(size=(16, 1)) / 9)
FAR = RNG.uniform(7, 12, 16)


def test_the_last_layer_is_that_which_returned_the_outputs_of_the_loss() -> None:
    layers = {"head": LayerKind("Tanh", "tanh"), "flat": LayerKind("Flatten")}
    (view,) = model(TANH, layers, FAR).views()
    assert last_layers(view) == {("MSELoss_input_0", WORKER): LastLayer("tanh")}


DROPPED = TANH * np.tile([[0.0], [2.0]], (8, 1))


@pytest.mark.parametrize(
    ("kinds", "tensors", "is_found"),
    [
        ([LayerKind("Dropout")], [TANH, DROPPED], True),
        ([LayerKind("Dropout")], [TANH, TANH], False),  # of rate 0, or in validation
        ([LayerKind("Dropout"), LayerKind("Softmax", "softmax")], [TANH, DROPPED, FAR], True),
        ([LayerKind("Dropout"), LayerKind("Activation", "softmax")], [TANH, DROPPED, FAR], True),
        (
            [LayerKind("Dropout"), LayerKind("LogSoftmax", "log_softmax")],
            [TANH, DROPPED, FAR],
            True,
        ),
        ([LayerKind("Dropout"), LayerKind("Dense", "softmax")], [TANH, DROPPED, FAR], False),
        ([LayerKind("Dropout"), LayerKind("Linear", "linear")], [TANH, DROPPED, FAR], False),
        ([LayerKind("Own")], [TANH, DROPPED], False),
    ],
)
def test_dropout_of_the_outputs_is_found(
    kinds: list[LayerKind], tensors: list[Any], is_found: bool
) -> None:
    saved: dict[str, Any] = {}
    for number, (one, two) in enumerate(pairwise(tensors)):
        saved |= {f"{number}_input_0": one, f"{number}_output_0": two}
    loss = {
        "L1Loss_input_0": tensors[-1],
        "L1Loss_input_1": -np.abs(TANH) if kinds[-1].activation == "log_softmax" else np.abs(TANH),
        "L1Loss_output_0": 1.0,
    }
    trial = TrialBuilder()
    trial.step(0, {name: np.asarray(of) for name, of in (saved | loss).items()})
    layers = {str(number): kind for number, kind in enumerate(kinds)}
    trial.store.put(collections_key(WORKER), CollectionsFile({}, layers=layers).encode())
    (outcome,) = trial.outcomes(OutputContract())
    found = outcome.evidence.sentence if isinstance(outcome, IssueFound) else ""
    assert ("gets outputs of a dropout layer" in found) is is_found


@pytest.mark.parametrize(
    ("activation", "targets", "is_found"),
    [
        ("tanh", FAR, True),
        ("sigmoid", -FAR, True),
        ("tanh", FAR / 20, False),
        ("linear", FAR, False),
        ("", FAR, False),
        ("softplus", FAR, False),
    ],
)
def test_targets_beyond_the_last_layer_are_found_at_the_first_step(
    activation: str, targets: Any, is_found: bool
) -> None:
    trial = model(TANH, {"head": LayerKind("Dense", activation)}, targets)
    (outcome,) = trial.outcomes(OutputContract())
    assert isinstance(outcome, IssueFound) is is_found
    if isinstance(outcome, IssueFound):
        assert f"gets outputs of {activation}, [16] from" in outcome.evidence.sentence


def test_an_activation_inside_a_layer_is_part_of_the_facts() -> None:
    x = RNG.normal(size=(16, 8))
    kernel = RNG.normal(size=(8, 3))
    trial = TrialBuilder()
    trial.step(
        0, {"fc/weights/fc/kernel:0": kernel, "fc/inputs": x, "fc/outputs": np.tanh(x @ kernel)}
    )
    for kind, expected in ((LayerKind("Dense", "tanh"), "tanh"), (LayerKind("Own"), "")):
        weights = CollectionEntry("weights", include_regex=["/weights/"])
        file = CollectionsFile({"weights": weights}, layers={"fc": kind})
        trial.store.put(collections_key(WORKER), file.encode())
        (layer,) = trial.views()[0].fact(Layers).linear
        assert (layer.module, layer.outputs, layer.inputs) == ("fc", 3, 8)
        assert layer.activation == expected


def test_the_collections_file_has_the_layers() -> None:
    file = CollectionsFile({}, layers={"fc": LayerKind("Dense", "relu")})
    assert parse_collections(file.encode(), file="x").layers == file.layers
    wrong = b'{"collections": {}, "_meta": {"layers": {"fc": {"type": 3}}}}'
    with pytest.raises(CollectionsFileError, match=r"_meta.layers.fc.type: text expected"):
        parse_collections(wrong, file="x")
