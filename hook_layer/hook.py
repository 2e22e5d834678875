"""A hook without any framework: what users call, and what adapters do.

An adapter such as `hook_layer.pytorch` calls, from the framework's own hooks,

* `_begin_step` where a step begins; the step before is handed over if it is still open,
* `_capture` for the tensors that it meets, once `_plan` said that they are wanted,
* `_step_is_captured` where normally everything of a step has been captured.

`hook_layer.recorder` says when a step is handed over.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from types import TracebackType
from typing import Any

from typing_extensions import Self

from hook_layer.collections import Collection
from hook_layer.delivery.counters import WriterCounters
from hook_layer.earlier_trainings import EarlierTrainings
from hook_layer.errors import HookConfigurationError, nearest
from hook_layer.format.modes import ModeKeys
from hook_layer.inactive_copy import InactiveCopy
from hook_layer.lifecycle import HookLifecycle
from hook_layer.recorder import INIT_STEP
from hook_layer.report import HookReport

__all__ = ["BaseHook"]


class BaseHook(HookLifecycle):
    """What the hooks of all frameworks have in common.

    Args:
        setup: What the hook is made of.
    """

    _earlier = EarlierTrainings()

    @property
    def out_dir(self) -> str:
        """Folder or URI that tensors go to: as given, unless the run got a folder of its own."""
        return self._place.targets.out_dir

    @property
    def tensorboard_dir(self) -> str | None:
        """Folder or URI that TensorBoard's files go to; None: none are written."""
        return self._place.targets.tensorboard_dir

    @property
    def trial_uri(self) -> str:
        """URI of the trial's root, such as `file:///home/me/runs/mnist/`."""
        return self._store.uri

    def get_collection(self, name: str, create: bool = True) -> Collection:
        """Return a collection, made on the way if `create`."""
        return self.collection_manager.get(name, create=create)

    def get_collections(self) -> dict[str, Collection]:
        """Return all collections by name."""
        return self.collection_manager.collections

    def add_collection(self, collection: Collection) -> None:
        """Add a collection, instead of one of the same name."""
        if not isinstance(collection, Collection):
            raise HookConfigurationError(f"collection={collection!r} must be a Collection")
        self.collection_manager.add(collection)

    def set_mode(self, mode: ModeKeys) -> None:
        """Set the mode of the steps to come; an open step of another mode ends here.

        Raises:
            HookConfigurationError: `mode` is no mode.
        """
        _check_mode(mode)
        if mode is not self.mode and self.is_active:
            self._end_step()
        self.mode = mode
        self.mode_steps.setdefault(mode, INIT_STEP)

    def report(self) -> HookReport:
        """Return what was done so far."""
        writer = WriterCounters() if self._session is None else self._session.writer.counters
        return HookReport(
            steps_seen=self.step - self._init_step,
            late_tensors=self._num_late,
            errors=dict(self.failures.errors),
            writer=replace(writer),
            training_s=self.stopwatch.seconds,
            close_s=self._close_s,
            training_run=self.training_run,
            cut=tuple(self._budget.cut.values()),
        )

    def flush(self, timeout_s: float | None = None) -> bool:
        """Wait until everything handed over is stored; False if it took longer."""
        if self._session is None or os.getpid() != self._pid:
            return True
        return self._session.writer.wait_until_idle(timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return InactiveCopy, (type(self),)

    def follow(self, earlier: Iterable[BaseHook]) -> None:
        """Close the hooks of earlier trainings of this process, once those have ended.

        Args:
            earlier: The hooks.
        """
        self._earlier = EarlierTrainings(earlier)

    # What an adapter calls -----------------------------------------------------------------------

    def _begin_step(self) -> None:
        """Begin a step; the one before ends here if it is still open.

        Raises:
            TrainingStoppedError: This run was asked to stop, and the hook is to raise.
            HookConfigurationError: The collections are misconfigured (at the first step only).
        """
        self._end_step()
        self._look_for_checkpoint()
        if self._is_writer is None:
            self._refuse_after_stop()
        self._stop_if_asked()
        if self._is_writer is None:
            self._open()
        self._count_step()
        self._earlier.step_begins()
        if self._is_writer:
            self._open_step()


def _check_mode(mode: object) -> None:
    if not isinstance(mode, ModeKeys):
        names = [f"modes.{key.name}" for key in ModeKeys]
        raise HookConfigurationError(f"mode={mode!r}: {nearest(str(mode), names)}")
