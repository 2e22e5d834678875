"""Training on two real workers, over gloo on this machine."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import torch

from hook_layer.testing.written_trial import WrittenTrial
from tests.hook_layer.pytorch.ranks import run_ranks

if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("torch has no gloo here", allow_module_level=True)

SIZE = 2
NUM_STEPS = 3
TRIALS = ("all", "one", "second")
STOPS = ("raise", "flag", "by optimizer", "without a hook")


def worker(rank: int, folder: str) -> None:
    """Train several times in one process group, as one of two workers."""
    import torch.distributed as dist

    torch.set_num_threads(1)
    root = Path(folder)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{root}/rendezvous",
        rank=rank,
        world_size=SIZE,
        timeout=timedelta(seconds=60),
    )
    _close_before_the_first_step(rank, root)
    _train(rank, root / "all", include_workers="all")
    _train(rank, root / "one", include_workers="one")
    _train(rank, root / "second", include_workers="all")
    for how in STOPS:
        _stop_together(rank, root, how)
    _miss_rank_0(rank, root)
    dist.barrier()
    dist.destroy_process_group()


def _train(rank: int, out_dir: Path, *, include_workers: str) -> None:
    import hook_layer.pytorch as smd

    hook = smd.Hook(
        str(out_dir),
        save_config=smd.SaveConfig(save_interval=1),
        include_collections=["weights", "gradients"],
        include_workers=include_workers,
        stop_poll_s=0.05,
    )
    torch.manual_seed(0)
    net, loss = torch.nn.Linear(3, 2), torch.nn.MSELoss()
    hook.register_module(net)
    hook.register_loss(loss)
    model = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    gradients = []
    for _ in range(NUM_STEPS):
        optimizer.zero_grad()
        loss(model(torch.full((4, 3), float(rank + 1))), torch.zeros(4, 2)).backward()
        gradients.append(net.weight.grad.numpy().copy())
        optimizer.step()
    hook.close()
    assert not hook.report().errors, hook.report()
    np.save(out_dir.parent / f"{out_dir.name}-{rank}.npy", np.stack(gradients))


def _stop_together(rank: int, root: Path, how: str) -> None:
    """Train until rank 0 sees a stop request; the ranks differ in speed and in evaluation."""
    import hook_layer.pytorch as smd
    from hook_layer.format.job_file import StopFile
    from hook_layer.format.paths import STOP_FILE
    from hook_layer.storage.base import open_store

    # Only rank 0 writes, so each rank may have a folder of its own.
    out_dir = root / f"stopped {how}" / str(rank)
    hook = smd.Hook(str(out_dir), stop="flag" if how == "flag" else "raise", stop_poll_s=0.02)
    torch.manual_seed(0)
    net = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    if how == "by optimizer":
        hook.register_optimizer(optimizer)
    if rank == 0 or how != "without a hook":
        hook.register_module(net)
    model = torch.nn.parallel.DistributedDataParallel(net)
    steps, asked = 0, 0.0
    with suppress(smd.TrainingStoppedError):
        while not (how == "flag" and hook.should_stop) and steps < 2000:
            optimizer.zero_grad()
            for _ in range(2):
                model(torch.ones(4, 3)).sum().backward()
            optimizer.step()
            steps += 1
            if rank == 1 and steps % 7 == 0:
                time.sleep(0.01)
            if rank == 0:
                with torch.no_grad():
                    net(torch.ones(1, 3))
            if rank == 0 and steps == 50:
                asked = time.monotonic()
                request = StopFile("enough", "now", None)
                open_store(str(out_dir)).put(STOP_FILE, request.encode())
            if how == "without a hook" and steps == 300:
                break
    took = time.monotonic() - asked if asked else 0.0
    reason = hook.stop_reason
    hook.close()
    np.save(root / f"stopped {how}-{rank}.npy", [steps, took, reason == "enough"])


def _close_before_the_first_step(rank: int, root: Path) -> None:
    import hook_layer.pytorch as smd

    hook = smd.Hook(str(root / "closed"), include_workers="all")
    if rank == 0:
        hook.register_module(torch.nn.Linear(1, 1))
    hook.save_scalar("never", 1.0)
    began = time.monotonic()
    hook.close()
    assert time.monotonic() - began < 5
    # The ranks now have made as many hooks, but not as many runs.
    again = smd.Hook(str(root / "all"), include_workers="all")
    again.close()


def _miss_rank_0(rank: int, root: Path) -> None:
    """Begin a step in rank 1 only: it waits a moment, and trains on without saving."""
    import hook_layer.pytorch as smd

    hook = smd.Hook(str(root / "missed"), include_workers="all")
    hook._ranks.max_wait = timedelta(milliseconds=200)
    if rank == 0:
        return
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign, assignment]
    logging.getLogger("stepwatch").addHandler(handler)
    net = torch.nn.Linear(1, 1)
    hook.register_module(net)
    for _ in range(3):
        net(torch.ones(1)).sum().backward()
    hook.close()
    assert hook.report().errors == {"steps": 1}
    assert "waited 0.2 s for rank 0" in str(records[0].exc_info)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ddp")
    run_ranks(worker, path, size=SIZE)
    return path


@pytest.mark.parametrize("name", ["all", "second"])
def test_every_worker_saves_the_averaged_gradients(folder: Path, name: str) -> None:
    trial = WrittenTrial(str(folder / name))
    averages = [np.load(folder / f"{name}-{rank}.npy") for rank in range(SIZE)]
    np.testing.assert_array_equal(*averages)
    losses = []
    for rank in range(SIZE):
        indexes = trial.indexes(f"worker_{rank}")
        assert list(indexes) == list(range(NUM_STEPS))
        assert {(index.run, index.workers) for index in indexes.values()} == {
            (trial.job().run_id, 2)
        }
        for step in range(NUM_STEPS):
            records = trial.records(step, f"worker_{rank}")
            gradient = records["gradient/Linear_weight"].value
            np.testing.assert_array_equal(gradient, averages[0][step], strict=True)
        losses.append(float(trial.records(0, f"worker_{rank}")["MSELoss_output_0"].value))
        assert trial.collections(f"worker_{rank}").num_workers == 2
    assert losses[0] != losses[1]
    assert trial.end_marker() is not None


def test_only_the_chief_saves_if_one_is_to(folder: Path) -> None:
    trial = WrittenTrial(str(folder / "one"))
    assert list(trial.indexes("worker_0")) == list(range(NUM_STEPS))
    assert not trial.indexes("worker_1")
    assert {index.workers for index in trial.indexes().values()} == {1}
    gradient = trial.records(0)["gradient/Linear_weight"].value
    np.testing.assert_array_equal(gradient, np.load(folder / "one-1.npy")[0])


def test_runs_have_ids_of_their_own(folder: Path) -> None:
    ids = {WrittenTrial(str(folder / name)).job().run_id for name in TRIALS}
    assert len(ids) == len(TRIALS)


def test_hooks_that_saw_no_step_write_nothing(folder: Path) -> None:
    for name in ("closed", "missed"):
        assert not list(WrittenTrial(str(folder / name)).store.list())


@pytest.mark.parametrize("how", STOPS)
def test_all_workers_stop_at_the_same_step(folder: Path, how: str) -> None:
    (steps, took, is_stopped), other = (
        np.load(folder / f"stopped {how}-{rank}.npy") for rank in range(SIZE)
    )
    assert (steps, is_stopped) == (other[0], other[2])
    if how == "without a hook":  # in the other worker: nobody leaves it alone
        assert (steps, is_stopped) == (300, False)
        return
    assert is_stopped
    assert 50 <= steps < 2000
    assert took < 10
    trial = WrittenTrial(str(folder / f"stopped {how}" / "0"))
    assert trial.end_marker() is not None
    assert not (folder / f"stopped {how}" / "1").exists()
