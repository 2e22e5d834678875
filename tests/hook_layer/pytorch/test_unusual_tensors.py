"""Training with unusual tensors: what is saved is right, and the rest has a reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

import hook_layer.pytorch as smd
from hook_layer.testing.written_trial import WrittenTrial
from tests.hook_layer.pytorch.test_tensor_elements import Quantized, Wrapper


class TrainableWrapper(Wrapper):
    """A wrapper that optimizers can train; copies of it are wrappers."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_dispatch__(func, types, args, kwargs)
        name = func.overloadpacket.__name__
        if func._schema.is_mutable and name.endswith("_"):
            return args[0]
        return cls(result) if name in ("detach", "clone", "view", "zeros_like") else result


class QuantizedWeight(Quantized):
    """A quantized tensor that may be a parameter."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ == "detach":
            return cls(args[0].wrapped, dtype=torch.float32)
        return super().__torch_dispatch__(func, types, args, kwargs)


class Refusing(TrainableWrapper):
    """A wrapper that does not return its values."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ == "copy_":
            raise NotImplementedError("values are secret")
        return super().__torch_dispatch__(func, types, args, kwargs)


def hook_of(trial: WrittenTrial) -> smd.Hook:
    return smd.Hook(
        trial.uri,
        save_config=smd.SaveConfig(save_interval=1),
        include_regex=["."],
        include_collections=["optimizer_variables"],
    )


def trained(hook: smd.Hook | None, kind: type[Wrapper] | None) -> nn.Module:
    """Return a model that was trained for 3 steps, with weights of a class."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    if kind is not None:
        for layer in (net[0], net[2]):
            layer.weight = nn.Parameter(kind(layer.weight.detach()))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, foreach=False)
    criterion = nn.CrossEntropyLoss()
    if hook is not None:
        hook.register_module(net)
        hook.register_loss(criterion)
    for _ in range(3):
        optimizer.zero_grad()
        criterion(net(torch.randn(5, 3)), torch.randint(0, 2, (5,))).backward()
        optimizer.step()
    return net


def weights(net: nn.Module) -> list[list[float]]:
    plain = [p.wrapped if isinstance(p, Wrapper) else p for p in net.parameters()]
    return [p.detach().flatten().tolist() for p in plain]


def test_everything_of_weights_in_a_wrapper_is_saved_as_of_plain_ones(
    trial: WrittenTrial, tmp_path: Any
) -> None:
    plain_trial = WrittenTrial(str(tmp_path / "plain"))
    plain, wrapped = hook_of(plain_trial), hook_of(trial)
    assert weights(trained(plain, None)) == weights(trained(wrapped, TrainableWrapper))
    plain.close()
    wrapped.close()
    assert not wrapped.report().not_captured
    assert not wrapped.report().errors
    expected, found = plain_trial.values(2), trial.values(2)
    assert {"Sequential_0.weight", "gradient/Sequential_0.weight"} < set(found)
    assert "optimizer_variables/Sequential_0.weight/momentum_buffer" in found
    assert set(found) == set(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.parametrize("kind", [TrainableWrapper, Refusing])
def test_training_is_bit_identical(trial: WrittenTrial, kind: type[Wrapper]) -> None:
    hook = hook_of(trial)
    assert weights(trained(hook, kind)) == weights(trained(None, kind))
    hook.close()


def test_weights_that_cannot_be_read_have_a_reason_and_the_rest_is_saved(
    trial: WrittenTrial, caplog: pytest.LogCaptureFixture
) -> None:
    hook = hook_of(trial)
    trained(hook, Refusing)
    hook.close()
    report = hook.report()
    reason = "Refusing does not return its values: NotImplementedError values are secret"
    assert set(report.not_captured.values()) == {reason}
    assert f"not captured: Sequential_0.weight: {reason}" in str(report)
    assert caplog.text.count("values are secret") == 2
    names = trial.names(2)
    assert {"Sequential_0.bias", "gradient/Sequential_0.bias"} <= names
    assert "CrossEntropyLoss_output_0" in names
    assert "Sequential_0.weight" not in names


def test_quantized_weights_are_saved_as_the_numbers_that_they_stand_for(
    trial: WrittenTrial,
) -> None:
    class QuantizedLinear(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            numbers = torch.arange(-6, 6, dtype=torch.int8).view(3, 4)
            quantized = QuantizedWeight(numbers, dtype=torch.float32)
            self.weight = nn.Parameter(quantized, requires_grad=False)

        def forward(self, x: Tensor) -> Tensor:
            return F.linear(x, self.weight.dequantize())

    hook = hook_of(trial)
    net = nn.Sequential(nn.Linear(2, 4), QuantizedLinear())
    hook.register_module(net)
    for _ in range(2):
        net(torch.ones(5, 2)).sum().backward()
    hook.close()
    assert not hook.report().not_captured
    expected = np.arange(-6, 6).reshape(3, 4) / 2
    np.testing.assert_array_equal(trial.values(1)["Sequential_1.weight"], expected)


def test_an_output_whose_memory_the_model_frees_is_not_read(trial: WrittenTrial) -> None:
    class Frees(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(3, 3000), nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            self.first(x).untyped_storage().resize_(0)
            result: Tensor = self.last(x)
            return result

    hook, net = hook_of(trial), Frees()
    hook.register_module(net)
    for _ in range(4):
        net(torch.ones(5, 3)).sum().backward()
    hook.close()
    assert trial.values(3)["first_output_0"].shape == (5, 3000)
    assert not hook.report().errors


def test_a_saved_tensor_or_scalar_is_read_like_any_other(trial: WrittenTrial) -> None:
    hook, net = hook_of(trial), nn.Linear(2, 1)
    hook.register_module(net)
    net(torch.ones(1, 2)).sum().backward()
    hook.save_tensor("wrapped", Wrapper(torch.ones(3)), "mine")
    hook.save_tensor("meta", torch.ones(3, device="meta"), "mine")
    hook.save_scalar("number", Wrapper(torch.ones(1)))
    hook.close()
    values = trial.values(0)
    assert values["scalar/number"].item() == 1
    assert set(hook.report().not_captured) <= {"meta"}


def steps_of(trial: WrittenTrial, loss: Any, rows: Any) -> smd.Hook:
    """Return the closed hook of 3 steps with a loss of the outputs."""
    hook, net = hook_of(trial), nn.Linear(3, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    hook.register_module(net)
    for _ in range(3):
        optimizer.zero_grad()
        loss(net, rows).backward()
        optimizer.step()
    hook.close()
    assert not hook.report().errors
    assert not hook.report().not_captured
    return hook


def per_row(net: nn.Module, rows: Tensor) -> Tensor:
    loss = F.cross_entropy(net(rows), torch.tensor([0, 1, 0, 1]), reduction="none")
    return loss.mean()


def of_strings(net: nn.Module, rows: Tensor) -> Tensor:
    labels = ["cat", "dog", "cat", "dog"]
    classes = torch.tensor([["cat", "dog"].index(label) for label in labels])
    return F.cross_entropy(net(rows), classes)


def of_several(net: nn.Module, rows: Tensor) -> Tensor:
    outputs = net(rows)
    first = F.cross_entropy(outputs, torch.tensor([0, 1, 0, 1]))
    return first + 0.1 * F.mse_loss(outputs, torch.zeros(4, 2))


def of_ragged_rows(net: nn.Module, rows: Tensor) -> Tensor:
    return torch.stack([net(rows[:n]).square().mean() for n in (1, 3, 2)]).sum()


@pytest.mark.parametrize("loss", [per_row, of_strings, of_several, of_ragged_rows])
def test_a_loss_is_saved_however_it_is_computed(trial: WrittenTrial, loss: Any) -> None:
    steps_of(trial, loss, torch.randn(4, 3, generator=torch.Generator().manual_seed(0)))
    last = max(trial.indexes())
    losses = [name for name in trial.names(last) if "oss_output" in name]
    assert losses
    assert all(np.isfinite(trial.values(last)[name]).all() for name in losses)


def test_models_with_lists_of_strings_and_of_tensors_as_inputs(trial: WrittenTrial) -> None:
    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 2)

        def forward(self, rows: list[Tensor], names: list[str]) -> dict[str, Any]:
            return {"outputs": [self.linear(row) for row in rows], "names": names}

    hook, net = hook_of(trial), Encoder()
    hook.register_module(net)
    for _ in range(2):
        outputs = net([torch.ones(2, 3), torch.ones(4, 3)], ["a", "b"])["outputs"]
        torch.cat(outputs).square().mean().backward()
    hook.close()
    assert not hook.report().errors
    names = trial.names(1)
    assert {"Encoder_input_0", "Encoder_input_1", "Encoder_output_1", "linear_output_1"} <= names


def test_a_loss_of_strings_raises_the_same_error_as_without_a_hook(trial: WrittenTrial) -> None:
    hook, net, criterion = hook_of(trial), nn.Linear(3, 2), nn.CrossEntropyLoss()
    hook.register_module(net)
    hook.register_loss(criterion)
    with pytest.raises(TypeError) as watched:
        criterion(net(torch.ones(1, 3)), ["cat"])
    with pytest.raises(TypeError) as plain:
        nn.CrossEntropyLoss()(nn.Linear(3, 2)(torch.ones(1, 3)), ["cat"])
    assert str(watched.value) == str(plain.value)
    hook.close()


def test_nested_inputs_have_a_reason_and_the_loss_is_saved(trial: WrittenTrial) -> None:
    hook, net = hook_of(trial), nn.Linear(3, 2)
    hook.register_module(net)
    for _ in range(2):
        rows = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)])
        torch.cat(net(rows).unbind()).square().mean().backward()
    hook.close()
    report = hook.report()
    assert set(report.not_captured) == {"Linear_input_0", "Linear_output_0"}
    assert not report.errors
    assert {"Linear_weight", "gradient/Linear_weight", "Loss_output_0"} <= trial.names(1)
