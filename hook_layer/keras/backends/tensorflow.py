"""Keras on TensorFlow: a step is a graph, compiled by XLA with `jit_compile=True`, or plain Python.

The second function returns the tensors within the step, which XLA supports. With several replicas
they are those of the first one, but gradients are summed over all, as the optimiser does.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import keras
import numpy as np
import tensorflow as tf

from hook_layer.errors import HookConfigurationError
from hook_layer.keras.capturing import ModelCapture
from hook_layer.keras.failed_losses import tensors_up_to_loss
from hook_layer.keras.step_runner import BaseStepRunner
from hook_layer.keras.step_tensors import StepTensors, joined, separated

__all__ = ["StepRunner", "rank_and_size"]

_GRADIENTS: Final = "gradients/"


def rank_and_size(model: Any) -> tuple[int, int]:
    """Return the number of this worker of a tf.distribute strategy, and how many there are.

    Args:
        model: The model, which knows its strategy outside of the strategy's scope too; None: there
            is none, and the strategy is that of the scope.
    """
    strategy = tf.distribute.get_strategy() if model is None else model.distribute_strategy
    resolver = strategy.cluster_resolver
    if resolver is None or not resolver.cluster_spec().as_dict():
        return 0, 1
    workers = resolver.cluster_spec().num_tasks("worker")
    return int(resolver.task_id or 0), int(workers)


class StepRunner(BaseStepRunner):
    """Runs steps of a model on TensorFlow."""

    _sees_outer = True  # what LossScaleOptimizer computes is within a branch of the graph

    def __init__(self, model: Any, kind: str, listener: ModelCapture) -> None:
        super().__init__(model, kind, listener, is_traced=not model.run_eagerly)
        self._function: Any = None
        self._checked: Any = None
        self._is_off = False
        self._batches: Any = None  # of the latest execution
        self._replicas: dict[int, StepTensors] = {}

    def run(
        self, original: Callable[..., Any], args: tuple[Any, ...]
    ) -> tuple[Any, dict[str, Any]]:
        """Run the steps of one execution, and return the tensors within the last one."""
        num_steps = int(self._model.steps_per_execution)
        if self._kind != "predict" and not hasattr(args[0], "element_spec"):
            args = (_tensors(args[0]),)  # of `train_on_batch`
        self._batches = args[0]
        if self._is_off:
            return original(*args), {}
        if not self._is_traced and num_steps == 1:
            if self._function is None:  # Keras's own has the original `train_step`
                self._function = self._eager_function()
            with self._observe():
                result = self._function(*args)
            return result, self._of_all_replicas()
        if num_steps > 1 and self._kind == "predict":
            self._listener.state.warn_once(
                "steps_per_execution > 1: nothing within the steps of predict is saved"
            )
            return original(*args), {}
        batches = args[0]
        try:
            # As Keras has it, whose graph takes the batch out of the iterator itself.
            likeness = batches[0] if isinstance(batches, list) else batches.element_spec
            function = self._traced(keras.tree.map_structure(_without_optional, likeness))
        except Exception as error:  # noqa: BLE001 - if it is the model's own it comes again
            self._is_off = True
            self._listener.state.warn_once(f"nothing within the steps is saved: {error}")
            return original(*args), {}
        super().before_update()  # tracing built what was not
        if not isinstance(batches, list):
            batches = [next(batches), *itertools.islice(batches, num_steps - 1)]
        for batch in batches[:-1]:
            original([batch])
        self._batches = batches[-1:]
        result, named = function(keras.tree.map_structure(_without_optional, batches[-1]))
        return result, _unscaled(separated(named))

    def computed(self, error: Exception) -> dict[str, Any]:
        """Return what a failed step computes before it fails, by name.

        A graph that cannot be made has no values, so its batch is computed again without a graph.
        """
        if not self._is_traced:
            return self._of_all_replicas()
        self._is_off = True
        if isinstance(error, _OTHER_ERRORS):
            return {}
        batch = next(iter(self._batches))
        return {**tensors_up_to_loss(self._model, batch, self._listener.is_due)}

    def _traced(self, likeness: Any) -> Any:
        if self._function is None:
            plain = self._eager_function()

            def step(batch: Any) -> tuple[Any, dict[str, Any]]:
                with self._observe():
                    result = plain([batch])
                return result, joined(self._of_all_replicas())

            self._function = tf.function(
                tf.autograph.experimental.do_not_convert(step),
                reduce_retracing=True,
                jit_compile=self._model.jit_compile,
            )
        graph = self._function.get_concrete_function(likeness).graph
        if graph is not self._checked:
            self._checked = graph
            if _has_own_random_numbers(graph):
                raise HookConfigurationError(
                    "the step uses tf.random with a seed, whose numbers change in a second "
                    "function; use keras.random with a SeedGenerator"
                )
        return self._function

    def _eager_function(self) -> Callable[..., Any]:
        """Return what Keras makes a graph of, to be part of another graph."""
        run_eagerly = self._model.run_eagerly
        self._model.run_eagerly = True
        try:
            return self._make_function()
        finally:
            self._model.run_eagerly = run_eagerly

    # Callbacks of `WatchedModel` -----------------------------------------------------------------

    def take(self, prefix: str, tensors: Sequence[Any]) -> None:
        """Add tensors of this replica."""
        of_replica = self._replicas.setdefault(_replica(), StepTensors())
        for tensor in tensors:
            of_replica.add(prefix, tensor)

    def take_gradients(self, optimizer: Any, named: Mapping[str, Any]) -> None:
        """Add gradients, and the scale of the loss if it is scaled."""
        dense = {name: tf.convert_to_tensor(gradient) for name, gradient in named.items()}
        scale = getattr(optimizer, "dynamic_scale", getattr(optimizer, "initial_scale", None))
        if scale is not None and dense:
            self.take(_SCALE, [tf.convert_to_tensor(scale)])
        super().take_gradients(optimizer, dense)

    def before_update(self) -> None:
        """Report that variables are about to change; in a graph they do not exist yet."""
        if not self._is_traced:
            super().before_update()

    def _begin(self) -> None:
        if _replica() == 0:
            self._replicas.clear()

    def _of_all_replicas(self) -> dict[str, Any]:
        graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        replicas = [tensors.named() for _, tensors in sorted(self._replicas.items())]
        self._replicas.clear()
        found: dict[str, Any] = {}
        for name, tensor in (replicas[0] if replicas else {}).items():
            parts = [named[name] for named in replicas if name in named]
            if graph is not None and any(getattr(p, "graph", graph) is not graph for p in parts):
                self._listener.state.warn_once(
                    f"{name}, and what else lies within a loop or branch, is not saved"
                )
            elif name.startswith(_GRADIENTS) and len(parts) > 1:
                found[name] = tf.add_n(parts)
            else:
                found[name] = tensor
        return found


_SCALE: Final = "loss scale"
_OTHER_ERRORS: Final = (
    *(tf.errors.OutOfRangeError, tf.errors.ResourceExhaustedError),
    *(MemoryError, StopIteration),
)
"""Errors that do not show what a loss gets."""
_RANDOM_OPERATIONS: Final = frozenset(
    (
        "Multinomial",
        "ParameterizedTruncatedNormal",
        "RandomGamma",
        "RandomPoissonV2",
        "RandomShuffle",
        "RandomStandardNormal",
        "RandomUniform",
        "RandomUniformInt",
        "TruncatedNormal",
    )
)


def _unscaled(named: dict[str, Any]) -> dict[str, Any]:
    """Divide gradients by the scale of the loss; leave out those of a step that is left out."""
    scales = [tensor for name, tensor in named.items() if name.startswith(_SCALE)]
    if not scales:
        return named
    rest = {name: t for name, t in named.items() if not name.startswith((_SCALE, _GRADIENTS))}
    gradients = {name: t.numpy() for name, t in named.items() if name.startswith(_GRADIENTS)}
    if not all(np.isfinite(gradient).all() for gradient in gradients.values()):
        return rest
    scale = scales[0].numpy()
    return rest | {name: gradient / scale for name, gradient in gradients.items()}


def _replica() -> int:
    context = tf.distribute.get_replica_context()
    number = 0 if context is None else context.replica_id_in_sync_group
    return number if isinstance(number, int) else int(tf.get_static_value(number) or 0)


def _has_own_random_numbers(graph: Any) -> bool:
    """Return whether a graph has random numbers that depend on how often it is run itself."""
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
    drawn = [node for node in nodes if node.op in _RANDOM_OPERATIONS]
    return any(node.attr["seed"].i or node.attr["seed2"].i for node in drawn)


def _tensors(batches: Iterable[Any]) -> list[Any]:
    """Return batches of numpy's arrays as tensors, so that their values are no part of a graph."""
    return [keras.tree.map_structure(_as_tensor, batch) for batch in batches]


def _as_tensor(leaf: Any) -> Any:
    return None if leaf is None else tf.convert_to_tensor(leaf)


def _without_optional(leaf: Any) -> Any:
    return None if isinstance(leaf, (tf.experimental.Optional, tf.OptionalSpec)) else leaf
