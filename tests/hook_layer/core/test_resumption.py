"""Where a run begins; `resuming/test_checkpoint.py` has whole runs that continue."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hook_layer.configuration.job import CheckpointConfig, HookTargets, JobEnvironment
from hook_layer.core.clock import StepClock
from hook_layer.core.resumption import Resumption
from hook_layer.core.state import HookState
from hook_layer.resuming.checkpoint import CheckpointKeeper, RunStart
from hook_layer.run.run_folder import RunPlace
from hook_layer.testing.written_trial import WrittenTrial


class Owner:
    """Owns what decides where a run begins."""

    def __init__(self, trial: WrittenTrial, checkpoints: Path | None = None) -> None:
        checkpoint = None if checkpoints is None else CheckpointConfig(checkpoints)
        targets = HookTargets(trial.store, checkpoint=checkpoint)
        self.place = RunPlace(targets, JobEnvironment("mnist-7"), self.give_way)
        self.clock = StepClock()
        self.state = HookState()
        self.resumption = Resumption(self.state, self.clock, self.place)

    def give_way(self) -> None:
        pass


@pytest.mark.parametrize(("framework_step", "last"), [(5, 7), (8, 7), (10, 9)])
def test_the_later_of_checkpoint_and_framework_counts(
    trial: WrittenTrial, framework_step: int, last: int
) -> None:
    owner = Owner(trial)
    owner.resumption.framework_step = framework_step
    assert owner.resumption.begin(RunStart("RUN", step=7)).step == last
    assert owner.clock.step == last


def test_checkpoints_that_cannot_be_read_mean_a_new_run(
    trial: WrittenTrial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> RunStart:
        raise OSError("no such disk")

    monkeypatch.setattr(CheckpointKeeper, "start", fail)
    owner = Owner(trial, tmp_path)
    assert owner.resumption.own_start().step == -1
    assert owner.state.failures.errors == {"checkpoints": 1}
    assert not owner.resumption.has_new_checkpoint
    owner.resumption.check_for_checkpoint()
    owner.resumption.close(has_ended=True)
    owner.place.end()
