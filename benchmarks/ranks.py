"""What writing by several ranks adds to a saved step: time, CPU time and bytes.

python -m benchmarks.ranks [--ranks 1 2 8] [--rounds N] [--steps N]

Three twins train in the same processes by DistributedDataParallel over gloo, in turns of some
steps: without a hook, with one in which rank 0 writes (`chief`), and with `auto`. Each step is
saved. The model has 50 layers and 0.8 M parameters.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final

import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table
from torch import nn

import hook_layer.pytorch as smd

WAYS: Final = ("none", "chief", "auto")
_WORKERS: Final = {"chief": "one", "auto": "auto"}


class _Twin:
    """A training with the same weights and batches as its twins."""

    def __init__(self, way: str, folder: Path) -> None:
        torch.manual_seed(0)
        layers = [part for _ in range(50) for part in (nn.Linear(128, 128), nn.ReLU())]
        net = nn.Sequential(*layers, nn.Linear(128, 10))
        self._model = nn.parallel.DistributedDataParallel(net)
        self._optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
        self._loss = nn.CrossEntropyLoss()
        self.hook: smd.Hook | None = None
        if way != "none":
            self.hook = smd.Hook(
                str(folder / way),
                save_config=smd.SaveConfig(save_interval=1),
                include_collections=["weights", "biases", "gradients", "losses"],
                reduction_config=smd.ReductionConfig(),
                include_workers=_WORKERS[way],
            )
            self.hook.register_module(net)
            self.hook.register_loss(self._loss)

    def train(self, steps: int) -> None:
        """Train some steps, and wait until they are stored."""
        for _ in range(steps):
            inputs = torch.randn(64, 128)
            self._optimizer.zero_grad()
            self._loss(self._model(inputs), inputs[:, :10].argmax(1)).backward()
            self._optimizer.step()
        if self.hook is not None:
            self.hook.flush()


def _measure(rank: int, size: int, folder: str, rounds: int, steps: int) -> None:
    """Train as one of several ranks; rank 0 stores seconds per step, [way][round] -> wall, CPU."""
    torch.set_num_threads(1)
    root = Path(folder)
    rendezvous = f"file://{root}/rendezvous"
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=size)
    twins = {way: _Twin(way, root) for way in WAYS}
    measured: dict[str, list[list[float]]] = {way: [] for way in WAYS}
    for number in range(rounds + 1):
        for way, twin in twins.items():
            dist.barrier()
            began, cpu_began = time.perf_counter(), time.process_time()
            twin.train(steps)
            cpu = torch.tensor((time.process_time() - cpu_began) / steps)
            dist.barrier()
            wall = (time.perf_counter() - began) / steps
            dist.all_reduce(cpu)
            if number:  # the first round warms up
                measured[way].append([wall, float(cpu) / size])
    for twin in twins.values():
        if twin.hook is not None:
            twin.hook.close()
    if rank == 0:
        torch.save(measured, root / "measured.pt")
    dist.destroy_process_group()


def _bytes_per_step(folder: Path, steps: int) -> float:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / steps


def main(sizes: Sequence[int], rounds: int, steps: int) -> None:
    """Print the table."""
    table = Table(title=f"{os.cpu_count()} CPU cores, medians of {rounds} rounds of {steps} steps")
    for head in ("ranks", "who writes", "step, ms", "added wall, ms", "added CPU per rank, ms"):
        table.add_column(head, justify="right")
    table.add_column("bytes per saved step", justify="right")
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            arguments = (size, folder, rounds, steps)
            torch.multiprocessing.spawn(_measure, arguments, nprocs=size)
            measured = torch.load(Path(folder) / "measured.pt")
            stored = {w: _bytes_per_step(Path(folder) / w, steps * (rounds + 1)) for w in WAYS}
        for way in WAYS:
            pairs = list(zip(measured[way], measured["none"], strict=True))
            wall, cpu = (median(own[at] - none[at] for own, none in pairs) for at in (0, 1))
            step = median(wall for wall, _ in measured[way])
            times = [f"{1e3 * each:.1f}" for each in (step, wall, cpu)]
            table.add_row(str(size), way, *times, f"{stored[way]:,.0f}")
    Console(width=110).print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", nargs="+", type=int, default=[1, 2, 8])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=10)
    given = parser.parse_args()
    main(given.ranks, given.rounds, given.steps)
