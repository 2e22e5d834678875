"""Writing and reading steps, beside plain file writes of the same bytes, paired in one process.

python benchmarks/format_write.py [folder]
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from hook_layer.format.index import (
    STATISTICS_COLUMNS,
    IndexFile,
    Statistics,
    TensorLocation,
    parse_index,
)
from hook_layer.format.modes import ModeKeys
from hook_layer.format.paths import event_key, index_key
from hook_layer.format.records import decode_record, encode_record
from hook_layer.storage.local import LocalStore

NUM_TENSORS = 50
REPEATS = 5


def write_step(store: LocalStore, step: int, tensors: dict[str, np.ndarray]) -> None:
    """Write one step's event and index file, as the hook's writer does."""
    buffers: list[bytes | memoryview] = []
    locations, checksums, start = [], [], 0
    for name, value in tensors.items():
        record = encode_record(
            name, value, step=step, mode=ModeKeys.TRAIN, mode_step=step, wall_time=1.5
        )
        buffers += record.buffers
        locations.append(TensorLocation(name, start, record.length))
        checksums.append(record.crc32c)
        start += record.length
    key = event_key(step, "worker_0")
    store.put(key, buffers)
    names = tuple(tensors)
    block = Statistics(
        STATISTICS_COLUMNS,
        names,
        ("float32",) * len(names),
        tuple(value.shape for value in tensors.values()),
        np.zeros((len(names), len(STATISTICS_COLUMNS))),
        tuple(checksums),
    )
    index = IndexFile(ModeKeys.TRAIN, step, key, tuple(locations), (), block, "0" * 26, 1, step + 1)
    store.put(index_key(step, "worker_0"), index.encode())


def seconds(work: Callable[[], object]) -> float:
    """Return how long one call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def tensors_of(num_bytes: int) -> dict[str, np.ndarray]:
    """Return the tensors of one step."""
    generator = np.random.default_rng(0)
    return {
        f"gradient/Net_layer{n}.weight": generator.standard_normal(num_bytes // 4, "f4")
        for n in range(NUM_TENSORS)
    }


def large(folder: Path, num_steps: int = 100) -> float:
    """Return plain writes' time over ours, 50 x 256 KiB a step; 1 means as fast."""
    tensors = tensors_of(256 << 10)
    store = LocalStore(folder / "ours")
    plain = folder / "plain"
    plain.mkdir(parents=True)

    def write_plain() -> None:
        for step in range(num_steps):
            with (plain / f"{step}.bin").open("wb", buffering=0) as file:
                for value in tensors.values():
                    file.write(value.data)

    def write_ours() -> None:
        for step in range(num_steps):
            write_step(store, step, tensors)

    ratios = []
    for _ in range(REPEATS):
        ratios.append(seconds(write_plain) / seconds(write_ours))
        shutil.rmtree(folder / "ours")
        for file in plain.iterdir():
            file.unlink()
    return statistics.median(ratios)


def small(folder: Path, num_steps: int = 1000) -> tuple[float, float, float]:
    """Return microseconds a tensor to write, to parse its index, and to read and decode it."""
    tensors = tensors_of(1 << 10)
    store = LocalStore(folder / "small")
    writes, parses, reads = [], [], []
    for _ in range(REPEATS):
        writes.append(
            seconds(lambda: [write_step(store, step, tensors) for step in range(num_steps)])
        )
        data = [store.get(index_key(step, "worker_0")) for step in range(num_steps)]
        parses.append(seconds(lambda: [parse_index(one, file="f") for one in data]))  # noqa: B023
        places = [parse_index(one, file="f").locations[7] for one in data]
        reads.append(seconds(lambda: [read(store, *place) for place in enumerate(places)]))  # noqa: B023
    scale = 1e6 / num_steps
    return (
        statistics.median(writes) * scale / NUM_TENSORS,
        statistics.median(parses) * scale / NUM_TENSORS,
        statistics.median(reads) * scale,
    )


def read(store: LocalStore, step: int, place: TensorLocation) -> np.ndarray:
    """Return one tensor's value at one step, by a ranged read."""
    data = store.get(event_key(step, "worker_0"), place.start, place.length)
    return decode_record(data, file="f").value


def main() -> None:
    """Print the measured ratios beside their limits."""
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as name:
        folder = Path(name)
        print(f"50 x 256 KiB x 100 steps, plain/ours: {large(folder):.2f} (must reach 0.8)")
        write, parse, read_us = small(folder)
        print(f"1,000 steps x 50 x 1 KiB, write a tensor: {write:.1f} us (must reach 12)")
        print(f"  parse an index file: {parse * NUM_TENSORS:.0f} us, a tensor {parse:.2f} us")
        print(f"  one tensor over 1,000 steps: {read_us:.1f} us a step = {read_us:.1f} ms (30)")


if __name__ == "__main__":
    main()
