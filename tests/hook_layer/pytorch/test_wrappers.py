"""Names of tensors have no parts of wrappers in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    checkpoint_wrapper,
)

import hook_layer.pytorch as smd
from hook_layer.testing.written_trial import WrittenTrial


class Net(nn.Module):
    """Has a part of its own that is called `module`."""

    def __init__(self) -> None:
        super().__init__()
        self.module: nn.Module = nn.Linear(4, 4)
        self.head: nn.Module = nn.Linear(4, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(torch.relu(self.module(inputs)))
        return result


@pytest.fixture
def one_rank() -> Iterator[None]:
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def _parts_checkpointed(net: Net) -> nn.Module:
    net.module, net.head = checkpoint_wrapper(net.module), checkpoint_wrapper(net.head)
    return net


def _fsdp1(net: Net) -> nn.Module:
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    policy, cpu = ModuleWrapPolicy({nn.Linear}), torch.device("cpu")
    return FullyShardedDataParallel(net, auto_wrap_policy=policy, device_id=cpu)


def _fsdp1_of_checkpointed(net: Net) -> nn.Module:
    return _fsdp1(_parts_checkpointed(net))


@pytest.mark.parametrize(
    "wrap",
    [
        _parts_checkpointed,
        checkpoint_wrapper,
        nn.parallel.DistributedDataParallel,
        lambda net: torch.compile(net, backend="eager"),
        lambda net: nn.parallel.DistributedDataParallel(checkpoint_wrapper(net)),
        _fsdp1,
        _fsdp1_of_checkpointed,
    ],
)
@pytest.mark.usefixtures("one_rank")
def test_names_are_those_of_the_model_without_wrappers(
    trial: WrittenTrial, wrap: Callable[[Net], nn.Module]
) -> None:
    model = wrap(Net())
    hook = smd.Hook(
        trial.uri,
        save_config=smd.SaveConfig(save_interval=1),
        include_collections=["weights", "biases", "gradients"],
        include_regex="put_0$",
    )
    hook.register_module(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(3, 4)).sum().backward()
        optimizer.step()
    hook.close()
    assert not hook.report().errors
    parameters = {f"Net_{name}" for name, _ in Net().named_parameters()}
    found = trial.names(1)
    assert {name for name in found if name.startswith(("Net_m", "Net_h"))} == parameters
    gradients = {f"gradient/{name}" for name in parameters}
    assert {name for name in found if name.startswith("gradient/")} == gradients
    calls = {name for name in found if name.endswith("put_0") and "Loss" not in name}
    ends = ("input_0", "output_0")
    assert calls == {f"{part}_{end}" for part in ("Net", "module", "head") for end in ends}
