"""Opens the trial of a run at its first step, writes its steps, and closes it.

The trial opens at the first step, because the ranks of a distributed run are unknown until then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from hook_layer.capture.captured_step import StepRecord
from hook_layer.configuration.collection_manager import CollectionManager
from hook_layer.configuration.hook_setup import HookSetup
from hook_layer.configuration.job import JobEnvironment
from hook_layer.core.clock import StepClock
from hook_layer.core.resumption import Resumption
from hook_layer.core.state import HookState, Part
from hook_layer.core.trial_session import TrialSession
from hook_layer.core.workers import Workers
from hook_layer.delivery.step_files import RunIdentity
from hook_layer.format.job_file import StopFile
from hook_layer.guard import guarded
from hook_layer.process.process_end import ProcessEnd
from hook_layer.resuming.checkpoint import RunStart
from hook_layer.resuming.resume import run_in
from hook_layer.run.ranks import writing_ranks
from hook_layer.run.run_folder import RunPlace
from hook_layer.storage.base import Store

__all__ = ["Session"]

logger = logging.getLogger("stepwatch")


class Session(Part):
    """The trial of a run, from its first step to its end.

    Args:
        setup: Configuration of the hook.
        state: The state of the hook.
        clock: Step numbers.
        workers: The ranks of the run.
        give_way: Closes the hook when a newer hook of this process writes to the same folder;
            referenced weakly.

    Attributes:
        options: Options of the hook.
        dry_run: Whether the hook decides everything but stores nothing.
        place: Where the run is stored.
        resumption: Where the run begins or continues.
        trial: The open trial; None before the first step, and if this rank does not write.
        is_writer: Whether this rank writes; None while unknown.
        all_write: Whether ranks other than rank 0 may write.
    """

    def __init__(
        self,
        setup: HookSetup,
        state: HookState,
        clock: StepClock,
        workers: Workers,
        give_way: Callable[[], None],
    ) -> None:
        super().__init__(state)
        self.options = setup.options
        job = setup.job or JobEnvironment.detect(setup.targets.out.uri)
        self.place = RunPlace(setup.targets, job, give_way)
        self.resumption = Resumption(state, clock, self.place)
        self.trial: TrialSession | None = None
        self.is_writer: bool | None = None
        self._manager: CollectionManager = setup.manager
        self._workers = workers
        self.dry_run = setup.dry_run
        is_auto = setup.include_workers == "auto"
        has_auto = workers.supports_auto and setup.options.statistics
        self._include_workers = "one" if is_auto and not has_auto else setup.include_workers
        self.all_write = self._include_workers != "one"

    @property
    def store(self) -> Store:
        """The root of the trial."""
        return self.place.targets.out

    @property
    def is_refused(self) -> bool:
        """Whether the session of this process does not watch this run."""
        start = self.resumption.start
        return start is not None and start.is_refused

    def stop_request(self) -> StopFile | None:
        """Return the stop request for this rank; any thread may call it."""
        trial = self.trial
        return self.place.stop_request if trial is None else trial.stop_signal.requested

    @property
    def needs_other_ranks(self) -> bool:
        """Whether all ranks must still open the trial together."""
        is_open = self.is_writer is not None
        return not is_open and self.all_write and self._workers.rank_and_size()[1] > 1

    def may_write(self) -> bool:
        """Return whether this rank may write, as far as known."""
        return self.is_writer is not False

    # The beginning -------------------------------------------------------------------------------

    def open(self) -> None:
        """Open the trial if this rank writes; a second call does nothing."""
        if self.is_writer is not None:
            return
        rank, size = self._workers.rank_and_size()
        if self.all_write and size > 1 and not self._workers.supports_all:
            logger.warning(
                "the %s hook does not support include_workers='all'; only rank 0 writes",
                self._workers.framework,
            )
            self.all_write = False
        self.is_writer = False  # also after a failure below
        self.place.process_trains()
        if self.dry_run or not (self.all_write or rank == 0):
            self.is_writer = self.all_write or rank == 0
            return
        start = self._start(rank, size)
        if not start.is_refused and rank in start.writers:
            self._open_trial(start, rank, size)

    def chief_start(self) -> RunStart:
        """Return where the run begins and which ranks write, as decided by rank 0."""
        size = self._workers.rank_and_size()[1]
        groups = self._workers.rank_groups() if self._include_workers == "auto" else ()
        writers = writing_ranks(self._include_workers, size, groups)
        return replace(self.resumption.own_start(), writers=writers)

    def _start(self, rank: int, size: int) -> RunStart:
        """Return where the run begins; shared by all ranks if all write."""
        if rank == 0:
            start = self.chief_start()
        else:
            start = replace(RunStart.new(), writers=writing_ranks(self._include_workers, size))
        if self.all_write:
            start = self._workers.shared_start(start)
        self.resumption.start = start
        self._manager.set_num_workers(len(start.writers))
        self._manager.statistics_only = rank != 0 and self._include_workers == "auto"
        return start

    def _open_trial(self, start: RunStart, rank: int, size: int) -> None:
        if start.root:
            self.place.move_to(start.root)
        start = self.resumption.begin(start)
        stage = self._workers.pipeline_stage()
        identity = RunIdentity(start.run_id, f"worker_{rank}", len(start.writers), stage)
        targets = self.place.targets
        if self._manager.statistics_only:
            targets = replace(targets, tensorboard=None)
        trial = TrialSession(
            targets, identity, start, self.place.job, self.options, world_size=size
        )
        self.resumption.note_trial(trial)
        self.trial = trial
        self.is_writer = True
        self.resumption.check_for_checkpoint()  # saved since, before any step

    # Steps ---------------------------------------------------------------------------------------

    @guarded("hand over")
    def hand_over(self, record: StepRecord) -> None:
        """Write a complete step, after the collections file if more is known."""
        if self.trial is None:
            logger.info("dry run: step %d has %d tensors", record.step, record.num_tensors)
            record.release()
            return
        if self.trial.extent != self._manager.extent:
            self.write_collections()
        self.resumption.last_saved_step = record.step
        self.trial.writer.submit(record)

    def write_collections(self) -> None:
        """Write the collections file if it has changed."""
        if self.trial is not None:
            self.trial.extent = self._manager.extent
            self.trial.write_collections(self._manager.to_file())

    # The end -------------------------------------------------------------------------------------

    def close(self, *, end_of_training: bool) -> None:
        """Write the remaining data, and the end marker if training ended."""
        if self.trial is None:
            return
        self.write_collections()
        self.resumption.close(has_ended=end_of_training)
        timeout_s = self.options.close_timeout_s
        self.trial.close(end_of_training=end_of_training, timeout_s=timeout_s)

    def add_step(self, record: StepRecord) -> None:
        """Add a step to the run after its end, unless another run began in its folder.

        Raises:
            StorageError: The store is unreachable.
        """
        trial, start = self.trial, self.resumption.start
        if trial is None or start is None:
            record.release()
            return
        if run_in(self.store) != trial.identity.run_id:
            logger.warning(
                "values of %s are not stored, because another run began in %s",
                ", ".join(record.tensors),
                self.store.uri,
            )
            record.release()
            return
        record.move_on()
        end = replace(
            start,
            step=record.step - 1,
            saved_step=self.resumption.last_saved_step,
            sequence=trial.writer.submitted_sequence,
        )
        TrialSession(self.place.targets, trial.identity, end, self.place.job, self.options).finish(
            [record],
            self._manager.to_file(),
            end_of_training=True,
            timeout_s=self.options.close_timeout_s,
        )

    def leave(
        self, records: Sequence[StepRecord], process_end: ProcessEnd, *, end_of_training: bool
    ) -> None:
        """Leave the remaining work to the end of the process, without waiting for a lock.

        Args:
            records: Steps that are not handed over yet.
            process_end: Does the remaining work.
            end_of_training: Whether training ended.
        """
        place, trial = self.place, self.trial
        if trial is None:
            place.end()
            process_end.cancel()
            return
        place.leave(trial.writer.wait_until_idle)
        finish = partial(
            trial.finish,
            records,
            self._manager.to_file(),
            end_of_training=end_of_training,
            timeout_s=self.options.close_timeout_s,
        )

        def finish_and_end() -> None:
            finish()
            place.end()

        process_end.leave(finish_and_end)
