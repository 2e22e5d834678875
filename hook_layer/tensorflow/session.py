"""What happens in a session of TensorFlow 1, and what is captured when."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import tensorflow as tf

from hook_layer.configuration.collections import OF_TRAINING, CollectionKeys
from hook_layer.configuration.hook_setup import HookSetup
from hook_layer.core.events import HookCloses
from hook_layer.core.hook import BaseHook
from hook_layer.errors import HookConfigurationError
from hook_layer.format.modes import WITHOUT_TRAINING
from hook_layer.guard import guarded
from hook_layer.tensorflow.collections import Collection, name_of
from hook_layer.tensorflow.graph import Graphs, graph_variables

__all__ = ["SessionEvents"]

_OURS: Final = "_stepwatch_hook"
_MAX_KNOWN: Final = 8


class SessionEvents(BaseHook, tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]  # unknown to mypy
    """A hook that handles the callbacks of a monitored session."""

    def __init__(self, setup: HookSetup) -> None:
        super().__init__(setup)
        self.stop_listener.raises = False  # the session is asked to end after a step
        self.events.subscribe(HookCloses, self._release, "close")
        self._graphs = Graphs()
        self._wanted: dict[tuple[Any, ...], tuple[dict[str, Any], dict[str, Any]]] = {}
        self._is_running = False

    # What users call -----------------------------------------------------------------------------

    def wrap_optimizer(self, optimizer: Any) -> Any:
        """Learn of an optimiser's loss, gradients and variables when a script makes use of it.

        Args:
            optimizer: A `tf.compat.v1.train.Optimizer`.

        Returns:
            The same optimiser.

        Raises:
            HookConfigurationError: It is another one.
        """
        if not isinstance(optimizer, tf.compat.v1.train.Optimizer):
            raise HookConfigurationError(
                f"optimizer={optimizer!r:.200} must be a tf.compat.v1.train.Optimizer; pass "
                "a Keras optimizer to KerasHook.wrap_optimizer"
            )
        if getattr(optimizer, _OURS, None) is self:
            return optimizer
        compute, apply = optimizer.compute_gradients, optimizer.apply_gradients

        def compute_gradients(loss: Any, *args: Any, **kwargs: Any) -> Any:
            found = compute(loss, *args, **kwargs)
            self._note(self.note_gradients, loss, found)
            return found

        def apply_gradients(*args: Any, **kwargs: Any) -> Any:
            operation = apply(*args, **kwargs)
            self._note(self.note_optimizer, optimizer)
            return operation

        wrapped = {"compute_gradients": compute_gradients, "apply_gradients": apply_gradients}
        vars(optimizer).update({**wrapped, _OURS: self})
        return optimizer

    def set_gradients(
        self, gradients: Iterable[Any] | None = None, gradients_and_variables: Any = None
    ) -> None:
        """Add gradients to their collection.

        Args:
            gradients: The gradients; None ones are left out.
            gradients_and_variables: Instead of them, what `compute_gradients` returned.

        Raises:
            HookConfigurationError: Both, or none, are given; or one is no tensor of a graph.
        """
        if (gradients is None) == (gradients_and_variables is None):
            raise HookConfigurationError("give either gradients or gradients_and_variables")
        if gradients is None:
            gradients = [gradient for gradient, _ in gradients_and_variables]
        self._add(CollectionKeys.GRADIENTS, [g for g in gradients if g is not None])

    def set_optimizer_variables(self, optimizer_variables: Iterable[Any]) -> None:
        """Add variables of an optimiser to their collection.

        Raises:
            HookConfigurationError: One is no variable of a graph.
        """
        self._add(CollectionKeys.OPTIMIZER_VARIABLES, list(optimizer_variables))

    def add_to_collection(self, collection_name: str, variable: Any) -> None:
        """Add a tensor or variable of the graph, or several, to a collection.

        Raises:
            HookConfigurationError: It is none.
        """
        self._add(collection_name, variable)

    def note_gradients(self, loss: Any, gradients_and_variables: Any) -> None:
        """Take what an optimiser computed: the loss, and its gradients."""
        if isinstance(loss, tf.Tensor):
            self._add(CollectionKeys.LOSSES, loss)
        self.set_gradients(gradients_and_variables=gradients_and_variables)

    def note_optimizer(self, optimizer: Any) -> None:
        """Take the variables that an optimiser has made."""
        self.set_optimizer_variables(optimizer.variables())

    # What a monitored session calls --------------------------------------------------------------

    def begin(self) -> None:
        """Look at the graph; called by the session."""
        if self.is_active:
            self._look_at(tf.compat.v1.get_default_graph())

    def before_run(self, run_context: Any) -> Any:
        """Begin a step, and ask for what is due in it; called by the session."""
        self._is_running = False
        self._begin_run()
        if not self._is_running or not self.collector.due:
            return None
        self._read_variables(run_context)
        fetches = self._fetches(run_context)
        return tf.compat.v1.train.SessionRunArgs(fetches) if fetches else None

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Capture what was asked for, and hand the step over; called by the session."""
        if self._is_running:
            self._capture_results(run_values.results)
            self._hand_run_over()
        if self._ends_here():
            run_context.request_stop()

    def end(self, session: Any) -> None:  # noqa: ARG002
        """Hand over what is left; called by the session."""
        self._hand_run_over(is_last=True)

    # How -----------------------------------------------------------------------------------------

    @guarded("steps")
    def _begin_run(self) -> None:
        self.begin_step()
        self._is_running = True

    @guarded("steps")
    def _hand_run_over(self, *, is_last: bool = False) -> None:
        if is_last:
            self.recorder.end_step()
        else:
            self.recorder.step_is_captured()

    @guarded("graph")
    def _look_at(self, graph: Any) -> None:
        for variable in graph.get_collection(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES):
            is_bias = "bias" in variable.name
            self._add(CollectionKeys.BIASES if is_bias else CollectionKeys.WEIGHTS, variable)
        self._add(CollectionKeys.LOSSES, graph.get_collection(tf.compat.v1.GraphKeys.LOSSES))

    @guarded("graph")
    def _note(self, method: Any, *arguments: Any) -> None:
        method(*arguments)

    @guarded("variables")
    def _read_variables(self, run_context: Any) -> None:
        """Capture variables as they are before the step; within it either value might be read."""
        variables = self._wanted_of(run_context.session.graph)[1]
        if variables:
            self._capture_values(run_context.session.run(variables))

    @guarded("tensors of the graph")
    def _fetches(self, run_context: Any) -> dict[str, Any]:
        graph = run_context.session.graph
        tensors = self._wanted_of(graph)[0]
        losses = self.collection_manager.get(CollectionKeys.LOSSES).tensor_names
        return self._graphs.computed(graph, run_context.original_args, tensors, losses)

    @guarded("tensors of the graph")
    def _capture_results(self, results: dict[str, Any] | None) -> None:
        if results:
            self._capture_values(results)

    def _capture_values(self, values: dict[str, Any]) -> None:
        self.recorder.capture(self.collector.planned(values))

    def _wanted_of(self, graph: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the tensors, and the variables, of a graph that are due in this step."""
        found = self._wanted.get(self._due_key(graph))
        if found is None:
            variables = graph_variables(graph)
            found = (
                self._graphs.fetchable(graph, self._is_wanted),
                {name: variable for name, variable in variables.items() if self._is_wanted(name)},
            )
            known = dict(list(self._wanted.items())[:_MAX_KNOWN])
            self._wanted = {self._due_key(graph): found, **known}
        return found

    def _due_key(self, graph: Any) -> tuple[Any, ...]:
        members = ((each.name, len(each.tensor_names)) for each in self.collector.due)
        return id(graph), self.mode in WITHOUT_TRAINING, self.collection_manager.version, *members

    def _is_wanted(self, name: str) -> bool:
        """Return whether a tensor is due in this step; what is of training never is in another."""
        if self.mode in WITHOUT_TRAINING:
            collections = map(self.collection_manager.get, OF_TRAINING)
            if any(collection.has_tensor_name(name) for collection in collections):
                return False
        return self.collector.plan(name) is not None

    def _add(self, collection_name: str, what: Any) -> None:
        collection = self.collection_manager.get(collection_name)
        if isinstance(collection, Collection):
            collection.add(what)
            return
        for item in what if isinstance(what, (list, tuple)) else [what]:
            collection.add_tensor_name(name_of(item))  # one that the script made of the base class

    # The way back --------------------------------------------------------------------------------

    def _ends_here(self) -> bool:
        return self.is_active and self.stop_listener.ends_loop(f"step {self.step}")

    def _release(self, _: HookCloses) -> None:
        self._wanted.clear()
