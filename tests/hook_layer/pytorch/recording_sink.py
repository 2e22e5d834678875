"""A sink that plans every tensor, and copies what it is given to capture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from hook_layer.configuration.collection_manager import TensorPlan

__all__ = ["RecordingSink"]


class RecordingSink:
    """Plans and records tensors.

    Args:
        leaves_out: Returns whether a tensor is not due.

    Attributes:
        due_key: Identifies what is due: always the same.
        batches: The tensors of each capture, by name, as they were then.
        num_planned: How often a plan was asked for.
    """

    due_key = ("mine",)

    def __init__(self, leaves_out: str = "nothing") -> None:
        self.batches: list[dict[str, Tensor]] = []
        self.num_planned = 0
        self._leaves_out = leaves_out

    def plan(self, name: str, member_of: tuple[str, ...] = ()) -> TensorPlan | None:  # noqa: ARG002
        self.num_planned += 1
        return None if self._leaves_out in name else TensorPlan(raw=True)

    def planned(
        self, tensors: Mapping[str, Tensor], member_of: tuple[str, ...] = ()
    ) -> dict[str, tuple[Tensor, TensorPlan]]:
        plans = {name: self.plan(name, member_of) for name in tensors}
        return {name: (tensors[name], plan) for name, plan in plans.items() if plan is not None}

    def capture(self, tensors: Mapping[str, tuple[Any, TensorPlan]]) -> None:
        copies = {name: value.detach().clone() for name, (value, _) in tensors.items()}
        self.batches += [copies] if copies else []

    def names(self) -> list[list[str]]:
        """Return the names of each capture."""
        return [list(batch) for batch in self.batches]
