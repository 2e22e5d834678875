"""A hook without any framework: what users call, and the open trial behind it.

An adapter such as `hook_layer.pytorch` calls, from the framework's own hooks,

* `_begin_step` where a step begins; the step before is handed over if it is still open,
* `_capture` for the tensors that it meets, once `_plan` said that they are wanted,
* `_step_is_captured` where normally everything of a step has been captured.

`hook_layer.recorder` says when a step is handed over.
"""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final

from typing_extensions import Self

from hook_layer.capture import StepRecord
from hook_layer.collection_manager import CollectionManager, TensorPlan
from hook_layer.collections import Collection, CollectionKeys
from hook_layer.config import hook_enabled
from hook_layer.errors import HookConfigurationError, TrainingStoppedError, nearest
from hook_layer.format.job_file import StopFile, new_run_id
from hook_layer.format.modes import ModeKeys
from hook_layer.guard import guarded
from hook_layer.hook_options import HookOptions, HookReport
from hook_layer.recorder import INIT_STEP, StepRecorder
from hook_layer.session import SessionOptions, TrialSession
from hook_layer.step_files import RunIdentity
from hook_layer.storage.base import Store
from hook_layer.writer import WriterCounters

__all__ = ["BaseHook"]

logger = logging.getLogger("stepwatch")

_SCALAR_PREFIX: Final = "scalar/"
_SCALAR_PLAN: Final = TensorPlan(raw=True)


class BaseHook(StepRecorder):
    """What the hooks of all frameworks have in common.

    Args:
        store: The trial's root.
        manager: The collections.
        options: Further options.
        dry_run: Decide everything and store nothing.
        all_workers: Whether every worker writes, or only the chief.
    """

    def __init__(
        self,
        store: Store,
        manager: CollectionManager,
        options: HookOptions,
        *,
        dry_run: bool = False,
        all_workers: bool = False,
    ) -> None:
        super().__init__(manager, with_statistics=options.statistics)
        self.dry_run = dry_run
        self._store = store
        self._options = options
        self._all_workers = all_workers
        self._session: TrialSession | None = None
        self._num_workers = 1
        self._is_writer: bool | None = None  # not known before the first step
        self._pid = os.getpid()
        self._enabled = hook_enabled()
        self._closed = self._warned_of_stop = False
        if self._enabled:
            atexit.register(self._at_exit)

    @property
    def out_dir(self) -> str:
        """URI of the trial's root."""
        return self._store.uri

    @property
    def is_active(self) -> bool:
        """False after `close`, and where `USE_SMDEBUG` switches hooks off."""
        return self._enabled and not self._closed

    @property
    def should_stop(self) -> bool:
        """Whether this run was asked to stop."""
        return self._stop_request() is not None

    @property
    def stop_reason(self) -> str | None:
        """Why this run was asked to stop, None while it was not."""
        request = self._stop_request()
        return None if request is None else request.reason

    def get_collection(self, name: str, create: bool = True) -> Collection:
        """Return a collection, made on the way if `create`."""
        return self.collection_manager.get(name, create=create)

    def get_collections(self) -> dict[str, Collection]:
        """Return all collections by name."""
        return self.collection_manager.collections

    def add_collection(self, collection: Collection) -> None:
        """Add a collection, in place of one of the same name."""
        if not isinstance(collection, Collection):
            raise HookConfigurationError(f"collection={collection!r} must be a Collection")
        self.collection_manager.add(collection)

    def set_mode(self, mode: ModeKeys) -> None:
        """Set the mode of the steps to come; an open step of another mode ends here.

        Raises:
            HookConfigurationError: `mode` is no mode.
        """
        _check_mode(mode)
        if mode is not self.mode:
            self._end_step()
        self.mode = mode
        self.mode_steps.setdefault(mode, INIT_STEP)

    def save_scalar(
        self, name: str, value: Any, sm_metric: bool = False, timestamp: float | None = None
    ) -> None:
        """Save one number as `scalar/<name>`, with the step in progress.

        In a step that the save configuration leaves out it is kept for the next saved step, where
        the newest value of a name counts: so a scalar never makes a step be saved.

        Args:
            name: Name of the number.
            value: A number, or a tensor of one element.
            sm_metric: Accepted for the original's sake; SageMaker gets no metrics from here.
            timestamp: Time of the value, seconds since 1970 (default: when the step began).

        Raises:
            TypeError: `value` has more than one element, or is no number.
        """
        backend = self._backend_of(value)
        dtype, shape = backend.describe(value)
        if any(length != 1 for length in shape) or dtype.startswith(("str", "object", "bytes")):
            raise TypeError(f"{name} must be one number, not {dtype} of the shape {shape}")
        if sm_metric:
            logger.debug("sm_metric of %s is ignored: there is no SageMaker metrics file", name)
        self._save(_SCALAR_PREFIX + name, value, _SCALAR_PLAN, timestamp)

    def save_tensor(
        self,
        tensor_name: str,
        tensor_value: Any,
        collections_to_write: str | Sequence[str] = CollectionKeys.DEFAULT,
    ) -> None:
        """Save a tensor of your own, if the step in progress is saved.

        Args:
            tensor_name: Its name.
            tensor_value: A tensor, an array, or what numpy makes an array of.
            collections_to_write: Collections that it becomes part of; they say what is stored.
        """
        names = collections_to_write
        if isinstance(names, str):
            names = [names]
        collections = [self.collection_manager.get(name) for name in names]
        for collection in collections:
            collection.add_tensor_name(tensor_name)
        if self._record is not None and not self._due:
            return  # the save configuration leaves this step out
        plan = self.collection_manager.plan_in(collections)
        self._save(tensor_name, tensor_value, plan, None)

    def report(self) -> HookReport:
        """Return what was done so far."""
        writer = WriterCounters() if self._session is None else self._session.writer.counters
        return HookReport(self.step + 1, self._num_late, dict(self.failures.errors), writer)

    def flush(self, timeout_s: float | None = None) -> bool:
        """Wait until everything handed over is stored; False if it took longer."""
        return self._session is None or self._session.writer.wait_until_idle(timeout_s)

    def close(self, *, end_of_training: bool = True) -> None:
        """Write what is left, and the end marker; a second call does nothing.

        Called by itself when the process ends, also after an exception: training did end. A process
        that is killed (as a spot instance is) leaves no end marker. What could not be delivered is
        logged, and in `report()`.

        Args:
            end_of_training: False when training is to be resumed later: no end marker then.
        """
        with self._lock:
            if not self.is_active or os.getpid() != self._pid:
                return
            self._end_step()
            self._open()
            self._closed = True
            atexit.unregister(self._at_exit)
            self._detach()
        if self._pending:
            names = ", ".join(sorted(self._pending))
            logger.warning("saved behind the last step, and so part of no step: %s", names)
        if self.failures.errors:
            logger.warning("errors while capturing, by part: %s", dict(self.failures.errors))
        if self._session is not None:
            if self._session.has_collections:
                self._write_collections(self._session)
            timeout_s = self._options.close_timeout_s
            self._session.close(end_of_training=end_of_training, timeout_s=timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # What an adapter calls, and may override -----------------------------------------------------

    def _begin_step(self) -> None:
        """Begin a step; the one before ends here if it is still open.

        Raises:
            TrainingStoppedError: This run was asked to stop, and the hook is to raise.
            HookConfigurationError: The collections are misconfigured (at the first step only).
        """
        self._end_step()
        self._stop_if_asked()
        self._count_step()
        if self._is_writer is None:
            self._open()
        if self._is_writer:
            self._open_step()

    def _rank_and_size(self) -> tuple[int, int]:
        """Return this worker's rank, and how many workers train."""
        return 0, 1

    def _shared_run_id(self, run_id: str) -> str:
        """Return the RunId that all workers of this run use; the chief's is `run_id`."""
        return run_id

    def _detach(self) -> None:
        """Take the hooks off the framework's objects."""

    # The trial behind it -------------------------------------------------------------------------

    @guarded("own tensors")
    def _save(self, name: str, value: Any, plan: TensorPlan, timestamp: float | None) -> None:
        if self._is_writer is not False:
            self.collection_manager.note(name)
            self._capture_own(name, value, plan, timestamp)

    def _open(self) -> None:
        if self._is_writer is not None:
            return
        rank, size = self._rank_and_size()
        self._is_writer = self._all_workers or rank == 0
        self._num_workers = size if self._all_workers else 1
        if self.dry_run or not self._is_writer:
            return
        run_id = self._shared_run_id(new_run_id()) if self._all_workers else new_run_id()
        options = SessionOptions(
            int(self._options.queue_bytes), self._options.on_full, self._options.stop_poll_s
        )
        identity = RunIdentity(run_id, f"worker_{rank}", self._num_workers)
        self._session = TrialSession(self._store, identity, is_chief=rank == 0, options=options)

    @guarded("hand over")
    def _hand_over(self, record: StepRecord) -> None:
        if self._session is None:
            logger.info("dry run: step %d has %d tensors", record.step, len(record.tensors))
            record.release()
            return
        if not self._session.has_collections:
            self._write_collections(self._session)
        self._session.writer.submit(record)

    def _write_collections(self, session: TrialSession) -> None:
        session.write_collections(self.collection_manager.to_file(self._num_workers))

    def _stop_request(self) -> StopFile | None:
        return None if self._session is None else self._session.stop_signal.requested

    def _stop_if_asked(self) -> None:
        request = self._stop_request()
        if request is None or self._options.stop != "raise":
            return
        if self._rank_and_size()[1] > 1:
            # One rank that leaves alone would let the others wait for it for ever.
            if not self._warned_of_stop:
                self._warned_of_stop = True
                logger.warning("with several workers a stop request only sets hook.should_stop")
            return
        self.close()
        raise TrainingStoppedError(request.reason, request.rule_configuration_name)

    def _at_exit(self) -> None:
        if self._session is not None:  # a hook that saw no step has nothing to say
            self.close()


def _check_mode(mode: object) -> None:
    if not isinstance(mode, ModeKeys):
        names = [f"modes.{key.name}" for key in ModeKeys]
        raise HookConfigurationError(f"mode={mode!r}: {nearest(str(mode), names)}")
