"""What happens in Keras's loops, and what is captured when."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partialmethod
from typing import Any, Final
from weakref import WeakSet, ref

import keras

from hook_layer.configuration.collections import LOSS_INPUTS, CollectionKeys
from hook_layer.configuration.hook_setup import HookSetup
from hook_layer.core.clock import INIT_STEP
from hook_layer.core.events import HookCloses
from hook_layer.core.hook import BaseHook
from hook_layer.core.workers import Workers
from hook_layer.format.modes import ModeKeys
from hook_layer.guard import guarded
from hook_layer.keras.backends import active_backend
from hook_layer.keras.capturing import KerasTensors, ModelCapture
from hook_layer.keras.failed_losses import (
    FAILED_BUILDS,
    batch_of_build,
    kind_of_loop,
    tensors_up_to_loss,
)
from hook_layer.weak_method import WeakMethod

__all__ = ["KerasEvents"]

logger = logging.getLogger("stepwatch")

_MODES: Final = {
    "train": ModeKeys.TRAIN,
    "test": ModeKeys.EVAL,
    "predict": ModeKeys.PREDICT,
}
_RUNNER: Final = "_stepwatch_runner"
"""Attribute of a function of a model that computes a step: its step runner, and what that is for.

Keras makes a new function whenever a model is compiled. The runner of the old one goes with it. The
model owns the function, so the hook keeps no model in memory.
"""


class KerasEvents(BaseHook, keras.callbacks.Callback):  # type: ignore[misc]  # untyped
    """A hook that handles the callbacks of Keras, and tapes.

    Attributes:
        model_capture: Captures tensors of the model.
    """

    _model: Any  # set by Keras
    _registered: Any = None  # the model of a loop of the script's own

    def __init__(self, setup: HookSetup) -> None:
        super().__init__(setup, workers=KerasWorkers(self._watched_model), source=KerasTensors)
        keras.callbacks.Callback.__init__(self)
        self.events.subscribe(HookCloses, self._release_models, "close")
        self.model_capture = ModelCapture(self.state, self.collector, self.recorder)
        self._backend = active_backend()
        self._functions: WeakSet[Callable[..., Any]] = WeakSet()  # those with a step runner of ours
        self._needs_step_tensors = self._is_in_step = False
        self._forget_batches: Callable[[], None] = lambda: None
        self._fit: Callable[[], Any] | None = None  # its History, which Keras makes anew
        self._builds = FAILED_BUILDS.listen(self._on_failed_build)

    # Where the hook looks in ---------------------------------------------------------------------

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Continue the steps of the epochs before `initial_epoch`; called by Keras."""
        steps = self.params.get("steps")
        if steps is not None:
            self.training_resumes_at(epoch * steps)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Capture losses and metrics, and hand the step over; called by Keras."""
        self._batch_ends(batch, logs)
        self._stop_training_if_requested()

    def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Hand the step over; called by Keras."""
        self._batch_ends(batch, None)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Keep the results of the validation for the next saved step; called by Keras."""
        self._keep_validation(logs or {})
        self._stop_training_if_requested()

    # How -----------------------------------------------------------------------------------------

    @guarded("steps")
    def _loop_begins(self, kind: str, logs: Any = None) -> None:  # noqa: ARG002
        model, name = self.model, f"{kind}_function"
        function = vars(model).get(name)
        if isinstance(function, _StepFunction):  # of a loop that ended with an exception
            function = function.original
        if callable(function):
            model.__dict__[name] = _StepFunction(self, model, kind, function)
        if kind == "train":
            self._needs_step_tensors = False
            history = vars(model).get("history")
            self._fit = None if history is None else ref(history)

    def _loop_ends(self, kind: str, logs: Any = None) -> None:  # noqa: ARG002
        model, name = self._model, f"{kind}_function"
        function = vars(model).get(name) if model is not None else None
        if isinstance(function, _StepFunction):
            model.__dict__[name] = function.original

    @guarded("steps")
    def _batch_begins(
        self,
        kind: str,
        batch: int,  # noqa: ARG002
        logs: Any = None,  # noqa: ARG002
        *,
        raises: bool = False,
    ) -> None:
        self._needs_step_tensors = False
        self.model_capture.begin_step()
        self.set_mode(_MODES[kind])
        if self.session.is_writer is None:
            self.model_capture.names_of(self._model)
        self.stop_listener.raises = raises  # Keras's loops end after a step
        try:
            self.begin_step()
        finally:
            self.stop_listener.raises = True
        if self.collector.due:
            self._capture_model(self.model, kind)  # of which JAX has the variables only when asked

    # Called by Keras.
    on_train_begin = partialmethod(_loop_begins, "train")
    on_test_begin = partialmethod(_loop_begins, "test")
    on_predict_begin = partialmethod(_loop_begins, "predict")
    on_train_end = partialmethod(_loop_ends, "train")
    on_test_end = partialmethod(_loop_ends, "test")
    on_predict_end = partialmethod(_loop_ends, "predict")
    on_train_batch_begin = partialmethod(_batch_begins, "train")
    on_test_batch_begin = partialmethod(_batch_begins, "test")
    on_predict_batch_begin = partialmethod(_batch_begins, "predict")

    @guarded("variables")
    def _capture_model(self, model: Any, kind: str) -> None:
        self.model_capture.capture_variables(model)
        self._needs_step_tensors = self.model_capture.needs_step_tensors(model, kind)

    @guarded("steps")
    def _batch_ends(self, batch: int, logs: Mapping[str, Any] | None) -> None:
        if self.recorder.record is None:
            return
        if self.collector.due and logs is not None:
            named = {name: v for name, v in logs.items() if name != "outputs"}
            losses = {name: v for name, v in named.items() if _is_loss(name)}
            metrics = {name: v for name, v in named.items() if not _is_loss(name)}
            self.model_capture.capture(losses, (CollectionKeys.LOSSES,))
            self.model_capture.capture(metrics | {"batch": batch}, (CollectionKeys.METRICS,))
        self.recorder.step_is_captured()

    on_test_batch_end = _batch_ends

    @guarded("metrics")
    def _keep_validation(self, logs: Mapping[str, Any]) -> None:
        if not self.session.may_write():
            return
        for name, value in logs.items():
            if name.startswith("val_"):
                key = CollectionKeys.LOSSES if _is_loss(name) else CollectionKeys.METRICS
                collection = self.collection_manager.get(key)
                collection.add_tensor_name(name)
                plan = self.collection_manager.plan_in([collection])
                self.recorder.capture_for_next({name: (value, plan)})

    def _run_step(
        self, model: Any, kind: str, original: Callable[..., Any], args: tuple[Any, ...]
    ) -> Any:
        """Run a step, and capture the tensors within it if any is due."""
        is_due, self._needs_step_tensors = self._needs_step_tensors, False
        self._is_in_step = True
        try:
            if not is_due or self.recorder.record is None or not self._is_in_own_loop(model, kind):
                return original(*args)
            self.model_capture.before_step()
            runner = self._runner_of(model, kind, original)
            if runner is None:
                return original(*args)
            try:
                result, named = runner.run(original, args)
            except Exception as error:
                # Inputs of a loss may show why the step failed.
                self._capture_step_tensors(runner.computed(error))
                raise
        finally:
            self._is_in_step = False
        self._capture_step_tensors(named)
        return result

    @guarded("step tensors")
    def _on_failed_build(self, args: tuple[Any, Sequence[Any]], _: None) -> None:
        """Save what a loss gets that fails before the first step."""
        model, given = args
        kind = kind_of_loop(model, self)
        if kind is not None:
            self.set_model(model)
            self._batch_begins(kind, 0)
        is_ours = self._model is model and self.recorder.record is not None
        if is_ours and self.collector.due:
            batch = batch_of_build(given)
            named = tensors_up_to_loss(model, batch, self.model_capture.is_due)
            self._capture_step_tensors(named)
            self.recorder.step_is_captured()

    @guarded("step tensors")
    def _capture_step_tensors(self, named: Mapping[str, Any]) -> None:
        values = {name: value for name, value in named.items() if name.endswith("Loss_output_0")}
        self.model_capture.capture({name: v for name, v in named.items() if name not in values})
        self.model_capture.capture(values, (LOSS_INPUTS,))

    def _is_in_own_loop(self, model: Any, kind: str) -> bool:
        """Return whether it is not a `fit` without the hook, behind one that ended early."""
        if kind != "train" or self._fit is None:
            return True
        return vars(model).get("history") is self._fit()

    @guarded("step tensors")
    def _runner_of(self, model: Any, kind: str, original: Callable[..., Any]) -> Any:
        key = (ref(self), ref(model), kind, self.collection_manager.version)
        known = vars(original).get(_RUNNER)
        if known is None or known[0] != key:
            runner = self._backend.StepRunner(model, kind, self.model_capture)
            known = vars(original)[_RUNNER] = key, runner
            self._functions.add(original)
        return known[1]

    @guarded("stop")
    def _stop_training_if_requested(self) -> None:
        if self._model is not None and self.stop_listener.ends_loop(f"step {self.step}"):
            self._model.stop_training = True

    def _watched_model(self) -> Any:
        return self._registered if self._model is None else self._model

    def _release_models(self, _: HookCloses) -> None:
        if self._registered is not None and not self.clock.num_steps:
            logger.warning(
                "the hook saw no step of %s and wrote nothing. It sees "
                "model.fit(callbacks=[hook]), model.train_on_batch and tapes of hook.wrap_tape.",
                self._registered.name,
            )
        for kind in _MODES:
            self._loop_ends(kind)
        self._builds.remove()
        self._forget_batches()
        # Who keeps the closed hook, as `get_hook` does, must not keep models.
        for function in list(self._functions):
            key, _ = vars(function).get(_RUNNER, ((None,), None))
            if key[0] == ref(self):
                del vars(function)[_RUNNER]
        self._functions.clear()
        self._model = self._fit = self._registered = None
        self.model_capture.release()

    # Callbacks of `hook_layer.keras.batch_loop` --------------------------------------------------

    @guarded("steps")
    def single_batch_begins(self, model: Any, kind: str) -> None:
        """Begin the step of a call of `train_on_batch` or `test_on_batch`.

        Raises:
            TrainingStoppedError: A stop of this run was requested.
        """
        if self._is_in_step:
            return
        if self._model is not model:
            self.set_model(model)
        getattr(model, f"make_{kind}_function")()  # as the call does
        self._loop_begins(kind)
        self._batch_begins(kind, 0, raises=True)

    @guarded("steps")
    def single_batch_ends(self, model: Any, kind: str) -> None:
        """Capture losses and metrics of the call, and hand the step over."""
        self._loop_ends(kind)
        is_due = self.recorder.record is not None and self.collector.due
        self._batch_ends(self.clock.mode_step, model.get_metrics_result() if is_due else None)

    # Callbacks of `hook_layer.keras.tape` --------------------------------------------------------

    def may_save_next(self) -> bool:
        """Return whether anything may be due in the next step of a tape."""
        clock = self.clock
        mode = ModeKeys.TRAIN if clock.mode is ModeKeys.GLOBAL else clock.mode
        step = clock.mode_steps.get(mode, INIT_STEP)
        return self.is_active and self.collector.next_step(mode, step) <= step + 1

    def tape_begins(self, models: Sequence[Any] = ()) -> bool:
        """Begin a step of models, and say whether anything is due in it."""
        if self._is_in_step:  # a `train_step`, whose step is Keras's
            return False
        self._try_to_begin(models)
        return self.recorder.record is not None and bool(self.collector.due)

    @guarded("steps")
    def _try_to_begin(self, models: Sequence[Any]) -> None:
        if self.mode is ModeKeys.GLOBAL:
            self.set_mode(ModeKeys.TRAIN)
        if self._registered is not None:
            self.model_capture.names_of(self._registered)
        for model in models if self.session.is_writer is None else ():
            self.model_capture.names_of(model)
        self.begin_step()

    @guarded("steps")
    def tape_is_read(self, named: Mapping[str, Any]) -> None:
        """Capture what belongs to the step."""
        self.model_capture.capture(named)
        self.recorder.step_is_captured()


class KerasWorkers(Workers):
    """The ranks of a run, as the backend of Keras knows them.

    Args:
        model: Returns the model that is trained; known weakly.
    """

    supports_all = False
    framework = "Keras"

    def __init__(self, model: Callable[[], Any]) -> None:
        self._model = WeakMethod(model)

    def rank_and_size(self) -> tuple[int, int]:
        """Return this process's rank, and the number of ranks."""
        model = self._model()
        rank, size = active_backend().rank_and_size(None if model is None else model())
        return int(rank), int(size)


class _StepFunction:
    """Stands for the function that computes a step of a model."""

    def __init__(
        self, hook: KerasEvents, model: Any, kind: str, original: Callable[..., Any]
    ) -> None:
        self.original = original
        self._hook = ref(hook)
        self._model = ref(model)
        self._kind = kind

    def __call__(self, *args: Any) -> Any:
        hook, model = self._hook(), self._model()
        if hook is None or model is None or not hook.is_active:
            return self.original(*args)
        return hook._run_step(model, self._kind, self.original, args)  # noqa: SLF001 - part of it


def _is_loss(name: str) -> bool:
    return name.endswith("loss")
