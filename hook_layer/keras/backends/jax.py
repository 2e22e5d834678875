"""Keras on JAX: a step is a function without side effects, compiled by XLA by default.

The function cannot return tensors of gradients and branches. `jax.debug.callback` passes them to
the hook. The function of all other steps has no such callback.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax

from hook_layer.keras.capturing import ModelCapture
from hook_layer.keras.step_runner import BaseStepRunner
from hook_layer.keras.step_tensors import StepTensors

__all__ = ["StepRunner", "rank_and_size"]


def rank_and_size(model: Any) -> tuple[int, int]:  # noqa: ARG001 - other backends ask it
    """Return the number of this process, and how many there are."""
    return jax.process_index(), jax.process_count()


class StepRunner(BaseStepRunner):
    """Runs steps of a model on JAX."""

    def __init__(self, model: Any, kind: str, listener: ModelCapture) -> None:
        super().__init__(model, kind, listener, is_traced=True)
        self._function: Callable[..., Any] | None = None
        self._traces: list[StepTensors] = []

    def run(
        self, original: Callable[..., Any], args: tuple[Any, ...]
    ) -> tuple[Any, dict[str, Any]]:
        """Run the steps of one execution, and return the tensors within the last one."""
        state, iterator = args
        num_steps = int(self._model.steps_per_execution)
        if num_steps > 1 and self._kind == "predict":
            self._listener.state.warn_once(
                "steps_per_execution > 1: nothing within the steps of predict is saved"
            )
            return original(state, iterator), {}
        if self._function is None:
            self._function = self._make_function()
        batches = [next(iterator), *itertools.islice(iterator, num_steps - 1)]
        if len(batches) > 1:
            _, state = original(state, iter(batches[:-1]))
        for tensors in self._traces:
            tensors.clear_values()
        try:
            with self._observe():
                result = self._function(state, iter(batches[-1:]))
        except Exception as error:
            if any(leaf.is_deleted() for leaf in jax.tree.leaves(state)):
                raise
            self._listener.state.warn_once(f"nothing within the steps is saved: {error}")
            return original(state, iter(batches[-1:])), {}
        jax.effects_barrier()
        named: dict[str, Any] = {}
        # Each trace is of one shape of batches; only that of this step has values.
        for tensors in self._traces:
            named |= tensors.named()
            tensors.clear_values()
        if self._model.run_eagerly or not self._model.jit_compile:
            self._traces.clear()  # each step has tensors of its own
        return result, named

    def _begin(self) -> None:
        super()._begin()
        self._traces.append(self._tensors)

    def take(self, prefix: str, tensors: Sequence[Any]) -> None:
        """Add tensors to the step each time that they are computed."""
        for tensor in tensors:
            put = partial(_put, self._tensors, prefix, self._tensors.next_number(prefix))
            jax.debug.callback(put, tensor)


def _put(tensors: StepTensors, prefix: str, number: int, value: Any) -> None:
    tensors.put(prefix, number, value)
