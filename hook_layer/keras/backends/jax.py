"""Keras on JAX: a step is a function without side effects, compiled by XLA unless told otherwise.

What is met within gradients and branches belongs to these, and cannot be returned. It gets out by
`jax.debug.callback`, which the function that is called in all other steps does not have.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax

from hook_layer.keras.inside import BaseInside, Listener
from hook_layer.keras.met import Met

__all__ = ["Inside", "rank_and_size"]


def rank_and_size(model: Any) -> tuple[int, int]:  # noqa: ARG001 - other backends ask it
    """Return the number of this process, and how many there are."""
    return jax.process_index(), jax.process_count()


class Inside(BaseInside):
    """Runs steps of a model on JAX.

    Args:
        model: The model.
        kind: `train`, `test` or `predict`.
        listener: What must be looked for.
    """

    def __init__(self, model: Any, kind: str, listener: Listener) -> None:
        super().__init__(model, kind, listener, is_traced=True)
        self._function: Callable[..., Any] | None = None
        self._traces: list[Met] = []

    def run(
        self, original: Callable[..., Any], args: tuple[Any, ...]
    ) -> tuple[Any, dict[str, Any]]:
        """Run a step, the last of those that are executed together with a look into it."""
        state, iterator = args
        num_steps = int(self._model.steps_per_execution)
        if num_steps > 1 and self._kind == "predict":
            self._listener.say_once(
                "steps_per_execution > 1: nothing within the steps of predict is saved"
            )
            return original(state, iterator), {}
        if self._function is None:
            self._function = self._made_by_keras()
        batches = [next(iterator), *itertools.islice(iterator, num_steps - 1)]
        if len(batches) > 1:
            _, state = original(state, iter(batches[:-1]))
        for met in self._traces:
            met.forget_values()
        try:
            with self._looking():
                result = self._function(state, iter(batches[-1:]))
        except Exception as error:
            if any(leaf.is_deleted() for leaf in jax.tree.leaves(state)):
                raise
            self._listener.say_once(f"nothing within the steps is saved: {error}")
            return original(state, iter(batches[-1:])), {}
        jax.effects_barrier()
        named: dict[str, Any] = {}
        for met in self._traces:  # the step is of one of them: each has another shape of batches
            named |= met.named()
            met.forget_values()
        if self._model.run_eagerly or not self._model.jit_compile:
            self._traces.clear()  # each step meets tensors of its own
        return result, named

    def _forget(self) -> None:
        super()._forget()
        self._traces.append(self._met)

    def take(self, prefix: str, tensors: Sequence[Any]) -> None:
        """Let tensors that were met be put down when they are computed."""
        for tensor in tensors:
            put = partial(_put, self._met, prefix, self._met.next_number(prefix))
            jax.debug.callback(put, tensor)


def _put(met: Met, prefix: str, number: int, value: Any) -> None:
    met.put(prefix, number, value)
