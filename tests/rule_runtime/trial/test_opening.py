"""Opening what is no trial, or is none yet."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from hook_layer.format.job_file import JobFile
from hook_layer.format.paths import JOB_FILE
from hook_layer.storage.local import LocalStore
from rule_runtime import create_trial
from rule_runtime.testing import TrialBuilder
from rule_runtime.trial.errors import NoMoreData
from rule_runtime.trial.opening import LocalTrial
from rule_runtime.trial.trial import Trial


@pytest.mark.parametrize("path", ["", "  ", "file://"])
def test_no_path_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="create_trial: the path is empty"):
        create_trial(path)


def test_no_folder_is_refused() -> None:
    with pytest.raises(ValueError, match="path is empty"):
        LocalTrial("t", "")


def test_a_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.touch()
    for path in (file, str(file), f" {file}/ ", file.as_uri()):
        with pytest.raises(ValueError, match=r"train\.py/?' is a file; give the folder"):
            create_trial(path)
    with pytest.raises(ValueError, match="is a file"):
        LocalTrial("t", file)


def test_a_folder_that_is_not_there_yet_may_be_opened(tmp_path: Path) -> None:
    trial = create_trial(tmp_path / "later")
    assert trial.steps() == []
    assert "nothing found yet" in repr(trial)
    assert "nothing found yet" in trial._repr_html_()
    store = TrialBuilder(LocalStore(tmp_path / "later")).store
    assert "nothing found yet" in repr(trial)
    store.put(JOB_FILE, JobFile("later", "run-1", "", "").encode())
    trial.refresh()
    assert "0 steps, 0 workers, training continues" in repr(trial)


def test_a_path_at_which_nothing_is_found_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for path in (tmp_path / "nowhere", tmp_path):
        caplog.clear()
        create_trial(path)
        (text,) = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
        assert text == f"nothing was found at {path} so far; is the path right?"
    caplog.clear()
    TrialBuilder(LocalStore(tmp_path)).step(0, {"a": [1.0]})
    create_trial(tmp_path)
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


def waiting(seconds_until_the_end: float, builder: TrialBuilder) -> Trial:
    waited = 0.0

    def sleep(seconds: float) -> None:
        nonlocal waited
        waited += seconds
        if waited >= seconds_until_the_end:
            builder.end()

    return Trial(builder.store, name="t", sleep=sleep)


def test_waiting_where_nothing_is_tells_so_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "stepwatch")
    builder = TrialBuilder()
    trial = waiting(130, builder)
    with pytest.raises(NoMoreData):
        trial.wait_for_steps([5])
    reported = [record.getMessage() for record in caplog.records]
    assert len(reported) == 3  # at 0, 60 and 120 s
    assert all(text.startswith(f"nothing was found at {trial.path} so far") for text in reported)
    assert "is the path right?" in reported[0]


@pytest.mark.parametrize("is_saved", [True, False])
def test_waiting_for_a_step_of_a_run_under_way_tells_nothing(
    is_saved: bool, caplog: pytest.LogCaptureFixture
) -> None:
    builder = TrialBuilder()
    builder.store.put(JOB_FILE, JobFile("t", "run-1", "", "").encode())
    if is_saved:
        builder.step(0, {"a": [1.0]})
    with pytest.raises(NoMoreData):
        waiting(130, builder).wait_for_steps([5])
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_trials_of_the_same_name_and_path_are_equal(tmp_path: Path) -> None:
    path = str(tmp_path)
    trial, other = create_trial(path), create_trial(path)
    assert trial == other
    assert len({trial, other}) == 1
    assert trial != create_trial(path, name="b")
    assert trial != path


@pytest.mark.parametrize("wrong", [("a", 2), (1, 2, 3), "12", 5])
def test_a_range_that_is_no_pair_of_steps_is_refused(wrong: Any, tmp_path: Path) -> None:
    with pytest.raises(
        TypeError, match=r"range_steps is .* must be \(begin, end\) with 0 <= begin"
    ):
        create_trial(tmp_path, range_steps=wrong)
