"""Following a run while it is written: what is new, what is missing, when it ends."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from hook_layer.format.job_file import JobFile
from hook_layer.format.modes import ModeKeys
from hook_layer.format.paths import END_MARKER, JOB_FILE, event_key
from hook_layer.storage.local import LocalStore
from hook_layer.storage.memory import MemoryStore
from rule_runtime import create_trial
from rule_runtime.testing import TrialBuilder
from rule_runtime.trial.errors import StepNotYetAvailable, TensorUnavailableForStep
from rule_runtime.trial.refreshing import no_refresh, refresh
from rule_runtime.trial.tensor_steps import StepState
from rule_runtime.trial.trial import Trial
from tests.rule_runtime.outcomes import make_run

RUNS = pytest.mark.parametrize("run", ["run-1", None])


class Clock:
    """Waits for nothing, and does something at each wait."""

    def __init__(self, *actions: Callable[[], object]) -> None:
        self.waits: list[float] = []
        self.actions = list(actions)

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        assert len(self.waits) < 500, "it waits for ever"
        if self.actions:
            self.actions.pop(0)()


def follow(builder: TrialBuilder, clock: Clock | None = None) -> Trial:
    return Trial(builder.store, name="t", sleep=(clock or Clock()).sleep)


# What is looked for -------------------------------------------------------------------------------


@RUNS
def test_no_refresh_shows_the_same_steps_to_all_queries(run: str | None) -> None:
    builder = TrialBuilder(run=run)
    builder.step(0, {"a": [1.0]})
    trial, other = follow(builder), follow(builder)
    with no_refresh([trial, other]) as trials:
        assert trials == [trial, other]
        builder.step(1, {"a": [1.0], "b": [1.0]})
        assert (trial.steps(), other.tensor_names()) == ([0], ["a"])
        assert not trial.has_tensor("b")
        with refresh(trial):
            assert trial.steps() == [0, 1]
        builder.step(2, {"a": [1.0]})
        assert trial.steps() == [0, 1]  # and not what the original does: look again
        assert trial.global_step(ModeKeys.TRAIN, 2) is None
        assert trial.mode(2) is None
    assert trial.steps() == [0, 1, 2]
    assert trial.dynamic_refresh
    assert other.dynamic_refresh


def test_no_refresh_ends_with_an_exception_too() -> None:
    trial = follow(TrialBuilder())
    with pytest.raises(KeyError), no_refresh(trial):
        raise KeyError
    assert trial.dynamic_refresh
    trial.dynamic_refresh = False
    with no_refresh(trial):
        pass
    assert not trial.dynamic_refresh


def test_refresh_data_looks_whatever_is_switched_off() -> None:
    builder = TrialBuilder()
    trial = follow(builder)
    trial.dynamic_refresh = False
    builder.step(0, {"a": [1.0]})
    trial.maybe_refresh("a")
    assert trial.steps() == []
    trial.refresh_data()
    assert trial.steps() == [0]
    builder.step(1, {"a": [1.0]})
    trial.refresh_tensor("a")
    assert trial.steps() == [0, 1]


def test_waiting_looks_also_within_no_refresh() -> None:
    builder = TrialBuilder()
    trial = follow(builder, Clock(lambda: builder.step(3, {"a": [1.0]})))
    with no_refresh(trial):
        trial.wait_for_steps([3])
        assert trial.steps() == [3]
    trial.wait_for_steps([])


# The end ------------------------------------------------------------------------------------------


def test_opening_and_the_end_are_logged_as_the_original_does(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "stepwatch")
    builder = TrialBuilder(LocalStore(tmp_path))
    builder.step(0, {"a": [1.0]})
    trial = create_trial(f" {tmp_path} ", name="mine", range_steps=(0, 9))
    assert [record.getMessage() for record in caplog.records] == [
        "Trial mine will look for steps between 0 and 9",
        f"Loading trial mine at path {tmp_path}",
    ]
    caplog.clear()
    builder.end()
    assert trial.steps() == [0]
    assert trial.loaded_all_steps
    trial.steps()
    assert [record.getMessage() for record in caplog.records] == [
        "Training has ended, will refresh one final time in 1 sec.",
        "Loaded all steps",
    ]


def test_files_that_are_on_their_way_at_the_end_are_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SMDEBUG_TRAINING_END_DELAY_REFRESH", "7")
    builder = TrialBuilder(run=None)
    builder.step(0, {"a": [1.0]})
    clock = Clock(lambda: builder.step(1, {"a": [1.0]}))
    trial = follow(builder, clock)
    builder.end()
    assert trial.steps() == [0, 1]
    assert clock.waits == [7]
    assert trial.loaded_all_steps


@RUNS
def test_a_trial_that_had_ended_is_not_waited_for(run: str | None) -> None:
    builder = TrialBuilder(run=run)
    builder.step(0, {"a": [1.0]})
    builder.end()
    clock = Clock()
    trial = follow(builder, clock)
    assert trial.loaded_all_steps
    assert trial.steps() == [0]
    assert clock.waits == []


def test_where_nothing_can_be_missing_the_end_is_not_waited_for() -> None:
    builder = TrialBuilder(num_workers=2)
    keys = [builder.step(step, {"a": [1.0]}, worker=f"worker_{step % 2}") for step in range(4)]
    clock = Clock()
    trial = follow(builder, clock)
    builder.end()
    assert trial.steps() == [0, 1, 2, 3]
    assert clock.waits == []
    # But where a file is missing by its number, it is.
    late = builder.store.get(keys[3])
    builder.store.delete(END_MARKER)
    builder.store.delete(keys[3])
    clock = Clock(lambda: builder.store.put(keys[3], late))
    trial = follow(builder, clock)
    builder.end()
    assert trial.steps() == [0, 1, 2, 3]
    assert clock.waits == [1]


def test_the_end_of_the_run_before_is_not_the_end() -> None:
    before, now = TrialBuilder(run="01"), TrialBuilder(run="02")
    now.store = before.store
    before.step(0, {"a": [1.0]})
    before.end()
    now.store.put(JOB_FILE, JobFile("job", "02", "", "").encode())
    trial = follow(now)
    assert not trial.loaded_all_steps
    now.step(1, {"a": [1.0]})
    assert trial.steps() == [1]
    now.end()
    assert trial.steps() == [1]
    assert trial.loaded_all_steps


@pytest.mark.parametrize(
    "name",
    [
        "SMDEBUG_TRAINING_END_DELAY_REFRESH",
        "SMDEBUG_INCOMPLETE_STEP_WAIT_WINDOW",
        "SMDEBUG_MISSING_EVENT_FILE_RETRY_LIMIT",
    ],
)
def test_settings_must_be_numbers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ("-1", "1.5", "soon"):
        monkeypatch.setenv(name, wrong)
        with pytest.raises(ValueError, match=f"{name}='{wrong}' must be a whole number"):
            follow(TrialBuilder())


# What is missing ----------------------------------------------------------------------------------


@RUNS
def test_a_worker_that_writes_no_more_holds_up_half_a_window(
    run: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SMDEBUG_INCOMPLETE_STEP_WAIT_WINDOW", "10")
    builder = TrialBuilder(run=run, num_workers=2)
    for rank in range(2):
        builder.collections(worker=f"worker_{rank}")
        builder.step(0, {"a": [1.0]}, worker=f"worker_{rank}")
    trial = follow(builder)
    for step in range(100, 1100, 100):  # steps far apart are no more steps
        builder.step(step, {"a": [1.0]})
    assert trial.steps() == [0]
    builder.step(1100, {"a": [1.0]})
    assert trial.steps() == [0, 100, 200, 300, 400, 500]
    assert trial.has_passed_step(500) is StepState.AVAILABLE
    assert trial.has_passed_step(600) is StepState.NOT_YET_AVAILABLE
    assert trial.has_passed_step(450) is StepState.UNAVAILABLE
    assert trial.last_complete_step == 500
    builder.step(200, {"late": [1.0]}, worker="worker_1")
    assert "late" in trial.tensor_names(step=200)


def test_attributes_of_a_run_under_way() -> None:
    builder = TrialBuilder(num_workers=2)
    trial = follow(builder)
    assert (trial.num_workers, trial.last_complete_step, trial.last_index_token) == (1, -1, None)
    builder.step(0, {"a": [1.0], "smdebug/reductions/mean/b": [1.0]}, worker="worker_0")
    builder.step(0, {"a": [1.0]}, worker="worker_1")
    builder.step(5, {"a": [1.0]}, worker="worker_1")
    assert trial.workers() == ["worker_0", "worker_1"]
    assert trial.num_workers == 2
    assert trial.worker_set == {"worker_0", "worker_1"}
    assert trial.workers_for_global_step == {0: {"worker_0", "worker_1"}, 5: {"worker_1"}}
    assert trial.global_step_to_tensors_map == {0: {"a", "b"}, 5: {"a"}}
    assert trial.last_complete_step == 0
    assert trial.last_index_token == "index/000000000/000000000000_worker_1.json"
    assert not trial.loaded_all_steps
    tensor = trial.tensor("a")
    assert tensor.steps() == [0]
    assert tensor.steps(show_incomplete_steps=True) == [0, 5]
    assert tensor.steps(ModeKeys.TRAIN) == [0]
    assert tensor.steps(mode=ModeKeys.EVAL, show_incomplete_steps=True) == []
    assert tensor.workers(step_num=0) == ["worker_0", "worker_1"]
    assert tensor.prev_steps(5) == [0]
    assert trial.mode_modestep(0) == (ModeKeys.TRAIN, 0)
    assert trial.mode_modestep(1) == (None, None)


@RUNS
def test_in_a_range_a_worker_may_leave_steps_out(run: str | None) -> None:
    builder = TrialBuilder(run=run, num_workers=2)
    for rank in range(2):
        builder.collections(worker=f"worker_{rank}")
        for step in range(0, 60, 10 + 10 * rank):
            builder.step(step, {"a": [1.0]}, worker=f"worker_{rank}")
    trial = Trial(builder.store, name="t", range_steps=(10, 50))
    assert trial.steps() == [10, 20, 30, 40]
    assert trial.has_passed_step(50) is StepState.NOT_YET_AVAILABLE
    builder.end()
    assert trial.steps() == [10, 20, 30, 40]


def test_an_event_file_that_comes_after_its_index_file_is_waited_for() -> None:
    builder = make_run({"a": [1.0], "smdebug/reductions/mean/a": [3.0]})
    key = event_key(0, "worker_0")
    content = builder.store.get(key)
    builder.store.delete(key)
    clock = Clock(lambda: None, lambda: builder.store.put(key, content))
    trial = follow(builder, clock)
    assert trial.tensor("a").value(0).tolist() == [1.0]
    assert clock.waits == [2, 2]
    builder.store.delete(key)
    clock.actions = [lambda: builder.store.put(key, content)]
    assert trial.tensor("a").reduction_value(0, "mean").tolist() == [3.0]


def test_an_event_file_that_will_not_come_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMDEBUG_MISSING_EVENT_FILE_RETRY_LIMIT", "3")
    builder = make_run({"a": [1.0]})
    builder.store.delete(event_key(0, "worker_0"))
    clock = Clock()
    trial = follow(builder, clock)
    with pytest.raises(TensorUnavailableForStep):
        trial.tensor("a").value(0)
    assert clock.waits == [2, 2, 2]
    builder.step(1, {"a": [1.0]})  # the worker goes on
    trial.refresh()
    with pytest.raises(TensorUnavailableForStep):
        trial.tensor("a").value(0)
    builder.end()
    builder.store.delete(event_key(1, "worker_0"))
    for step in (0, 1):
        with pytest.raises(TensorUnavailableForStep):
            trial.tensor("a").value(step)
    assert len(clock.waits) <= 4


def test_an_original_name_is_kept() -> None:
    builder = make_run({"w": [1.0]}, save_values=False)
    builder.step(0, {"v": [1.0]}, worker="worker_1")
    trial = follow(builder)
    assert trial.tensor("w").original_name == "w"
    assert trial.tensor("v").original_name is None


def test_a_value_that_may_still_come_is_told_so() -> None:
    builder = TrialBuilder(MemoryStore())
    builder.step(0, {"a": [1.0]})
    tensor = follow(builder).tensor("a")
    with pytest.raises(StepNotYetAvailable, match="Step 4 of mode EVAL not yet available"):
        tensor.value(4, ModeKeys.EVAL)
    with pytest.raises(StepNotYetAvailable):
        tensor.reduction_values(3)
