"""The callback for PyTorch Lightning: `from hook_layer.lightning import StepwatchCallback`.

The page `docs/reference/frameworks.md` has the names of tensors and the order of events in a step.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hook_layer.autopatch.hook_source import HookSource
from hook_layer.capture.patched_functions import patch
from hook_layer.errors import TrainingStoppedError
from hook_layer.format.modes import ModeKeys
from hook_layer.frameworks import LIGHTNING
from hook_layer.pytorch import Hook
from hook_layer.pytorch.callbacks import CallbackWithHook

if TYPE_CHECKING:
    from lightning.pytorch import Callback, LightningModule, Trainer
else:
    try:
        # Scripts use one of two package names; importing the other one takes seconds.
        if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
            from pytorch_lightning import Callback
        else:
            from lightning.pytorch import Callback
    except ImportError:
        try:
            from pytorch_lightning import Callback
        except ImportError as error:
            raise LIGHTNING.missing() from error

__all__ = ["StepwatchCallback", "TrainingStoppedError", "watch_unchanged"]

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")


class StepwatchCallback(CallbackWithHook, Callback):  # type: ignore[misc]  # Lightning's, unknown to mypy
    """Captures tensors of a training with Lightning.

    The arguments are those of `hook_layer.pytorch.callbacks.CallbackWithHook`.
    """

    _num_optimizer_steps = 0
    _known: Mapping[str, Any] = {}

    # Events of Lightning --------------------------------------------------------------------------

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002
        """Watch the module; called by Lightning."""
        self.hook.trainer.follow(pl_module)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002
        """Continue the steps of a checkpoint; Lightning handles signals from here on."""
        self.hook.trainer.start()
        self.hook.training_resumes_at(trainer.global_step)

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, *_: Any, **__: Any
    ) -> None:
        """Begin or continue a step; called by Lightning."""
        hook = self.hook
        if not hook.trainer.is_step_open:
            self._num_optimizer_steps = trainer.global_step
            hook.trainer.reports_losses(bool(pl_module.automatic_optimization))
        hook.trainer.begin_step(ModeKeys.TRAIN)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, *_: Any, **__: Any
    ) -> None:
        """Capture the results of the batch, and end the step; called by Lightning."""
        hook = self.hook
        if hook.trainer.is_due("losses") and pl_module.automatic_optimization:
            loss, num_batches = _loss_of(outputs), trainer.accumulate_grad_batches
            hook.trainer.record_loss(
                loss if num_batches == 1 or loss is None else loss * num_batches
            )
        if hook.trainer.is_due():
            hook.trainer.record_metrics(self._new_metrics(trainer))
        if self._has_stepped(trainer):
            hook.trainer.end_step()
            if self._is_stop_requested():
                trainer.should_stop = True

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002
        """Save the values that the epoch logged; called by Lightning."""
        self._save_metrics(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002
        """Save the rest of the training; called by Lightning."""
        self._save_metrics(trainer)
        self.hook.trainer.pause()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002
        """Record values that were logged before; called by Lightning."""
        if self.hook.is_active:
            self._new_metrics(trainer)
        if trainer.state.fn != "fit":
            self.hook.trainer.start()

    def on_validation_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, *_: Any, **__: Any
    ) -> None:
        """Begin a step of evaluation; called by Lightning."""
        if not trainer.sanity_checking:
            self._begin(pl_module, ModeKeys.EVAL)

    def on_validation_batch_end(
        self, _: Trainer, __: LightningModule, outputs: Any, *___: Any
    ) -> None:
        """Capture the results of the batch; called by Lightning."""
        self._end(outputs)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002
        """Save the values that validation logged; called by Lightning."""
        if not trainer.sanity_checking:
            self._save_metrics(trainer)
            self.hook.trainer.pause()

    on_test_start = on_validation_start
    on_test_batch_start = on_validation_batch_start
    on_test_batch_end = on_validation_batch_end
    on_test_end = on_validation_end

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002
        """Note that Lightning handles signals from here on; called by Lightning."""
        self.hook.trainer.start()

    def on_predict_batch_start(self, _: Trainer, pl_module: LightningModule, *__: Any) -> None:
        """Begin a step of prediction; called by Lightning."""
        self._begin(pl_module, ModeKeys.PREDICT)

    def on_predict_batch_end(self, *_: Any, **__: Any) -> None:
        """End a step of prediction; called by Lightning."""
        self._end(None)

    def on_exception(self, *_: Any) -> None:
        """Hand over the remaining data; called by Lightning."""
        self.hook.trainer.pause()

    on_predict_end = on_exception

    # Implementation -------------------------------------------------------------------------------

    def _begin(self, module: LightningModule, mode: ModeKeys) -> None:
        self.hook.trainer.follow(module)
        self.hook.trainer.begin_step(mode)

    def _end(self, outputs: Any) -> None:
        if self.hook.trainer.is_due("losses"):
            self.hook.trainer.record_loss(_loss_of(outputs))
        # Values that the evaluation logs belong to its last step.
        self.hook.trainer.end_step(may_be_late=True)

    def _has_stepped(self, trainer: Trainer) -> bool:
        """Return whether the batch that ends completes a step."""
        if self.hook.trainer.has_optimizer_stepped or not trainer.optimizers:
            return True
        # Lightning counts the steps of optimizers that are not torch's.
        return bool(trainer.global_step != self._num_optimizer_steps)

    def _save_metrics(self, trainer: Trainer) -> None:
        if self.hook.is_active:
            self.hook.trainer.record_metrics_later(self._new_metrics(trainer))

    def _new_metrics(self, trainer: Trainer) -> dict[str, Any]:
        """Return newly logged values; Lightning keeps all of them."""
        metrics = dict(trainer.callback_metrics)
        known, self._known = self._known, metrics
        return {name: value for name, value in metrics.items() if known.get(name) is not value}


def _loss_of(outputs: Any) -> Any:
    return outputs.get("loss") if isinstance(outputs, Mapping) else outputs


def watch_unchanged(source: HookSource) -> None:
    """Add a callback to each Trainer in this process that trains and has none."""

    def add(args: tuple[Any, ...], _: dict[str, Any]) -> None:
        trainer: Trainer = args[0]
        if not any(isinstance(callback, StepwatchCallback) for callback in trainer.callbacks):
            hook = source.make(Hook)
            if hook is not None:
                trainer.callbacks.insert(0, StepwatchCallback(hook=hook))

    for package in _PACKAGES:
        module = sys.modules.get(package)
        if module is not None:
            patch(module.Trainer, "fit", before=add)
