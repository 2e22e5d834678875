"""Models of many kinds, each with the values that torch itself has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

import hook_layer.pytorch as smd
from hook_layer.testing.written_trial import WrittenTrial


def make_hook(trial: WrittenTrial, **options: Any) -> smd.Hook:
    options.setdefault("include_collections", ["weights", "biases", "gradients"])
    return smd.Hook(trial.uri, save_config=smd.SaveConfig(save_interval=1), **options)


def array(tensor: torch.Tensor) -> np.ndarray:
    """Return a copy of a tensor as the hook stores it."""
    value = tensor.detach()
    value = value.to_dense() if value.is_sparse else value
    return (value.float() if value.dtype == torch.bfloat16 else value).clone().numpy()


def train(
    hook: smd.Hook,
    net: nn.Module,
    loss_of: Callable[[torch.Tensor], torch.Tensor],
    inputs: torch.Tensor,
    num_steps: int = 3,
) -> list[dict[str, np.ndarray]]:
    """Train, and return the parameters before each step, its gradients and its loss."""
    hook.register_module(net)
    name = type(net).__name__
    optimizer = torch.optim.SGD((p for p in net.parameters() if p.requires_grad), lr=0.1)
    expected = []
    for _ in range(num_steps):
        optimizer.zero_grad()
        tensors = {f"{name}_{n}": array(p) for n, p in net.named_parameters()}
        loss = loss_of(net(inputs))
        tensors["Loss_output_0"] = array(loss)
        loss.backward()
        for n, p in net.named_parameters():
            if p.grad is not None:
                tensors[f"gradient/{name}_{n}"] = array(p.grad)
        expected.append(tensors)
        optimizer.step()
    return expected


def assert_saved(
    trial: WrittenTrial, hook: smd.Hook, expected: list[dict[str, np.ndarray]]
) -> None:
    hook.close()
    assert not hook.report().errors
    assert hook.report().late_tensors == 0
    assert list(trial.indexes()) == list(range(len(expected)))
    for step, tensors in enumerate(expected):
        values, statistics = trial.values(step), trial.statistics(step)
        assert values.keys() == tensors.keys()
        for name, value in tensors.items():
            np.testing.assert_array_equal(values[name], value, err_msg=name, strict=True)
            if np.isrealobj(value):
                row, wide = statistics[name], value.astype(np.float64)
                assert row["size"] == value.size
                assert row["l2"] == pytest.approx(np.linalg.norm(wide), rel=1e-5)
                assert row["max"] == pytest.approx(wide.max(), rel=1e-6)


class Net(nn.Module):
    """Two layers and one that no forward pass uses."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(3, 4)
        self.second = nn.Linear(4, 2)
        self.unused = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.second(self.first(x).tanh())
        return result


def square(outputs: torch.Tensor) -> torch.Tensor:
    return outputs.square().mean()


def test_frozen_and_unused_parameters(trial: WrittenTrial) -> None:
    hook, net = make_hook(trial), Net()
    net.first.weight.requires_grad_(False)
    expected = train(hook, net, square, torch.ones(2, 3))
    assert_saved(trial, hook, expected)
    gradients = {name for name in expected[0] if name.startswith("gradient/")}
    assert gradients == {
        f"gradient/Net_{n}" for n in ("first.bias", "second.weight", "second.bias")
    }


def test_a_parameter_that_is_thawed_while_training(trial: WrittenTrial) -> None:
    hook, net = make_hook(trial), Net()
    hook.register_module(net)
    net.first.requires_grad_(requires_grad=False)
    for step in range(3):
        if step == 2:
            net.first.requires_grad_(requires_grad=True)
            net.second.requires_grad_(requires_grad=False)
            net.zero_grad()
        square(net(torch.ones(2, 3))).backward()
    hook.close()
    found = [sum("gradient/Net_first" in name for name in trial.names(step)) for step in range(3)]
    assert found == [0, 0, 2]
    assert not any("gradient/Net_second" in name for name in trial.names(2))


class CountingMetric(nn.Module):
    """Has a hash of what it has counted, as metrics of torchmetrics have."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return x

    def __hash__(self) -> int:
        return hash((type(self), self.count))


class Measured(Net):
    """A model with a metric among its parts."""

    def __init__(self) -> None:
        super().__init__()
        self.metric = CountingMetric()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.metric(super().forward(x))
        return result


def test_a_part_whose_hash_changes(trial: WrittenTrial) -> None:
    hook, net = make_hook(trial, include_regex=[".*_output"]), Measured()
    hook.register_module(net)
    for _ in range(3):
        square(net(torch.ones(2, 3))).backward()
    hook.close()
    assert not hook.report().errors
    assert {"first_output_0", "gradient/Measured_first.weight"} <= trial.names(2)
    assert not net.metric._forward_hooks


def test_a_hook_that_cannot_release_a_model_still_ends(
    trial: WrittenTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook, net = make_hook(trial), Net()
    hook.register_module(net)
    square(net(torch.ones(2, 3))).backward()
    monkeypatch.setattr(hook.loop, "_stop_listening", lambda: {}["gone"])
    hook.close()
    assert hook.report().errors == {"close": 1}
    assert trial.end_marker() is not None


def test_shared_weights(trial: WrittenTrial) -> None:
    hook, net = make_hook(trial), nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    net[2].weight = net[0].weight
    expected = train(hook, net, square, torch.ones(2, 3))
    assert set(expected[0]) == {
        "Loss_output_0",
        *(
            f"{kind}Sequential_{name}"
            for kind in ("", "gradient/")
            for name in ("0.weight", "0.bias", "2.bias")
        ),
    }
    assert_saved(trial, hook, expected)


def test_channels_last(trial: WrittenTrial) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 3))
    net = net.to(memory_format=torch.channels_last)
    assert not net[0].weight.is_contiguous()
    inputs = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    hook = make_hook(trial)
    assert_saved(trial, hook, train(hook, net, square, inputs))


def test_sparse_gradients(trial: WrittenTrial) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(9, 4, sparse=True), nn.Linear(4, 2))
    hook = make_hook(trial)
    expected = train(hook, net, square, torch.tensor([[1, 1, 7]]))
    assert net[0].weight.grad.is_sparse
    assert np.count_nonzero(expected[0]["gradient/Sequential_0.weight"].any(axis=1)) == 2
    assert_saved(trial, hook, expected)


@pytest.mark.filterwarnings("ignore:Complex modules:UserWarning")
def test_complex_parameters(trial: WrittenTrial) -> None:
    torch.manual_seed(0)
    net = nn.Linear(3, 2).to(torch.complex64)
    hook = make_hook(trial)
    inputs = torch.randn(2, 3, dtype=torch.complex64)
    expected = train(hook, net, lambda outputs: outputs.abs().square().sum(), inputs)
    assert expected[0]["gradient/Linear_weight"].imag.any()
    assert_saved(trial, hook, expected)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_types_of_parameters(trial: WrittenTrial, dtype: str) -> None:
    hook, net = make_hook(trial), Net().to(getattr(torch, dtype))
    expected = train(hook, net, square, torch.ones(2, 3, dtype=net.first.weight.dtype))
    assert_saved(trial, hook, expected)
    block = trial.indexes()[0].statistics
    assert block is not None
    assert set(block.dtypes) == {dtype}


def test_bfloat16_autocast(trial: WrittenTrial) -> None:
    hook = make_hook(trial, include_regex="second_output")
    net = Net()
    hook.register_module(net)
    seen = []
    for _ in range(2):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            outputs = net(torch.ones(2, 3))
            loss = F.cross_entropy(outputs, torch.tensor([0, 1]))
        loss.backward()
        seen.append((array(outputs), array(loss), array(net.first.weight.grad)))
    hook.close()
    for step, (output, loss_value, gradient) in enumerate(seen):
        values = trial.values(step)
        np.testing.assert_array_equal(values["second_output_0"], output, strict=True)
        np.testing.assert_array_equal(values["CrossEntropyLoss_output_0"], loss_value, strict=True)
        np.testing.assert_array_equal(values["gradient/Net_first.weight"], gradient, strict=True)
    block = trial.indexes()[0].statistics
    assert block is not None
    dtypes = dict(zip(block.tensors, block.dtypes, strict=True))
    assert (dtypes["second_output_0"], dtypes["gradient/Net_first.weight"]) == (
        "bfloat16",
        "float32",
    )


def test_parameters_that_are_computed_of_others(trial: WrittenTrial) -> None:
    net = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
    hook = make_hook(trial, include_regex="original")
    hook.register_module(net)
    square(net(torch.ones(2, 3))).backward()
    hook.close()
    expected = net.parametrizations.weight.original0
    name = f"{type(net).__name__}_parametrizations.weight.original0"
    np.testing.assert_array_equal(trial.values(0)[name], array(expected))
    np.testing.assert_array_equal(trial.values(0)[f"gradient/{name}"], array(expected.grad))


@pytest.mark.parametrize("calls", [1, 3])
def test_a_module_that_is_called_several_times(trial: WrittenTrial, calls: int) -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.RNNCell(2, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = torch.zeros(1, 3)
            for _ in range(calls):
                hidden = self.cell(x, hidden)
                states.append(array(hidden))
            return hidden

    states: list[np.ndarray] = []
    net = Recurrent()
    hook = make_hook(trial, include_collections=["cells"])
    hook.get_collection("cells").add_module_tensors(net.cell, inputs=True)
    hook.register_module(net)
    net(torch.ones(1, 2)).sum().backward()
    hook.close()
    values = trial.values(0)
    assert set(values) == {
        "Loss_output_0",
        *(f"cell_input_{i}" for i in range(2 * calls)),
        *(f"cell_output_{i}" for i in range(calls)),
    }
    for i, state in enumerate(states):
        np.testing.assert_array_equal(values[f"cell_output_{i}"], state)
        np.testing.assert_array_equal(values[f"cell_input_{2 * i}"], np.ones((1, 2), "f4"))
        if i:
            np.testing.assert_array_equal(values[f"cell_input_{2 * i + 1}"], states[i - 1])


@pytest.mark.skipif(torch.cuda.is_available(), reason="the wrapper would use the accelerator")
def test_a_model_in_data_parallel(trial: WrittenTrial) -> None:
    """The wrapper calls the model itself where there is no accelerator."""
    net = Net()
    hook = make_hook(trial)
    expected = []
    hook.register_module(net)
    parallel = nn.DataParallel(net)
    for _ in range(2):
        net.zero_grad()
        square(parallel(torch.ones(2, 3))).backward()
        expected.append(array(net.first.weight.grad))
    hook.close()
    for step, gradient in enumerate(expected):
        np.testing.assert_array_equal(trial.values(step)["gradient/Net_first.weight"], gradient)


def test_models_of_one_class_have_names_of_their_own(trial: WrittenTrial) -> None:
    first, second, head = nn.Sequential(nn.Linear(2, 2)), nn.Sequential(nn.Linear(2, 3)), Net()
    hook = make_hook(trial, include_collections=["weights", "linear"])
    hook.get_collection("linear").include("^.*0_output")
    for model in (first, second, head):
        hook.register_module(model)
    (first(torch.ones(1, 2)).sum() + second(torch.ones(1, 2)).sum()).backward()
    head(torch.ones(1, 3)).sum().backward()
    hook.close()
    shapes = {n: v.shape for step in trial.indexes() for n, v in trial.values(step).items()}
    assert shapes["Sequential_0.weight"] == (2, 2)
    assert shapes["Sequential2_0.weight"] == (3, 2)
    assert shapes.keys() >= {"0_output_0", "Sequential2_0_output_0", "Net_first.weight"}
