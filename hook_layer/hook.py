"""A hook without any framework: what users call, and the open trial behind it.

An adapter such as `hook_layer.pytorch` calls, from the framework's own hooks,

* `_begin_step` where a step begins; the step before is handed over if it is still open,
* `_capture` for the tensors that it meets, once `_plan` said that they are wanted,
* `_step_is_captured` where normally everything of a step has been captured.

`hook_layer.recorder` says when a step is handed over.
"""

from __future__ import annotations

import logging
import os
from functools import partial
from types import TracebackType

from typing_extensions import Self

from hook_layer.capture import StepRecord
from hook_layer.collection_manager import CollectionManager
from hook_layer.collections import Collection
from hook_layer.config import hook_enabled
from hook_layer.errors import HookConfigurationError, TrainingStoppedError, nearest
from hook_layer.format.collections_file import CollectionsFile
from hook_layer.format.job_file import StopFile, new_run_id
from hook_layer.format.modes import ModeKeys
from hook_layer.guard import guarded
from hook_layer.hook_options import HookOptions, HookReport
from hook_layer.own_tensors import OwnTensors
from hook_layer.process_end import ProcessEnd
from hook_layer.recorder import INIT_STEP
from hook_layer.session import SessionOptions, TrialSession
from hook_layer.step_files import RunIdentity
from hook_layer.storage.base import Store
from hook_layer.writer import WriterCounters

__all__ = ["BaseHook"]

logger = logging.getLogger("stepwatch")


class BaseHook(OwnTensors):
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
        self._process_end = ProcessEnd(self) if self._enabled else None

    @property
    def out_dir(self) -> str:
        """URI of the trial's root."""
        return self._store.uri

    @property
    def is_active(self) -> bool:
        """False after `close`, in forked children, and where `USE_SMDEBUG` switches hooks off."""
        return self._enabled and not self._closed and os.getpid() == self._pid

    @property
    def should_stop(self) -> bool:
        """Whether this run was asked to stop; of several workers only rank 0 gets to know.

        A loop on several workers must share the answer (e.g. `torch.distributed.broadcast`) before
        it ends, so that no worker leaves the others waiting.
        """
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
        if mode is not self.mode and self.is_active:
            self._end_step()
        self.mode = mode
        self.mode_steps.setdefault(mode, INIT_STEP)

    def report(self) -> HookReport:
        """Return what was done so far."""
        writer = WriterCounters() if self._session is None else self._session.writer.counters
        return HookReport(self.step + 1, self._num_late, dict(self.failures.errors), writer)

    def flush(self, timeout_s: float | None = None) -> bool:
        """Wait until everything handed over is stored; False if it took longer."""
        if self._session is None or os.getpid() != self._pid:
            return True
        return self._session.writer.wait_until_idle(timeout_s)

    def close(self, *, end_of_training: bool = True) -> None:
        """Write what is left, and the end marker; a second call does nothing.

        A hook that saw no step, and was given nothing to save, writes nothing at all: there is no
        trial then. What was saved behind the last saved step becomes a step of its own, the next
        one of the current mode.

        Called by itself when the process ends, also after an exception: training did end. A process
        that is killed (as a spot instance is) leaves no end marker. What could not be delivered is
        logged, and in `report()`.

        Args:
            end_of_training: False when training is to be resumed later: no end marker then.
        """
        if not self.is_active:  # in a forked child nobody might ever release the lock
            return
        with self._lock:
            if self._closed:
                return
            self._end_step()
            self._save_pending()
            self._closed = True
            self._detach()
        if self._process_end is not None:
            self._process_end.cancel()
        if self.failures.errors:
            logger.warning("errors while capturing, by part: %s", dict(self.failures.errors))
        if self._session is not None:
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

    def __del__(self) -> None:
        # No lock may be taken here, and nothing waited for: the process's end does the rest.
        process_end = getattr(self, "_process_end", None)
        if process_end is None or self._closed or os.getpid() != self._pid:
            return
        if self._session is None:
            process_end.cancel()
            return
        records = [record for record in (self._record, self._pending_record()) if record]
        rest = partial(self._session.finish, records, self._collections_file())
        process_end.leave(partial(rest, timeout_s=self._options.close_timeout_s))

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

    def _save_pending(self) -> None:
        """Save what came behind the last saved step, as a step of its own."""
        record = self._pending_record()
        if record is None:
            return
        if self._is_writer is None and self._all_workers and self._rank_and_size()[1] > 1:
            # Opening is up to all workers together, and the others may be gone.
            names = ", ".join(sorted(record.tensors))
            logger.warning("saved without any step, and so not stored: %s", names)
            return
        self._pending.clear()
        self._open()
        if self._is_writer:
            self._hand_over(record)

    def _open(self) -> None:
        if self._is_writer is not None:
            return
        rank, size = self._rank_and_size()
        self._is_writer = False  # also if something fails here
        self._num_workers = size if self._all_workers else 1
        is_writer = self._all_workers or rank == 0
        if self.dry_run or not is_writer:
            self._is_writer = is_writer
            return
        run_id = self._shared_run_id(new_run_id()) if self._all_workers else new_run_id()
        options = SessionOptions(
            int(self._options.queue_bytes),
            self._options.on_full,
            self._options.max_wait_s,
            self._options.stop_poll_s,
        )
        identity = RunIdentity(run_id, f"worker_{rank}", self._num_workers)
        self._session = TrialSession(self._store, identity, is_chief=rank == 0, options=options)
        self._is_writer = True

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
        session.write_collections(self._collections_file())

    def _collections_file(self) -> CollectionsFile:
        return self.collection_manager.to_file(self._num_workers)

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


def _check_mode(mode: object) -> None:
    if not isinstance(mode, ModeKeys):
        names = [f"modes.{key.name}" for key in ModeKeys]
        raise HookConfigurationError(f"mode={mode!r}: {nearest(str(mode), names)}")
