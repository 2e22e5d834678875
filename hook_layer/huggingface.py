"""The callback for Hugging Face's Trainer: `from hook_layer.huggingface import StepwatchCallback`.

The page `docs/reference/frameworks.md` has the names of tensors and the order of events in a step.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any

from hook_layer.autopatch.hook_source import HookSource
from hook_layer.capture.patched_functions import patch
from hook_layer.errors import TrainingStoppedError
from hook_layer.format.modes import ModeKeys
from hook_layer.frameworks import HUGGING_FACE
from hook_layer.pytorch import Hook
from hook_layer.pytorch.callbacks import CallbackWithHook

if TYPE_CHECKING:
    from transformers import TrainerCallback
else:
    try:
        from transformers import TrainerCallback
    except ImportError as error:
        raise HUGGING_FACE.missing() from error

__all__ = ["StepwatchCallback", "TrainingStoppedError", "watch_unchanged"]

_EVALUATIONS = frozenset(("evaluate", "evaluation_loop", "prediction_loop"))


class StepwatchCallback(CallbackWithHook, TrainerCallback):  # type: ignore[misc]  # unknown to mypy
    """Captures tensors of a training with the Trainer.

    The arguments are those of `hook_layer.pytorch.callbacks.CallbackWithHook`.
    """

    _evaluates_in: ModeKeys | None = None

    # Events of the Trainer ------------------------------------------------------------------------

    def on_init_end(self, *_: Any, model: Any = None, **__: Any) -> None:
        """Watch the model, if it exists already; called by the Trainer."""
        if model is not None:
            self.hook.trainer.follow(model, self._mode_of_pass)

    def on_train_begin(self, _: Any, state: Any, *__: Any, model: Any = None, **___: Any) -> None:
        """Watch the model, and continue the steps of a checkpoint; called by the Trainer."""
        self.on_init_end(model=model)
        self.hook.training_resumes_at(state.global_step)

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Begin a step; called by the Trainer."""
        self._evaluates_in = None
        self.hook.trainer.begin_step(ModeKeys.TRAIN)

    def on_pre_optimizer_step(self, *_: Any, optimizer: Any = None, **__: Any) -> None:
        """Capture the learning rate; called by the Trainer."""
        groups = getattr(optimizer, "param_groups", None)
        if groups and self.hook.trainer.is_due():
            self.hook.trainer.record_metrics({"learning_rate": groups[0].get("lr")})

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:  # noqa: ARG002
        """End the step; called by the Trainer."""
        is_logged = control.should_log or control.should_training_stop
        self.hook.trainer.end_step(may_be_late=bool(is_logged))
        if self._is_stop_requested():
            control.should_training_stop = True
        return control

    def on_log(self, *_: Any, logs: Mapping[str, Any] | None = None, **__: Any) -> None:
        """Save the logged values; called by the Trainer."""
        hook = self.hook
        if hook.is_active and logs:
            hook.trainer.record_metrics_later(
                {name: v for name, v in logs.items() if not _is_of_speed(name)}
            )
        if self._evaluates_in is None and not hook.trainer.is_step_open:
            hook.trainer.end_step()

    def on_prediction_step(self, *_: Any, **__: Any) -> None:
        """End a step of evaluation; called by the Trainer."""
        # Values that the evaluation logs belong to its last step.
        self.hook.trainer.end_step(may_be_late=True)

    def on_evaluate(self, *_: Any, **__: Any) -> None:
        """Hand over the rest of an evaluation; called by the Trainer."""
        self._evaluates_in = None
        self.hook.trainer.pause()

    on_predict = on_evaluate
    on_train_end = on_evaluate

    # Implementation -------------------------------------------------------------------------------

    def _mode_of_pass(self) -> ModeKeys | None:
        """Return the mode of a pass between two steps; the Trainer does not announce it."""
        if self._evaluates_in is None:
            self._evaluates_in = _mode_of_evaluation()
        return self._evaluates_in


def _is_of_speed(name: str) -> bool:
    return name.endswith(("_runtime", "_per_second")) or name == "total_flos"


def _mode_of_evaluation() -> ModeKeys | None:
    """Return the mode of the Trainer's evaluation loop that calls this; None outside of one."""
    trainer = sys.modules.get("transformers.trainer")
    if trainer is None:
        return None
    functions = {name: getattr(trainer.Trainer, name, None) for name in (*_EVALUATIONS, "predict")}
    names = {getattr(function, "__code__", None): name for name, function in functions.items()}
    mode = None
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - documented, and cheap
    while frame is not None:
        name = names.get(frame.f_code)
        if name == "predict":
            return ModeKeys.PREDICT
        if name is not None:
            mode = ModeKeys.EVAL
        frame = frame.f_back
    return mode


def watch_unchanged(source: HookSource) -> None:
    """Add a callback to each Trainer in this process that trains and has none."""

    def add(args: tuple[Any, ...], _: dict[str, Any]) -> None:
        trainer = args[0]
        callbacks = trainer.callback_handler.callbacks
        if not any(isinstance(callback, StepwatchCallback) for callback in callbacks):
            hook = source.make(Hook)
            if hook is not None:
                trainer.add_callback(StepwatchCallback(hook=hook))

    patch(sys.modules["transformers.trainer"].Trainer, "train", before=add)
