"""Numbers that a script logs, until a hook saves a step."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Final

import numpy as np

from hook_layer.configuration.collection_manager import CollectionManager, SummaryPlan, TensorPlan
from hook_layer.core.events import StepEnds
from hook_layer.core.recorder import Recorder
from hook_layer.core.state import HookState, Part
from hook_layer.core.tensor_capture import PlannedTensors
from hook_layer.format.known_collections import KNOWN_COLLECTIONS, LOGGED, LOGGED_STEP, SCALAR
from hook_layer.format.modes import WITHOUT_TRAINING

__all__ = ["LoggedValues"]

_MAX_NAMES: Final = 1000
"""Names of logged scalars in a run; a script may log a name for each sample."""
_PLAN: Final = TensorPlan(raw=True, summaries=SummaryPlan(scalar=True))
_STEP_PLAN: Final = TensorPlan(raw=True)
_RANK: Final = r"(?i)(?:rank|worker|gpu|device|proc(?:ess)?)[_/:.-]?0*{}(?!\d)"


class LoggedValues(Part):
    """Keeps the newest value of each logged scalar for the next saved training step.

    A value that is not finite is kept instead of newer finite ones, so that it is saved.
    It is saved as `scalar/NAME`, with the script's step as `logged_step/NAME`; -1 if unknown.

    Args:
        state: State of the hook.
        manager: Its collections.
        recorder: Its open step.
        rank: Returns this process's rank.
    """

    def __init__(
        self,
        state: HookState,
        manager: CollectionManager,
        recorder: Recorder,
        rank: Callable[[], int],
    ) -> None:
        super().__init__(state)
        self._manager = manager
        self._recorder = recorder
        self._rank = rank
        self._waiting: dict[str, tuple[float, float | None]] = {}
        self._names: set[str] = set()

    def add(self, numbers: Mapping[str, float], step: float | None) -> None:
        """Keep logged numbers. Ranks above 0 keep only names that contain their rank.

        Args:
            numbers: The numbers by name.
            step: The script's step.
        """
        rank = self._rank()
        of_rank = re.compile(_RANK.format(rank)).search if rank else None
        waiting = self._waiting
        for name, value in numbers.items():
            if of_rank is not None and of_rank(name) is None:
                continue
            if name not in self._names and not self._is_new_name(name):
                continue
            kept = waiting.get(name)
            if kept is None or isfinite(kept[0]) or not isfinite(value):
                waiting[name] = (value, step)
        if self._recorder.is_captured:  # like `save_scalar`: steps stay open until the next one
            self._recorder.saw_late_tensors = True

    def on_step_ends(self, _: StepEnds) -> None:
        """Save the values in a saved training step."""
        record = self._recorder.record
        is_training = record is not None and record.mode not in WITHOUT_TRAINING
        if self._waiting and is_training and not self._recorder.is_step_unsaved:
            self._recorder.capture_own(self._take())

    def leave(self) -> None:
        """Leave the values to the step that follows the end of the run."""
        if self._waiting:
            self._recorder.capture_for_next(self._take())

    def _is_new_name(self, name: str) -> bool:
        if len(self._names) >= _MAX_NAMES:
            self.state.warn_once(f"only the first {_MAX_NAMES} names of logged scalars are stored")
            return False
        if not self._names:  # steps of a script that logs nothing cost nothing
            self.events.subscribe(StepEnds, self.on_step_ends, "logged scalars")
        self._names.add(name)
        return True

    def _take(self) -> PlannedTensors:
        waiting, self._waiting = self._waiting, {}
        tensors: dict[str, tuple[object, TensorPlan]] = {}
        for name, (value, step) in waiting.items():
            tensors[SCALAR + name] = (np.float64(value), _PLAN)
            tensors[LOGGED_STEP + name] = (np.float64(-1 if step is None else step), _STEP_PLAN)
        if LOGGED not in self._manager.collections:
            self._manager.get(LOGGED).include(KNOWN_COLLECTIONS[LOGGED])
        return tensors
