"""Detects changed gradients, after a backward pass or before an optimizer steps.

Nothing is registered with the parameters. A gradient has changed if it is another tensor, or was
written to, since the last check. It is read after the whole backward pass: then it is the sum over
all paths and, in DistributedDataParallel, over all ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final
from weakref import ref

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

__all__ = ["GradientReader"]

_COMPRESSED: Final = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


class GradientReader:
    """Finds the gradients of a step."""

    def __init__(self) -> None:
        self._watched: dict[str, nn.Parameter] = {}
        self._before: list[tuple[Tensor | None, int]] | None = None  # during a backward pass
        self._arrived: dict[str, nn.Parameter] = {}
        self._announced: set[str] = set()
        self._found: set[str] = set()
        self._known: dict[str, _Version] = {}

    @property
    def num_watched(self) -> int:
        """Number of watched parameters."""
        return len(self._watched)

    @property
    def all_announced(self) -> bool:
        """Whether backward passes have produced the gradients of all watched parameters."""
        return len(self._announced) >= len(self._watched)

    @property
    def have_arrived(self) -> bool:
        """Whether gradients have arrived that were not taken yet."""
        return bool(self._arrived)

    def begin_step(self) -> None:
        """Forget the gradients of the previous step, and a backward pass that raised an error."""
        self._arrived, self._before = {}, None
        self._announced.clear()
        self._found.clear()

    def watch(self, parameters: Mapping[str, nn.Parameter]) -> None:
        """Also watch these parameters, by the names of their gradients."""
        self._watched.update(parameters)
        there = {name: p.grad for name, p in parameters.items()}
        self._known = {name: v for name, v in self._known.items() if name not in there}
        self._known.update((name, _Version(g)) for name, g in there.items() if g is not None)

    def unwatch(self) -> None:
        """Stop watching."""
        self._watched = {}
        self._known.clear()
        self.begin_step()

    def backward_begins(self) -> None:
        """Record the gradients before a backward pass."""
        gradients = [parameter.grad for parameter in self._watched.values()]
        self._before = [(g, 0 if g is None else _num_writes(g)) for g in gradients]

    def backward_ends(self) -> None:
        """Find the gradients that the backward pass has changed, even if it raised an error."""
        if self._before is None:
            return
        before, self._before = self._before, None
        for (name, parameter), (gradient, version) in zip(
            self._watched.items(), before, strict=False
        ):
            now = parameter.grad
            if now is None or (now is gradient and _num_writes(now) == version):
                continue
            if name not in self._found:  # otherwise its optimizer has stepped
                self._arrived[name] = parameter

    def find(self, parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
        """Return gradients that arrived without a noticed backward pass since the last check.

        Scripts may assign results of `torch.autograd.grad`, FSDP2 assigns reduced gradients, and an
        optimizer may step within the backward pass.
        """
        found = {}
        for name, parameter in parameters.items():
            gradient = parameter.grad
            if gradient is None or name in self._announced:
                continue
            known, self._known[name] = self._known.get(name), _Version(gradient)
            if known is None or not known.is_of(gradient):
                self._found.add(name)
                found[name] = gradient
        return found

    def take(self, only: Iterable[nn.Parameter] | None = None) -> dict[str, Tensor]:
        """Return and remove new gradients by name, optionally `only` those of some parameters."""
        arrived, self._arrived = self._arrived, {}
        if only is not None:
            chosen = {id(parameter) for parameter in only}
            self._arrived = {name: p for name, p in arrived.items() if id(p) not in chosen}
            arrived = {name: p for name, p in arrived.items() if id(p) in chosen}
        gradients = {name: p.grad for name, p in arrived.items() if p.grad is not None}
        self._announced.update(gradients)
        return gradients


class _Version:
    """Identity, memory and write count of a gradient; holds no strong reference."""

    __slots__ = ("_memory", "_num_writes", "_tensor")

    def __init__(self, gradient: Tensor) -> None:
        self._tensor = None if _may_be_swapped(gradient) else ref(gradient)
        self._memory = _memory(gradient)
        self._num_writes = _num_writes(gradient)

    def is_of(self, gradient: Tensor) -> bool:
        """Return whether it is this gradient, without writes since."""
        is_same = self._tensor is None or self._tensor() is gradient
        is_written_to = self._num_writes != _num_writes(gradient)
        return is_same and not is_written_to and self._memory == _memory(gradient)


def _may_be_swapped(gradient: Tensor) -> bool:
    """Return whether `Module.to` may swap a gradient, which torch refuses with weak references.

    Such a gradient is identified by a reference to its memory, which takes four times as long.
    """
    has_class = type(gradient) is not Tensor
    return has_class or torch.__future__.get_swap_module_params_on_conversion()


def _memory(gradient: Tensor) -> tuple[object, ...]:
    if not _may_be_swapped(gradient):
        return (gradient.data_ptr(),) if gradient.layout is torch.strided else ()
    values = gradient
    if gradient.layout in _COMPRESSED:
        values = gradient.values()
    elif gradient.is_sparse:
        values = gradient._values()  # noqa: SLF001 - also for uncoalesced tensors
    return id(gradient), StorageWeakRef(values.untyped_storage())  # type: ignore[no-untyped-call]


def _num_writes(tensor: Tensor) -> int:
    # Inference tensors do not count writes.
    return 0 if tensor.is_inference() else tensor._version  # noqa: SLF001 - no public way
