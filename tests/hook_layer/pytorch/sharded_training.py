"""One training, whole or divided among ranks in one of several ways; saves every step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import hook_layer.pytorch as smd

__all__ = ["EARLY", "NUM_STEPS", "WAYS", "train", "worker"]

NUM_STEPS = 4
SIZE = 2


def make_net() -> nn.Sequential:
    """Return the model, the same in all ranks and ways; its sizes cannot be divided evenly."""
    torch.manual_seed(0)
    layers = [nn.Linear(8, 10), nn.ReLU(), nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 3)]
    # Sums of parts are rounded otherwise than whole ones: what remains are errors of statistics.
    return nn.Sequential(*layers).double()


def _whole(net: nn.Module) -> nn.Module:
    return net


def _replicated(net: nn.Module) -> nn.Module:
    return nn.parallel.DistributedDataParallel(net)


def _fsdp2(net: nn.Module) -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    fully_shard(net[2], mesh=_mesh())
    fully_shard(net, mesh=_mesh())  # which changes it
    return net


def _fsdp1(net: nn.Module, **options: Any) -> nn.Module:
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    kinds = ModuleWrapPolicy({nn.Linear})
    cpu = torch.device("cpu")
    return FullyShardedDataParallel(net, auto_wrap_policy=kinds, device_id=cpu, **options)


def _fsdp1_original(net: nn.Module) -> nn.Module:
    return _fsdp1(net, use_orig_params=True)


def _fsdp1_in_one(net: nn.Module) -> nn.Module:
    from torch.distributed.fsdp import FullyShardedDataParallel

    cpu = torch.device("cpu")
    return FullyShardedDataParallel(net, use_orig_params=True, device_id=cpu)


def _tensor_parallel(net: nn.Module) -> nn.Module:
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    return parallelize_module(net, _mesh(), plan)


def _mesh() -> Any:
    return torch.distributed.device_mesh.init_device_mesh("cpu", (SIZE,))


EARLY = ("FSDP2", "FSDP1")
"""Ways in which a model is divided behind its registration, too."""
WAYS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "whole": _whole,
    "replicated": _replicated,
    "FSDP2": _fsdp2,
    "FSDP1 use_orig_params": _fsdp1_original,
    "FSDP1 use_orig_params, one flat parameter": _fsdp1_in_one,
    "FSDP1": _fsdp1,
    "tensor parallel": _tensor_parallel,
}


def train(out_dir: Path, way: str, *, is_early: bool = False) -> None:
    """Train in one of the ways; all ranks compute the same batches.

    Args:
        out_dir: Folder of the trial.
        way: One of `WAYS`.
        is_early: Whether the hook gets to know the model before it is divided.
    """
    hook = smd.Hook(
        str(out_dir),
        save_config=smd.SaveConfig(save_interval=1),
        include_collections=["weights", "biases", "gradients", "optimizer_variables", "losses"],
        include_workers="auto",
    )
    net = make_net()
    if is_early:
        hook.register_module(net)
    model = WAYS[way](net)
    if not is_early:
        hook.register_module(model)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    for step in range(NUM_STEPS):
        torch.manual_seed(step)
        inputs = torch.randn(32, 8, dtype=torch.float64)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), inputs[:, :3].argmax(1)).backward()
        optimizer.step()
    hook.close()
    assert not hook.report().errors, hook.report()


def worker(rank: int, folder: str) -> None:
    """Train in all ways, as one of two ranks."""
    torch.set_num_threads(1)
    root = Path(folder)
    rendezvous = f"file://{root}/rendezvous"
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=SIZE)
    for way in WAYS:
        if way != "whole":
            train(root / way, way)
    for way in EARLY:
        train(root / f"{way}, registered before", way, is_early=True)
    dist.barrier()
    dist.destroy_process_group()
