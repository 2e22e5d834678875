"""The life of a hook: it opens the trial at the first step, takes its steps, and closes it.

Opening is left to the first step, for who is who among several workers is not known before. The end
is `close`, called by itself when the process ends, after an exception too.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from hook_layer.byte_budget import DEFAULT_RUN_BYTES, DEFAULT_STEP_BYTES, ByteBudget
from hook_layer.capture import StepRecord
from hook_layer.config import JobEnvironment, hook_enabled
from hook_layer.configuration.hook_setup import HookSetup
from hook_layer.delivery.step_files import RunIdentity
from hook_layer.errors import TrainingStoppedError
from hook_layer.format.job_file import StopFile
from hook_layer.format.modes import ModeKeys
from hook_layer.guard import guarded
from hook_layer.process_end import ProcessEnd
from hook_layer.ranks import writing_ranks
from hook_layer.resuming.checkpoint import RunStart
from hook_layer.resuming.resumable import ResumableHook
from hook_layer.run_place import RunPlace
from hook_layer.session import TrialSession
from hook_layer.storage.base import Store
from hook_layer.termination import on_termination
from hook_layer.this_process import this_process

__all__ = ["HookLifecycle"]

logger = logging.getLogger("stepwatch")


class HookLifecycle(ResumableHook):
    """A hook with a trial behind it.

    Args:
        setup: What the hook is made of.
    """

    _knows_all_ranks = False
    """Whether the ranks of this framework can agree on the start of a run, for `auto`."""

    def __init__(self, setup: HookSetup) -> None:
        options = setup.options
        super().__init__(
            setup.manager,
            with_statistics=options.statistics,
            budget=ByteBudget(options.max_step_bytes, options.max_run_bytes),
        )
        self.dry_run = setup.dry_run
        job = setup.job or JobEnvironment.detect(setup.targets.out.uri)
        self._place = RunPlace(setup.targets, job, self._give_way)
        self._options = setup.options
        is_auto = setup.include_workers == "auto"
        is_possible = self._knows_all_ranks and setup.options.statistics
        self._include_workers = "one" if is_auto and not is_possible else setup.include_workers
        self._all_workers = self._include_workers != "one"
        self._session: TrialSession | None = None
        self._is_writer: bool | None = None  # not known before the first step
        self._pid = os.getpid()
        self._enabled = hook_enabled()
        self._closed = False
        self._close_s = 0.0
        self._process_end = ProcessEnd(self) if self._enabled else None

    def limit_values(self) -> None:
        """Limit the bytes of values as where a script makes no hook; limits that are set stay."""
        options = self._options
        self._budget = ByteBudget(
            options.max_step_bytes or DEFAULT_STEP_BYTES, options.max_run_bytes or DEFAULT_RUN_BYTES
        )

    @property
    def _store(self) -> Store:
        return self._place.targets.out

    @property
    def is_refused(self) -> bool:
        """Whether this run is not watched, for its session watches no further one."""
        return self._run_start is not None and self._run_start.is_refused

    @property
    def is_active(self) -> bool:
        """False after `close`, in forked children, and where `USE_SMDEBUG` switches hooks off."""
        return self._enabled and not self._closed and this_process.pid == self._pid

    def close(self, *, end_of_training: bool = True) -> None:
        """Write what is left, and the end marker; a second call does nothing.

        A hook that saw no step, and was given nothing to save, writes nothing at all: there is no
        trial then. What was saved behind the last saved step becomes a step of its own, the next
        one of the current mode.

        Called by itself when the process ends, also after an exception: training did end. A process
        that is killed (as a spot instance is) leaves no end marker, and neither does one that got
        SIGTERM. What could not be delivered is logged, and in `report()`.

        Args:
            end_of_training: False when training must be resumed later: no end marker then.
        """
        if not self.is_active:  # in a forked child nobody might ever release the lock
            return
        started = time.perf_counter()
        with self._lock:
            if self._closed:
                return
            self._end_step()
            self._look_for_checkpoint()
            self._save_pending()
            self._closed = True
            self._let_go()
        if self._process_end is not None:
            self._process_end.cancel()
        if self.failures.errors:
            logger.warning("errors while capturing, by part: %s", dict(self.failures.errors))
        self._close_session(end_of_training=end_of_training and self._terminated_by is None)
        on_termination.forget(self)
        self._place.end(*self._how_it_ended())
        self._close_s = time.perf_counter() - started

    def _how_it_ended(self) -> tuple[str, str | None]:
        if self._terminated_by is not None:
            return "Killed", self._terminated_by.name
        return ("Stopped", self.stop_reason) if self.was_stopped else ("Completed", None)

    def _let_go(self) -> None:
        try:
            self._detach()
        except Exception as error:  # noqa: BLE001 - the training is not to suffer from it
            self.failures.failed("close", error)

    def __del__(self) -> None:
        # No lock may be taken here, and nothing waited for: the process's end does the rest.
        process_end = getattr(self, "_process_end", None)
        if process_end is None or self._closed or os.getpid() != self._pid:
            return
        if self._session is None:
            self._place.end()
            process_end.cancel()
            return
        self._place.leave(self._session.writer.wait_until_idle)
        records = [record for record in (self._record, self._pending_record()) if record]
        finish = partial(
            self._session.finish,
            records,
            self.collection_manager.to_file(),
            end_of_training=self._terminated_by is None,
            timeout_s=self._options.close_timeout_s,
        )
        place = self._place

        def finish_and_end() -> None:
            finish()
            place.end()

        process_end.leave(finish_and_end)

    def _give_way(self) -> None:
        """Close, since a newer hook of this process writes to the same folder."""
        logger.warning(
            "a newer hook of this process writes to %s, so this one is closed at step %d",
            self._store.uri,
            self.step,
        )
        try:
            self.close(end_of_training=False)
        except Exception as error:  # noqa: BLE001 - the newer hook is not to suffer from it
            self.failures.failed("close", error)

    def _close_session(self, *, end_of_training: bool) -> None:
        if self._session is None:
            return
        self._write_collections(self._session)
        if self._checkpoints is not None:
            self._checkpoints.close(has_ended=end_of_training)
        timeout_s = self._options.close_timeout_s
        self._session.close(end_of_training=end_of_training, timeout_s=timeout_s)

    # What an adapter may override ----------------------------------------------------------------

    def _shared_start(self, start: RunStart) -> RunStart:
        """Return where all workers of this run begin; rank 0 says `start`, which others ignore."""
        return start

    def _rank_groups(self) -> Iterable[int]:
        """Return a rank of each pipeline stage and shard group, as far as they are known."""
        return ()

    def _pipeline_stage(self) -> int | None:
        """Return the number of the pipeline stage that this rank trains; None without any."""
        return None

    def _detach(self) -> None:
        """Take the hooks off the framework's objects."""

    # The beginning -------------------------------------------------------------------------------

    def _open(self) -> None:
        if self._is_writer is not None:
            return
        rank, size = self._rank_and_size()
        self._is_writer = False  # also if something fails here
        self._place.process_trains()
        if self.dry_run or not (self._all_workers or rank == 0):
            self._is_writer = self._all_workers or rank == 0
            return
        own = replace(RunStart.new(), writers=writing_ranks(self._include_workers, size))
        start = self._chief_start() if rank == 0 else own
        if self._all_workers:
            start = self._shared_start(start)
        self._run_start = start
        num_workers = len(start.writers)
        self.collection_manager.set_num_workers(num_workers)
        self.collection_manager.statistics_only = rank != 0 and self._include_workers == "auto"
        if start.is_refused:
            return
        if rank not in start.writers:
            return
        if start.root:
            self._place.move_to(start.root)
        if self._resumes_at > start.step + 1:
            last = self._resumes_at - 1
            start = replace(start, step=last, mode_steps={ModeKeys.TRAIN.name: last})
        self._go_on_behind(start.step, {ModeKeys[n]: step for n, step in start.mode_steps.items()})
        self._last_saved_step = start.saved_step
        worker, stage = f"worker_{rank}", self._pipeline_stage()
        identity = RunIdentity(start.run_id, worker, num_workers, stage)
        targets = self._place.targets
        if self.collection_manager.statistics_only:
            targets = replace(targets, tensorboard=None)
        session = TrialSession(targets, identity, start, self._place.job, self._options)
        if self._checkpoints is not None:
            self._checkpoints.file.copy_by(session.writer.housekeep)
        self._session = session
        self._is_writer = True
        self._look_for_checkpoint()  # one that was saved since, before any step
        self._watch_termination()

    def _refuse_after_stop(self) -> None:
        """End a run that begins in a session which was stopped, however its framework stops.

        Raises:
            TrainingStoppedError: The session was stopped, and the hook is to raise.
        """
        request = self._place.stop_request
        if request is not None and self._options.stop == "raise":
            self.close()
            raise TrainingStoppedError(request.reason, request.rule_configuration_name)

    def _chief_start(self) -> RunStart:
        """Return where the run begins, and which ranks write, as rank 0 decides it."""
        size = self._rank_and_size()[1]
        groups = self._rank_groups() if self._include_workers == "auto" else ()
        return replace(
            self._own_start(), writers=writing_ranks(self._include_workers, size, groups)
        )

    def _watch_termination(self) -> None:
        """Listen to signals, even if the handler was replaced since the first step."""
        has_trial = self._session is not None and self.is_active
        if has_trial and self._options.termination_timeout_s is not None:
            on_termination.tell(self)

    # Steps ---------------------------------------------------------------------------------------

    @guarded("hand over")
    def _hand_over(self, record: StepRecord) -> None:
        if self._session is None:
            logger.info("dry run: step %d has %d tensors", record.step, len(record.tensors))
            record.release()
            return
        if not self._session.has_collections:
            self._write_collections(self._session)
        self._last_saved_step = record.step
        self._session.writer.submit(record)

    def _save_pending(self) -> None:
        """Save what came after the last saved step, as a separate step."""
        if not self._pending:
            return
        if self._is_writer is None and self._all_workers and self._rank_and_size()[1] > 1:
            # Opening is up to all workers together, and the others may be gone.
            names = ", ".join(sorted(self._pending))
            logger.warning("values outside of any step are not stored: %s", names)
            return
        self._open()
        record = self._pending_record()
        self._pending.clear()
        if self._is_writer and record is not None:
            self._hand_over(record)

    def _write_collections(self, session: TrialSession) -> None:
        session.write_collections(self.collection_manager.to_file())

    def _stop_request(self) -> StopFile | None:
        """Return what asks this worker to stop; also called in other threads."""
        session = self._session
        return self._place.stop_request if session is None else session.stop_signal.requested
