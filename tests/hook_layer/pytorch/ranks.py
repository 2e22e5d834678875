"""Processes of the ranks of a training."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

import torch

__all__ = ["run_ranks"]


def run_ranks(worker: Callable[[int, str], object], folder: Path, *, size: int = 2) -> None:
    """Run a function in a process for each rank, with its rank and a folder.

    They are forks of a process that has imported PyTorch: its import takes longest.
    """
    get_context("forkserver").set_forkserver_preload(["torch._dynamo"])
    arguments = (str(folder),)
    torch.multiprocessing.start_processes(worker, arguments, size, start_method="forkserver")
