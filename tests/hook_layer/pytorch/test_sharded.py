"""Parameters that are divided among workers: tensor parallel and fully sharded models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hook_layer.testing.written_trial import WrittenTrial
from tests.hook_layer.pytorch.ranks import run_ranks

if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("torch has no gloo here", allow_module_level=True)
pytest.importorskip("torch.distributed.tensor")

from torch import nn

import hook_layer.pytorch as smd

SIZE = 2
NUM_STEPS = 3
SHAPES = {"tensor": [(4, 8)] * 2 + [(8, 4)] * 2, "fully": [(4, 8)] * 4}
REDUCTIONS = smd.ReductionConfig(
    reductions=["mean", "std", "median", "min"], norms=["l2"], save_raw_tensor=True
)


def make_net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))


def make_hook(uri: str, **options: Any) -> smd.Hook:
    return smd.Hook(
        uri,
        save_config=smd.SaveConfig(save_interval=1),
        include_collections=["weights", "biases", "gradients", "optimizer_variables"],
        reduction_config=REDUCTIONS,
        **options,
    )


def worker(rank: int, folder: str) -> None:
    """Train as one of two workers; one of them saves; both must do the same collectives."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    torch.set_num_threads(1)
    root = Path(folder)
    dist.init_process_group(
        "gloo", init_method=f"file://{root}/rendezvous", rank=rank, world_size=SIZE
    )
    mesh = init_device_mesh("cpu", (SIZE,))
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    _train(root / "tensor", parallelize_module(make_net(), mesh, plan))
    fully = make_net()
    fully_shard(fully[0], mesh=mesh)
    fully_shard(fully, mesh=mesh)
    _train(root / "fully", fully)
    _train(root / "registered before", make_net(), lambda net: fully_shard(net, mesh=mesh))
    dist.barrier()
    dist.destroy_process_group()


def _train(out_dir: Path, net: nn.Module, shard: Any = None) -> None:
    hook = make_hook(str(out_dir))
    hook.register_module(net)
    if shard is not None:
        shard(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    shards: dict[str, Any] = {}
    for step in range(NUM_STEPS):
        torch.manual_seed(step)
        net(torch.randn(2, 8)).square().sum().backward()
        for name, parameter in net.named_parameters():
            gradient: Any = parameter.grad
            shards.setdefault(name, []).append(gradient.to_local().numpy().copy())
        optimizer.step()
        optimizer.zero_grad()
    hook.close()
    assert not hook.report().errors, hook.report()
    rank = torch.distributed.get_rank()
    np.savez(out_dir.parent / f"{out_dir.name}-{rank}.npz", **shards)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sharded")
    run_ranks(worker, path, size=SIZE)
    return path


@pytest.mark.parametrize("name", ["tensor", "fully", "registered before"])
def test_the_worker_that_saves_saves_its_shards(folder: Path, name: str) -> None:
    trial = WrittenTrial(str(folder / name))
    shards = np.load(folder / f"{name}-0.npz")
    assert list(trial.indexes()) == list(range(NUM_STEPS))
    for step in range(NUM_STEPS):
        values = trial.values(step)
        gradients = {n.rpartition("_")[2]: v for n, v in values.items() if n.startswith("gradient")}
        gradients = {n: v for n, v in gradients.items() if n in shards}
        assert set(gradients) == set(shards)
        for parameter, gradient in gradients.items():
            np.testing.assert_array_equal(gradient, shards[parameter][step])
    if name != "registered before":
        weights = {n: v for n, v in trial.values(0).items() if n.endswith(".weight") and v.ndim}
        assert sorted(v.shape for v in weights.values()) == SHAPES[name]


@pytest.mark.parametrize("name", ["tensor", "fully", "registered before"])
def test_sharded_models_have_the_names_of_whole_ones(folder: Path, name: str) -> None:
    found = WrittenTrial(str(folder / name)).names(1)
    assert {f"Sequential_{n}" for n, _ in make_net().named_parameters()} <= found


@pytest.fixture
def one_worker() -> Iterator[None]:
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def test_a_sharded_tensor_costs_no_collective(
    trial: WrittenTrial, one_worker: None, caplog: pytest.LogCaptureFixture
) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard, distribute_tensor
    from torch.distributed.tensor.debug import CommDebugMode

    hook = make_hook(trial.uri)
    hook.register_module(net := nn.Linear(2, 2))
    tensor = distribute_tensor(torch.ones(4, 2), init_device_mesh("cpu", (1,)), [Shard(0)])
    assert isinstance(tensor, DTensor)
    net(torch.ones(2))
    with CommDebugMode() as communication:
        for i in range(2):
            hook.save_tensor(f"own{i}", tensor, ["losses"])
    hook.close()
    assert communication.get_total_counts() == 0
    assert trial.values(0)["own1"].shape == (4, 2)
    assert not caplog.text  # one rank has all of it


def test_a_compiled_sharded_model(trial: WrittenTrial, one_worker: None) -> None:
    from torch._dynamo.utils import counters
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    net = make_net()[:2]
    style = ColwiseParallel(use_local_output=False)
    parallelize_module(net, init_device_mesh("cpu", (1,)), {"0": style})
    hook = make_hook(trial.uri, include_regex="put_0$")
    hook.register_module(net)
    torch.compiler.reset()
    counters.clear()
    compiled = torch.compile(net, backend="aot_eager")
    for _ in range(2):
        compiled(torch.ones(2, 8)).to_local().sum().backward()
    hook.close()
    torch.compiler.reset()
    assert not counters["graph_break"]
    assert trial.values(1)["0_output_0"].shape == (2, 8)
    assert not hook.report().errors


def test_memory_that_was_captured_can_still_be_resized(trial: WrittenTrial) -> None:
    hook = make_hook(trial.uri)
    hook.register_module(net := make_net())
    tensors = [torch.ones(5), torch.ones(9, dtype=torch.bool), torch.ones(3, dtype=torch.bfloat16)]
    tensors += [p.data for p in net.parameters()]
    net(torch.ones(2, 8)).sum().backward()
    for i, tensor in enumerate(tensors):
        hook.save_tensor(f"own{i}", tensor, ["losses"])
        tensor.untyped_storage().resize_(0)
    hook.close()
    assert trial.values(0)["own1"].dtype == np.bool_
