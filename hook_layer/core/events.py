"""The events of a training loop, in the order in which a step has them, and their subscribers.

A framework's hook emits the events, and the parts of the hook subscribe to them.
`tools/event_table.py` writes the table of events and subscribers in `docs/architecture.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from hook_layer.errors import HookConfigurationError, TrainingStoppedError
from hook_layer.guard import FailureLog
from hook_layer.weak_method import WeakMethod

__all__ = [
    "BackwardBegins",
    "BackwardEnds",
    "CollectionsResolve",
    "Event",
    "Events",
    "FirstPassBegins",
    "HookCloses",
    "ListeningChanges",
    "ModelCompiles",
    "ModelsChange",
    "ModelsRelease",
    "OptimizerBegins",
    "PassBegins",
    "PassEnds",
    "SavingPauses",
    "StepBegins",
    "StepEnds",
    "StepRestarts",
]


@dataclass(frozen=True)
class Event:
    """Something that happens in a training loop.

    Attributes:
        reaches_disabled_parts: Whether idle parts, and those that were disabled after errors, get
            it, too, because they must release or forget what they hold.
    """

    reaches_disabled_parts: ClassVar[bool] = False


@dataclass(frozen=True)
class ModelsChange(Event):
    """A model is registered, or the known ones may have changed."""

    reaches_disabled_parts: ClassVar[bool] = True


@dataclass(frozen=True)
class FirstPassBegins(Event):
    """A model is called for the first time since a model was registered, in any step.

    `torch.compile` sees modules now, so those that may become due must be watched already.
    """


@dataclass(frozen=True)
class ModelCompiles(Event):
    """`torch.compile` is about to see a model."""


@dataclass(frozen=True)
class CollectionsResolve(Event):
    """Collections or models have changed: find their tensors before it is decided what is saved.

    Attributes:
        manager: The collections.
        on_mistake: Handler of misconfigured collections; None: raise an error.
    """

    manager: Any
    on_mistake: Any


@dataclass(frozen=True)
class StepBegins(Event):
    """A saved step begins.

    Attributes:
        optimizer: The optimizer whose closure contains the whole step; None: no closure.
    """

    optimizer: Any = None


@dataclass(frozen=True)
class ListeningChanges(Event):
    """Losses are listened to from now on, or not any more.

    Attributes:
        is_on: Whether to listen.
    """

    is_on: bool


@dataclass(frozen=True)
class PassBegins(Event):
    """A model is called in a saved step.

    Attributes:
        model: The model.
    """

    model: Any


@dataclass(frozen=True)
class PassEnds(Event):
    """A model returns in a saved step.

    Attributes:
        model: The model.
        inputs: Its inputs.
        outputs: Its outputs; None if the pass raised an exception.
    """

    model: Any
    inputs: Any
    outputs: Any


@dataclass(frozen=True)
class BackwardBegins(Event):
    """A backward pass begins.

    Attributes:
        roots: The arguments of the call; the first one is the tensor that it starts from.
    """

    roots: tuple[Any, ...]


@dataclass(frozen=True)
class BackwardEnds(Event):
    """A backward pass has changed gradients that are saved."""


@dataclass(frozen=True)
class OptimizerBegins(Event):
    """An optimizer of the models is about to step, in a saved step.

    Attributes:
        optimizer: The optimizer.
        has_closure: Whether its step calls a closure that computes the loss.
    """

    optimizer: Any
    has_closure: bool


@dataclass(frozen=True)
class StepEnds(Event):
    """A step ends, saved or not: capture what is left of it."""


@dataclass(frozen=True)
class StepRestarts(Event):
    """The captured tensors of the open step are released, because they belong to another model."""


@dataclass(frozen=True)
class SavingPauses(Event):
    """The first step that is not saved: stop watching until the next saved step."""

    reaches_disabled_parts: ClassVar[bool] = True


@dataclass(frozen=True)
class ModelsRelease(Event):
    """The models are released.

    Attributes:
        is_final: Whether other models may follow; otherwise, a later call watches them again.
    """

    reaches_disabled_parts: ClassVar[bool] = True
    is_final: bool


@dataclass(frozen=True)
class HookCloses(Event):
    """The hook is closed: release objects of the framework."""

    reaches_disabled_parts: ClassVar[bool] = True


_Event = TypeVar("_Event", bound=Event)
_Subscriber = tuple[str, WeakMethod[Callable[[Any], None]]]


class Events:
    """Calls the subscribers of each event, in the order of their subscription.

    Subscribers are referenced weakly. Their errors never reach training: they are counted by part.
    Only stop requests and configuration mistakes are raised.

    Attributes:
        failures: Counts the errors.
        idle: Parts that have nothing to do for now.
    """

    def __init__(self, failures: FailureLog) -> None:
        self.failures = failures
        self.idle: set[str] = set()
        self._subscribers: dict[type[Event], tuple[_Subscriber, ...]] = {}

    def subscribe(self, kind: type[_Event], method: Callable[[_Event], None], part: str) -> None:
        """Call a method at each event of a kind.

        Args:
            kind: Class of the event.
            method: The method. Its owner is referenced weakly.
            part: The part of the hook that is disabled after several consecutive errors.
        """
        subscriber = part, WeakMethod(method)
        self._subscribers[kind] = (*self._subscribers.get(kind, ()), subscriber)

    def emit(self, event: Event) -> None:
        """Call the subscribers of an event."""
        failures, reaches_all = self.failures, event.reaches_disabled_parts
        for part, method in self._subscribers.get(type(event), ()):
            subscriber, function = method.owner(), method.function
            is_off = part in failures.off or part in self.idle
            if subscriber is None or (is_off and not reaches_all):
                continue
            try:
                function(subscriber, event)
            except (TrainingStoppedError, HookConfigurationError):
                raise
            except Exception as error:  # noqa: BLE001 - training continues after any error
                failures.failed(part, error, where=function.__name__)
            else:
                if failures.in_a_row:
                    failures.succeeded(part, where=function.__name__)

    def table(self) -> Iterator[tuple[type[Event], list[str]]]:
        """Return each kind of event, and the names of its subscribers in order."""
        for kind, subscribers in self._subscribers.items():
            yield kind, [method.function.__qualname__ for _, method in subscribers]
