"""How a script ended, in the end marker of its run and of no other."""

from __future__ import annotations

import signal

import pytest

from hook_layer.format.end_marker import EndMarker
from hook_layer.format.job_file import JobFile
from hook_layer.format.paths import END_MARKER, JOB_FILE
from rule_runtime.embedded.exit_mark import mark_exit
from rule_runtime.testing import TrialBuilder
from rule_runtime.trial.run_files import read_end_marker


@pytest.fixture
def trial() -> TrialBuilder:
    trial = TrialBuilder()
    trial.store.put(JOB_FILE, JobFile("job", trial.run or "", "unknown", "").encode())
    trial.step(0, {"loss": [1.0]})
    return trial


def test_it_is_added_to_what_the_hook_wrote(trial: TrialBuilder) -> None:
    trial.end()
    before = read_end_marker(trial.store)
    mark_exit(trial.store, trial.run, 9)
    after = read_end_marker(trial.store)
    assert before is not None
    assert after == EndMarker(trial.run, before.sequences, 9)
    assert before.sequences


def test_a_script_that_was_killed_has_ended_and_one_that_was_terminated_may_go_on(
    trial: TrialBuilder,
) -> None:
    mark_exit(trial.store, trial.run, -signal.SIGTERM)
    assert read_end_marker(trial.store) is None
    mark_exit(trial.store, trial.run, -signal.SIGKILL)
    assert read_end_marker(trial.store) == EndMarker(trial.run, {}, 137)


@pytest.mark.parametrize("run", [None, "another"])
def test_another_run_is_left_alone(trial: TrialBuilder, run: str | None) -> None:
    mark_exit(trial.store, run, 9)
    assert not trial.store.exists(END_MARKER)
