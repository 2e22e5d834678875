"""Finds the steps of a trial at which a tensor was saved."""

from __future__ import annotations

from bisect import bisect_right
from enum import Enum
from numbers import Real
from typing import TYPE_CHECKING

from hook_layer.format.modes import ModeKeys
from rule_runtime.trial.errors import (
    InvalidWorker,
    StepNotYetAvailable,
    StepUnavailable,
    TensorUnavailableForStep,
)
from rule_runtime.trial.merged_shards import with_merged_shards
from rule_runtime.trial.modes import Mode, as_mode

if TYPE_CHECKING:
    from rule_runtime.trial.step_index import StepFile
    from rule_runtime.trial.trial import Trial

__all__ = ["StepState", "TensorGroup", "TensorSteps", "check_step"]


def check_step(step: object) -> None:
    """Refuse a step that is not a number."""
    if not isinstance(step, (int, Real)):  # most are int: a fast check
        raise TypeError(f"{step!r} is not a step; give a whole number")


class StepState(Enum):
    """Whether a step can be read; names and values are the original client's."""

    UNAVAILABLE = 0
    AVAILABLE = 1
    NOT_YET_AVAILABLE = 2


class TensorGroup:
    """Files of a trial that hold the same tensors, as most files do.

    Attributes:
        files: The files by global step and worker.
        modes: Global step of each step by mode.
        names: The tensors, without their reductions.
    """

    __slots__ = ("files", "modes", "names", "num_files")

    def __init__(self) -> None:
        self.files: dict[int, dict[str, StepFile]] = {}
        self.modes: dict[ModeKeys, dict[int, int]] = {}
        self.names: set[str] = set()
        self.num_files = 0

    def add(self, file: StepFile) -> None:
        """Add a file."""
        index = file.index
        if index is not None:
            self.files.setdefault(file.step, {})[file.worker] = file
            self.modes.setdefault(index.mode, {}).setdefault(index.mode_step, file.step)
            self.num_files += 1


class TensorSteps:
    """The steps at which a tensor was saved, and the workers that saved it.

    Attributes:
        name: Its name.
        original_name: Its name in the framework; None if that was not saved.
        trial: The trial.
    """

    def __init__(self, name: str, trial: Trial) -> None:
        self.name = name
        self.original_name: str | None = None
        self.trial = trial
        self._groups: list[TensorGroup] = []
        self._merged = TensorGroup()

    def join(self, group: TensorGroup) -> None:
        """Join a group of files that hold this tensor, or a reduction of it."""
        if group not in self._groups:
            self._groups.append(group)

    @property
    def _all(self) -> TensorGroup:
        """All files that hold the tensor; rebuilt only after a new file."""
        if len(self._groups) == 1:
            return self._groups[0]
        if self._merged.num_files != sum(group.num_files for group in self._groups):
            self._merged = TensorGroup()
            for group in self._groups:
                for files in group.files.values():
                    for file in files.values():
                        self._merged.add(file)
        return self._merged

    @property
    def _files(self) -> dict[int, dict[str, StepFile]]:
        return self._all.files

    @property
    def _modes(self) -> dict[ModeKeys, dict[int, int]]:
        return self._all.modes

    def is_saved(self, mode: ModeKeys, global_step: int | None) -> bool:
        """Return whether the tensor was saved in a mode (GLOBAL: any) and, if given, at a step."""
        is_in_mode = mode is ModeKeys.GLOBAL or mode in self._modes
        return is_in_mode and (global_step is None or global_step in self._files)

    def has_step(self, step_num: int, mode: Mode = ModeKeys.GLOBAL) -> bool:
        """Return whether the tensor was saved at a step, also if another worker may still write."""
        return step_num in self.steps(mode, show_incomplete_steps=True)

    def steps(self, mode: Mode = ModeKeys.GLOBAL, show_incomplete_steps: bool = False) -> list[int]:
        """Return the steps at which the tensor was saved, sorted."""
        mode = as_mode(mode)
        self.trial.maybe_refresh()
        return self.trial.complete_steps(self._steps(mode), show_incomplete_steps)

    def prev_steps(
        self, step: int, n: int | None = None, mode: Mode = ModeKeys.GLOBAL
    ) -> list[int]:
        """Return the last `n` saved steps, or all, up to and including a step."""
        check_step(step)
        steps = self.steps(mode)
        steps = steps[: bisect_right(steps, step)]
        return steps[-n:] if n else steps

    def workers(self, step_num: int, mode: Mode = ModeKeys.GLOBAL) -> list[str]:
        """Return the workers that saved the tensor at a step, sorted.

        Raises:
            TensorUnavailableForStep: If no worker did.
        """
        mode = as_mode(mode)
        files = self._files.get(self._global_step(step_num, mode))
        if not files:
            raise TensorUnavailableForStep(self.name, step_num, mode)
        return sorted(files)

    def _steps(self, mode: ModeKeys) -> dict[int, int]:
        if mode is ModeKeys.GLOBAL:
            return {step: step for step in self._files}
        return self._modes.get(mode, {})

    def _global_step(self, step_num: int, mode: ModeKeys) -> int:
        check_step(step_num)
        return step_num if mode is ModeKeys.GLOBAL else self._modes.get(mode, {}).get(step_num, -1)

    def _file(self, step_num: int, mode: ModeKeys, worker: str | None) -> StepFile:
        files = self._files.get(self._global_step(step_num, mode))
        if not files:
            self._refuse(step_num, mode)
            files = self._files[self._global_step(step_num, mode)]
        if worker is None:
            return files[min(files)]
        if worker not in files:
            raise InvalidWorker(worker)
        return files[worker]

    def _whole(self, file: StepFile) -> StepFile:
        """Return a file of the tensor with the statistics of all its parts, if it has one."""
        return with_merged_shards(dict(sorted(self._files[file.step].items())))[file.worker]

    def _refuse(self, step_num: int, mode: ModeKeys) -> None:
        """Raise the error for a step without this tensor, unless it has just arrived."""
        state = self.trial.has_passed_step(step_num, mode)
        if self._global_step(step_num, mode) in self._files:
            return
        if state is StepState.AVAILABLE:
            raise TensorUnavailableForStep(self.name, step_num, mode)
        if state is StepState.NOT_YET_AVAILABLE:
            raise StepNotYetAvailable(step_num, mode)
        raise StepUnavailable(step_num, mode)
