"""Running a step, and looking into it: what the backends have in common.

Keras computes a step in one function, `model.train_function` and the like, compiled by TensorFlow
or JAX. In steps in which nothing within is due this very function is called. For the others there
is a second one, of the same `train_step`, that also gives the tensors that were met; it is traced
when it is needed first. So the steps between cost nothing, with XLA too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol
from weakref import ref

from hook_layer.keras.met import Met
from hook_layer.keras.watch import WatchedModel

__all__ = ["KINDS", "BaseInside", "Listener"]

KINDS: Final = ("train", "test", "predict")


class Listener(Protocol):
    """What wants to know what is met."""

    def wants(self, prefix: str) -> bool:
        """Return whether tensors of this name, without a number, are ever wanted."""
        ...

    def is_due(self, prefix: str) -> bool:
        """Return whether tensors of this name, without a number, are wanted in this step."""
        ...

    def before_update(self) -> None:
        """Capture variables that did not exist when the step began."""
        ...

    def say_once(self, message: str) -> None:
        """Log what cannot be captured."""
        ...


class BaseInside:
    """Runs steps of one kind of a model, and looks into them.

    Args:
        model: The model.
        kind: `train`, `test` or `predict`.
        listener: What must be looked for; known weakly.
        is_traced: Whether the step is traced and computed later, time and again.
    """

    def __init__(self, model: Any, kind: str, listener: Listener, *, is_traced: bool) -> None:
        self._model = model
        self._kind = kind
        self._known_listener = ref(listener)
        self._is_traced = is_traced
        self._met = Met()
        outer = is_traced and self._sees_outer
        self._watched = WatchedModel(model, self._wants, self, outer=outer)

    _sees_outer = False  # whether an optimiser within another one is out of sight

    @property
    def _listener(self) -> Listener:
        listener = self._known_listener()
        if listener is None:
            raise RuntimeError("the hook of this step no longer exists")
        return listener

    def _wants(self, prefix: str) -> bool:
        listener = self._listener
        return listener.wants(prefix) if self._is_traced else listener.is_due(prefix)

    def run(
        self, original: Callable[..., Any], args: tuple[Any, ...]
    ) -> tuple[Any, dict[str, Any]]:
        """Run a step.

        Args:
            original: The function that Keras made for it.
            args: What Keras gives it.

        Returns:
            What the function returns, and the tensors that were met, by name.
        """
        raise NotImplementedError

    def seen(self) -> dict[str, Any]:
        """Return the tensors of a step that failed, by name; none of a traced one."""
        return {} if self._is_traced else self._met.named()

    # What `WatchedModel` tells -------------------------------------------------------------------

    def take(self, prefix: str, tensors: Sequence[Any]) -> None:
        """Take tensors that were met."""
        for tensor in tensors:
            self._met.add(prefix, tensor)

    def take_gradients(self, optimizer: Any, named: Mapping[str, Any]) -> None:
        """Take gradients that were met, divided by the optimiser's factor if it has one."""
        factor = getattr(optimizer, "loss_scale_factor", None)
        for name, gradient in named.items():
            self.take(name, [gradient if factor is None else gradient / factor])

    def before_update(self) -> None:
        """Report that variables are about to change."""
        self._listener.before_update()

    # Parts of `run` ------------------------------------------------------------------------------

    def _forget(self) -> None:
        """Forget what was met, as a step begins, or begins to be traced."""
        self._met = Met()

    @contextmanager
    def _looking(self) -> Iterator[None]:
        """Look, within the block, into the model and at what its `train_step` or the like gets."""
        name = f"{self._kind}_step"
        own, step = vars(self._model).get(name), getattr(self._model, name)

        def looked_into(*args: Any) -> Any:
            self._forget()
            try:
                self._watched.take_batch(args[-1])
            except Exception as error:  # noqa: BLE001 - only a step of the script's own knows
                self._listener.say_once(f"inputs and labels are not saved: {error}")
            return step(*args)

        vars(self._model)[name] = looked_into
        try:
            with self._watched.watching():
                yield
        finally:
            if own is None:
                del vars(self._model)[name]
            else:
                vars(self._model)[name] = own

    def _made_by_keras(self) -> Callable[..., Any]:
        """Return the step's function as Keras makes it, of a step that is looked into."""
        name = f"{self._kind}_function"
        kept = vars(self._model).get(name)
        try:
            with self._looking():
                getattr(self._model, f"make_{name}")(force=True)
            made: Callable[..., Any] = getattr(self._model, name)
        finally:
            vars(self._model)[name] = kept
        return made
