"""Decides where a run begins or continues, and records its progress.

At the beginning of each step, it looks for checkpoints, see `hook_layer.resuming.checkpoint`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from hook_layer.configuration.job import CheckpointConfig
from hook_layer.core.clock import StepClock
from hook_layer.core.state import HookState, Part
from hook_layer.core.trial_session import TrialSession
from hook_layer.format.modes import ModeKeys
from hook_layer.guard import guarded
from hook_layer.resuming.checkpoint import CheckpointKeeper, Progress, RunStart
from hook_layer.resuming.resume import is_same_run
from hook_layer.run.run_folder import RunPlace

__all__ = ["Resumption"]


class Resumption(Part):
    """Decides where a run begins or continues, and records its progress.

    Attributes:
        start: Where the run begins; None while undecided.
        framework_step: Number of the next step of a run that its framework resumes; 0: a new run.
        last_saved_step: Last step that was saved in this run.
        looks_for_checkpoints: Whether each step looks for a checkpoint.
    """

    def __init__(self, state: HookState, clock: StepClock, place: RunPlace) -> None:
        super().__init__(state)
        self.start: RunStart | None = None
        self.framework_step = 0
        self.last_saved_step = clock.step
        self.looks_for_checkpoints = False
        self._clock = clock
        self._place = place
        self._trial: TrialSession | None = None
        self._checkpoints: CheckpointKeeper | None = None

    @property
    def has_new_checkpoint(self) -> bool:
        """Whether a checkpoint was saved since the last check."""
        return self._checkpoints is not None and self._checkpoints.has_changes

    def own_start(self) -> RunStart:
        """Return where the run begins if this rank decides; the decision is cached."""
        if self.start is None:
            self.start = self._place.take(self._first_start)
        return self.start

    def begin(self, start: RunStart) -> RunStart:
        """Continue the step numbers of the run.

        Returns:
            The same start, or a later step if the framework resumes the run there.
        """
        if self.framework_step > start.step + 1:
            last = self.framework_step - 1
            start = replace(start, step=last, mode_steps={ModeKeys.TRAIN.name: last})
        mode_steps = {ModeKeys[name]: step for name, step in start.mode_steps.items()}
        self._clock.resume_after(start.step, mode_steps)
        self.last_saved_step = start.saved_step
        return start

    def note_trial(self, trial: TrialSession) -> None:
        """Start recording checkpoints of an open trial; its writer copies their state file."""
        self._trial = trial
        if self._checkpoints is not None:
            self._checkpoints.file.copy_by(trial.writer.housekeep)

    def check_for_checkpoint(self) -> None:
        """Record the step if a checkpoint was saved since the last check."""
        if self._checkpoints is not None and self._trial is not None:
            self._note_checkpoint(self._checkpoints, self._trial)

    def close(self, *, has_ended: bool) -> None:
        """Record whether the run has ended."""
        if self._checkpoints is not None:
            self._checkpoints.close(has_ended=has_ended)

    def _first_start(self) -> RunStart:
        checkpoint = self._place.targets.checkpoint
        return RunStart.new() if checkpoint is None else self._resumed_start(checkpoint)

    def _resumed_start(self, config: CheckpointConfig) -> RunStart:
        try:
            keeper = CheckpointKeeper(config, self._place.job.training_job_name)
            start = keeper.start(partial(is_same_run, self._place.targets.out, self._place.job))
        except Exception as error:  # noqa: BLE001 - training starts in any case
            self.failures.failed("checkpoints", error)
            return RunStart.new()
        self._checkpoints, self.looks_for_checkpoints = keeper, True
        return start

    @guarded("checkpoints")
    def _note_checkpoint(self, checkpoints: CheckpointKeeper, trial: TrialSession) -> None:
        checkpoints.look(
            lambda: Progress(
                step=self._clock.step,
                saved_step=self.last_saved_step,
                mode_steps={mode.name: step for mode, step in self._clock.mode_steps.items()},
                sequence=trial.writer.submitted_sequence,
            )
        )
