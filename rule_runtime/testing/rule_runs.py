"""Runs for testing rules: a small network that learns well, and variations of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np

from hook_layer.format.index import IndexFile, Statistics
from hook_layer.format.modes import ModeKeys
from hook_layer.storage.base import Store
from rule_runtime.testing.trial_builder import TrialBuilder
from rule_runtime.trial.step_index import StepFile, load_step_files
from rule_runtime.trial.step_view import StepReader, StepView

__all__ = [
    "RunOfWorker",
    "SavedStep",
    "Tensors",
    "backwards",
    "filled",
    "healthy_tensors",
    "long_run",
    "many_tensors",
    "replaced",
    "sick_tensors",
    "swapped",
    "views_by_step",
    "write_run",
]

_LAYERS: Final = ("conv1", "conv2", "fc")
_SHAPES: Final = {"weight": (8, 4), "bias": (8,)}

Tensors = Mapping[str, Any]
"""Tensors by name; values are anything that numpy converts to arrays."""


class SavedStep(NamedTuple):
    """The data that one worker saves at one step.

    Attributes:
        step: Global step.
        tensors: The tensors by name.
        mode: Mode of the step.
        mode_step: Step within the mode; by default `step`.
        time: Time of the capture, seconds since 1970; None for a file without it.
    """

    step: int
    tensors: Tensors
    mode: ModeKeys = ModeKeys.TRAIN
    mode_step: int | None = None
    time: float | None = None


RunOfWorker = Callable[[int], Iterable[SavedStep]]
"""Returns the steps of a worker, given by its number, in order."""


_SICK_SCALE: Final = 1e6
"""Factor of sick weights: above any bound of healthy weights."""


def healthy_tensors(step: int, worker: int = 0) -> dict[str, Any]:
    """Return the tensors that a small network saves at a step while it learns well.

    Weights and biases are the same on every worker and change by about a thousandth per step.
    Gradients and losses vary between workers.
    """
    start, now = np.random.default_rng(7), np.random.default_rng(1000 * worker + step)
    tensors: dict[str, Any] = {}
    for layer in _LAYERS:
        for kind, shape in _SHAPES.items():
            value, direction = start.normal(0, 0.1, shape), start.normal(0, 1e-4, shape)
            gradient = now.normal(0, 1e-2, shape)
            tensors[f"Net_{layer}.{kind}"] = (value + step * direction).astype(np.float32)
            tensors[f"gradient/Net_{layer}.{kind}"] = gradient.astype(np.float32)
    loss = 2.3 * 0.98**step * now.uniform(0.999, 1.001)
    return {**tensors, "CrossEntropyLoss_output_0": np.float32(loss)}


def sick_tensors(tensors: Tensors) -> dict[str, Any]:
    """Return tensors with zero gradients, a constant loss, and corrupt weights.

    The first element of each weight is NaN, and the others are a million times larger.
    """
    changed = dict(tensors)
    for name, value in tensors.items():
        array = np.asarray(value)
        if array.dtype.kind not in "biuf":
            continue
        array = array.astype(np.float64)
        if name.startswith("gradient"):
            array = array * 0.0
        elif "oss" in name:
            array = np.ones_like(array)
        elif array.size > 1:
            array *= _SICK_SCALE
            array.flat[0] = np.nan
        changed[name] = array
    return changed


def write_run(
    run_of: RunOfWorker,
    *,
    num_workers: int,
    collections: Mapping[str, tuple[str, ...]],
    store: Store | None = None,
    run: str | None = "run-1",
    save_values: bool = True,
) -> TrialBuilder:
    """Return the trial of a run, written in step order by all workers.

    Args:
        run_of: Returns the steps of each worker.
        num_workers: Number of workers.
        collections: Regular expressions of the collections files; empty for no files.
        store: Store of the files; by default in memory.
        run: RunId; None for files in the original client's format.
        save_values: False to save only statistics.
    """
    builder = TrialBuilder(store, run=run, num_workers=num_workers)
    saved = [
        (saved.step, worker, saved) for worker in range(num_workers) for saved in run_of(worker)
    ]
    if collections:
        for worker in range(num_workers):
            builder.collections(worker=f"worker_{worker}", **collections)
    for step, worker, of_worker in sorted(saved, key=lambda item: item[:2]):
        builder.step(
            step,
            of_worker.tensors,
            mode=of_worker.mode,
            mode_step=step if of_worker.mode_step is None else of_worker.mode_step,
            worker=f"worker_{worker}",
            save_values=save_values,
            time=of_worker.time,
        )
    return builder


def views_by_step(run: TrialBuilder) -> dict[int, Callable[[], StepView]]:
    """Return functions that create each step's view with a new reader, by step."""
    return {
        step: lambda step=step, files=files: StepReader(run.store).view(  # type: ignore[misc]
            step, files, num_workers=run.num_workers
        )
        for step, files in _files_by_step(run).items()
    }


def long_run(runs: Iterable[TrialBuilder], *, rounds: int) -> Iterator[StepView]:
    """Yield the steps of several runs repeatedly, with increasing numbers."""
    parts = [(StepReader(run.store), run.num_workers, _files_by_step(run)) for run in runs]
    offset = 0
    for _ in range(rounds):
        for reader, num_workers, files in parts:
            for step, of_step in files.items():
                moved = [_moved(file, offset) for file in of_step]
                yield reader.view(step + offset, moved, num_workers=num_workers)
            offset += max(files) + 1


def many_tensors(run: TrialBuilder, *, total: int) -> Iterator[StepView]:
    """Yield the steps of a run with copies of each tensor's statistics under further names.

    The further names have a suffix `x1`, `x2`, ...
    """
    reader = StepReader(run.store)
    for step, files in _files_by_step(run).items():
        repeated = [replace(file, index=_repeated(_index_of(file), total)) for file in files]
        yield reader.view(step, repeated, num_workers=run.num_workers)


def filled(value: float, tensors: Tensors) -> dict[str, Any]:
    """Return constant tensors of the same shapes."""
    return {name: np.full(np.shape(tensor), value) for name, tensor in tensors.items()}


def replaced(value: Any, tensors: Tensors) -> dict[str, Any]:
    """Return the same tensor under each of the names."""
    return dict.fromkeys(tensors, value)


def backwards(run_of: RunOfWorker) -> RunOfWorker:
    """Return a run that saves the tensors of each step in reverse order."""

    def turned(worker: int) -> Iterable[SavedStep]:
        for saved in run_of(worker):
            yield saved._replace(tensors=dict(reversed(list(saved.tensors.items()))))

    return turned


def swapped(run_of: RunOfWorker) -> RunOfWorker:
    """Return a run with its first two workers swapped."""
    return lambda worker: run_of(1 - worker)


def _files_by_step(run: TrialBuilder) -> dict[int, list[StepFile]]:
    by_step: dict[int, list[StepFile]] = {}
    for file in load_step_files(run.store, run.keys):
        by_step.setdefault(file.step, []).append(file)
    return by_step


def _moved(file: StepFile, offset: int) -> StepFile:
    index = _index_of(file)
    time = None if index.time is None else index.time + offset
    moved = replace(index, mode_step=index.mode_step + offset, time=time)
    return replace(file, step=file.step + offset, index=moved)


def _repeated(index: IndexFile, total: int) -> IndexFile:
    block = index.statistics
    if block is None or not block.tensors:
        return index
    copies = -(-total // len(block.tensors))
    repeated = Statistics(
        columns=block.columns,
        tensors=tuple(
            name if not copy else f"{name}x{copy}"
            for copy in range(copies)
            for name in block.tensors
        ),
        dtypes=block.dtypes * copies,
        shapes=block.shapes * copies,
        values=np.tile(block.values, (copies, 1)),
        crc32c=block.crc32c * copies,
    )
    return replace(index, statistics=repeated)


def _index_of(file: StepFile) -> IndexFile:
    assert file.index is not None, file.problem
    return file.index
