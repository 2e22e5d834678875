"""Decides which collections are saved in a step, and what is stored of each tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from hook_layer.configuration.collection_manager import CollectionManager, OnMistake, TensorPlan
from hook_layer.configuration.collections import Collection
from hook_layer.core.events import CollectionsResolve, Events
from hook_layer.format.modes import ModeKeys

__all__ = ["AlsoDue", "Collector"]

AlsoDue: TypeAlias = Callable[[CollectionManager, ModeKeys, int], Iterable[Collection]]
"""Returns further collections that are saved in a step, given its mode and number in this mode."""

_Value = TypeVar("_Value")
_Plans: TypeAlias = "dict[str | tuple[str, ...], TensorPlan | None]"
"""Plans by tensor name, or by name and collections that the tensor belongs to."""
_UNPLANNED: Final[Any] = object()


class Collector:
    """Decides what is saved in the open step.

    A step in which no collection is saved costs a few attribute reads. Changes of a collection
    without a method, such as `collection.include_regex.append(...)`, apply from the next saved
    step.

    Args:
        manager: The collections.
        events: Counts misconfigured collections, and lets parts resolve the others.
        also_due: Returns further collections of a step, which have other conditions.

    Attributes:
        manager: The collections.
        due: Collections that are saved in the open step.
        due_key: Identifies `due`, and everything that depends on it alone.
        only_logs_mistakes: Whether a misconfigured collection is only logged even in the first
            step: for scripts that do not create the hook.
    """

    def __init__(
        self,
        manager: CollectionManager,
        events: Events,
        also_due: AlsoDue | None = None,
    ) -> None:
        self.manager = manager
        self.due: tuple[Collection, ...] = ()
        self.due_key: tuple[Any, ...] = ()
        self.only_logs_mistakes = False
        self._events = events
        self._also_due = also_due
        self._plans: _Plans = {}
        self._plans_by_key: dict[tuple[Any, ...], _Plans] = {}
        self._version = 0

    def begin_step(self, mode: ModeKeys, mode_step: int, *, is_first: bool = False) -> None:
        """Determine what is saved in a step.

        Raises:
            HookConfigurationError: A collection is misconfigured (in the first step only).
        """
        if self._also_due is None and self.manager.is_unsaved(mode, mode_step):
            if self.due:
                self.clear()
            return
        on_mistake = self.on_mistake(is_first=is_first)
        resolve = partial(self._events.emit, CollectionsResolve(self.manager, on_mistake))
        due = self.manager.due(mode, mode_step, on_mistake, resolve)
        if self._also_due is not None:
            known = {collection.name for collection in due}
            more = self._also_due(self.manager, mode, mode_step)
            due = (*due, *(collection for collection in more if collection.name not in known))
        self._begin(due)

    def next_step(self, mode: ModeKeys, mode_step: int) -> float:
        """Return the next step of a mode that may be saved, or a lower bound of it."""
        is_bounded = self._also_due is None and not self.due
        return self.manager.next_saved_step(mode, mode_step) if is_bounded else mode_step + 1

    def clear(self) -> None:
        """Save nothing more in the open step."""
        self._begin(())

    def plan(self, name: str, member_of: Sequence[str] = ()) -> TensorPlan | None:
        """Return what is stored of a tensor in the open step; None for nothing.

        Args:
            name: Name of the tensor.
            member_of: Collections that contain the tensor, regardless of its name.
        """
        if not self.due:
            return None
        key = (name, *member_of) if member_of else name
        plan = self._plans.get(key, _UNPLANNED)
        if plan is _UNPLANNED:
            plan = self._plans[key] = self.manager.plan(name, self.due, member_of=member_of)
        return plan  # type: ignore[no-any-return]  # the default is of any type

    def planned(
        self, tensors: Mapping[str, _Value], member_of: Sequence[str] = ()
    ) -> dict[str, tuple[_Value, TensorPlan]]:
        """Return the tensors that are stored in any form, each with its plan.

        Args:
            tensors: Tensors by name.
            member_of: Collections that contain all of them, regardless of their names.
        """
        plans = ((name, tensor, self.plan(name, member_of)) for name, tensor in tensors.items())
        return {name: (tensor, plan) for name, tensor, plan in plans if plan is not None}

    def is_due(self, name: str) -> bool:
        """Return whether the collection `name` is saved in the open step."""
        return any(collection.name == name for collection in self.due)

    def on_mistake(self, *, is_first: bool) -> OnMistake | None:
        """Return the handler of misconfigured collections; None to raise an error instead.

        Args:
            is_first: Whether this is the first step, or no step was counted yet.
        """
        return None if is_first and not self.only_logs_mistakes else self._events.failures.mistaken

    def _begin(self, due: tuple[Collection, ...]) -> None:
        version = self.manager.version
        if version != self._version:
            self._version = version
            self._plans_by_key.clear()
        self.due = due
        self.due_key = (version, *(collection.name for collection in due))
        self._plans = self._plans_by_key.setdefault(self.due_key, {}) if due else {}
