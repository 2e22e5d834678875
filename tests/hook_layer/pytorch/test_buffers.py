"""Buffers of copies are used again; where shapes change, those of old ones are let go."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from hook_layer.pytorch.copies import BufferPool, HostCopy
from hook_layer.pytorch.device_statistics import DeviceBatches
from hook_layer.pytorch.tensor_backend import TorchBackend

MANY = 400_000  # bytes, enough for a buffer to be kept


def copied(backend: TorchBackend, num_bytes: int) -> Any:
    """Copy a tensor, use the copy, and return its memory, which keeps its address."""
    (snapshot,) = backend.snapshots([torch.ones(num_bytes, dtype=torch.uint8)], [None])
    array = snapshot.array()
    assert array.all()
    snapshot.release()
    return array


def test_a_buffer_is_used_again_once_its_copy_is_released() -> None:
    backend = TorchBackend(BufferPool(10 * MANY), DeviceBatches())
    first, second = copied(backend, MANY), copied(backend, MANY)
    other = copied(backend, MANY + 1)
    assert first.ctypes.data == second.ctypes.data != other.ctypes.data


def test_shapes_that_were_met_once_leave_room_for_the_usual_one() -> None:
    backend = TorchBackend(BufferPool(10 * MANY), DeviceBatches())
    for length in range(50):
        copied(backend, MANY - length)
    first, second = copied(backend, 3 * MANY), copied(backend, 3 * MANY)
    assert first.ctypes.data == second.ctypes.data


def test_the_buffers_that_were_used_last_are_kept() -> None:
    pool = BufferPool(10 * MANY)

    def used(num_bytes: int) -> weakref.ref[Any]:
        value = torch.ones(num_bytes, dtype=torch.uint8)
        buffer = pool.take(value.shape, value.dtype, pinned=False)
        pool.give_back(HostCopy(value, buffer))
        return weakref.ref(buffer)

    usual, others = used(MANY), []
    for length in range(1, 51):
        others.append(used(MANY - length))
        assert used(MANY)() is usual() is not None
    assert [other() is not None for other in others] == [False] * 41 + [True] * 9


def test_a_copy_larger_than_the_pool_drives_nothing_out() -> None:
    backend = TorchBackend(BufferPool(2 * MANY), DeviceBatches())
    usual = copied(backend, MANY)
    copied(backend, 2 * MANY + 1)
    assert copied(backend, MANY).ctypes.data == usual.ctypes.data
