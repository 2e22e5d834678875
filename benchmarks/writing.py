"""Writing steps, beside plain file writes of the same bytes and what others do."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from benchmarks.measuring import Scale, empty, in_turns, seconds, touch_memory
from benchmarks.result import Measured, Result
from hook_layer.capture.captured_step import (
    ArraySnapshot,
    CapturedTensor,
    StepRecord,
    TensorStatistics,
)
from hook_layer.capture.statistics import array_statistics
from hook_layer.delivery.step_files import RunIdentity
from hook_layer.delivery.writer import StepWriter
from hook_layer.format.modes import ModeKeys
from hook_layer.storage.local import LocalStore

__all__ = ["arrays_of", "large", "small", "write_trial"]

Arrays: TypeAlias = "Mapping[str, NDArray[Any]]"
Write: TypeAlias = Callable[[Path, Arrays, int], float]
NUM_TENSORS = 50
LARGE, SMALL = 256 << 10, 1 << 10


def large(scale: Scale) -> list[Result]:
    """50 tensors x 256 KiB x 100 steps, as a share of the speed of plain writes.

    In blocks of ten steps, each way in its turn: a virtual machine gives memory that was freed back
    to its host within seconds, and how long it takes to get it again says nothing about who writes.
    """
    arrays, num_steps = arrays_of(LARGE), scale.of(10, least=2)
    touch_memory(scale.folder, scale.of(200 << 20))
    times = _times(scale, arrays, num_steps, rounds=10 * scale.rounds)
    plain = times.pop("file.write")
    shares = {
        name: Measured.of(one / other for one, other in zip(plain, found, strict=True))
        for name, found in times.items()
    }
    row = "write 50 x 256 KiB a step"
    found = shares.pop("ours")
    return [Result(row, "of file.write's speed", found, 0.8, 0.95, 1.0, shares, "higher")]


def small(scale: Scale) -> list[Result]:
    """1,000 steps x 50 tensors x 1 KiB, time a tensor."""
    arrays, num_steps = arrays_of(SMALL), scale.of(1000, least=2)
    times = _times(scale, arrays, num_steps, rounds=scale.rounds)
    each = {
        name: Measured.of(1e6 * time / num_steps / NUM_TENSORS for time in found)
        for name, found in times.items()
    }
    row, limit = "write 50 x 1 KiB a step", each.pop("file.write").median
    return [Result(row, "us/tensor", each.pop("ours"), 12, 6, limit, each)]


def arrays_of(num_bytes: int) -> dict[str, NDArray[Any]]:
    """Return the tensors of one step, each of `num_bytes` of float32."""
    generator = np.random.default_rng(0)
    return {
        f"gradient/Net_layer{number}.weight": generator.standard_normal(num_bytes // 4, "f4")
        for number in range(NUM_TENSORS)
    }


def _times(scale: Scale, arrays: Arrays, num_steps: int, *, rounds: int) -> dict[str, list[float]]:
    """Return how long each way takes to write the steps, seconds, one number a round."""
    writers: dict[str, Write] = {"ours": write_trial, "file.write": _plain}
    if scale.peers:
        writers |= {"safetensors": _safetensors, "smdebug": _smdebug}
    works = {
        name: _bound(write, scale.folder / name, arrays, num_steps)
        for name, write in writers.items()
    }
    return in_turns(works, rounds)


def _bound(write: Write, folder: Path, arrays: Arrays, num_steps: int) -> Callable[[], float]:
    numbers = itertools.count()

    def work() -> float:
        own = folder / str(next(numbers))
        own.mkdir(parents=True)
        taken = write(own, arrays, num_steps)
        empty(own)
        return taken

    return work


def write_trial(folder: Path, arrays: Arrays, num_steps: int) -> float:
    """Write steps as the hook does once they are captured; return how long it took, seconds."""
    rows = TensorStatistics([array_statistics(array) for array in arrays.values()])
    records = [StepRecord(step, ModeKeys.TRAIN, step) for step in range(num_steps)]
    for record in records:
        for row, (name, array) in enumerate(arrays.items()):
            snapshot = ArraySnapshot(array)
            tensor = CapturedTensor(
                array.dtype.name, array.shape, raw=snapshot, statistics=rows, row=row
            )
            record.add({name: tensor})
    writer = StepWriter(LocalStore(folder), RunIdentity("0" * 26, "worker_0"))

    def work() -> None:
        for record in records:
            writer.submit(record)
        assert writer.wait_until_idle()

    taken = seconds(work)
    writer.close()  # once in a training, not once in ten steps
    assert writer.counters.steps_written == num_steps, writer.counters
    return taken


def _plain(folder: Path, arrays: Arrays, num_steps: int) -> float:
    def work() -> None:
        for step in range(num_steps):
            with (folder / f"{step}.bin").open("wb", buffering=0) as file:
                for array in arrays.values():
                    file.write(array.data)

    return seconds(work)


def _safetensors(folder: Path, arrays: Arrays, num_steps: int) -> float:
    from safetensors.numpy import save_file  # noqa: PLC0415

    def work() -> None:
        for step in range(num_steps):
            save_file(dict(arrays), folder / f"{step}.safetensors")

    return seconds(work)


def _smdebug(folder: Path, arrays: Arrays, num_steps: int) -> float:
    from smdebug.core.modes import ModeKeys as TheirModes  # noqa: PLC0415
    from smdebug.core.writer import FileWriter  # noqa: PLC0415

    some = min(num_steps, max(num_steps // 20, 2))  # it takes longer than all the others together

    def work() -> None:
        for step in range(some):
            with FileWriter(str(folder), "worker_0", step) as writer:
                for name, array in arrays.items():
                    writer.write_tensor(array, name, mode=TheirModes.TRAIN, mode_step=step)

    return seconds(work) * num_steps / some
