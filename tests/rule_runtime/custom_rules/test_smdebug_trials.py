"""What a rule of the original's style sees of the run that it judges, and of other runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from hook_layer.storage.base import StorageError
from hook_layer.storage.local import LocalStore
from rule_runtime.engine.outcome import (
    IssueFound,
    Passed,
    RuleStatus,
)
from rule_runtime.engine.reconciler import Reconciler
from rule_runtime.engine.state import EvaluationState
from rule_runtime.testing.trial_builder import TrialBuilder
from rule_runtime.trial.step_index import load_step_files
from tests.rule_runtime.custom_rules.smdebug_runs import (
    STEPS,
    inline,
    judged,
    load,
    write_run,
)


class TestTheTrialOfTheRule:
    """`base_trial` is the run up to the step that is judged."""

    def test_shows_no_later_step(self, jobs: Path, tmp_path: Path) -> None:
        rule = inline(
            tmp_path,
            """
            def invoke_at_step(self, step):
                trial = self.base_trial
                assert trial.steps()[-1] == step and trial.tensor("loss").steps()[-1] == step
                assert list(trial.tensor("loss").values()) == trial.steps()
                assert trial.tensor("loss").prev_steps(step, 2)[-1] == step
                assert not trial.loaded_all_steps and trial.name == "judged"
                trial.tensor("loss").value(step + 5)
            """,
        )
        state = judged(jobs, rule, [3, 1])
        assert state.status is RuleStatus.ERROR
        assert state.counts.failure == ""
        assert state.counts.last_reason == "Step 50 of mode GLOBAL not yet available"

    def test_is_not_waited_for(self, jobs: Path, tmp_path: Path) -> None:
        rule = inline(
            tmp_path,
            """
            def set_required_tensors(self, step):
                self.req_tensors.add("loss", steps=[step, step + 5])

            def invoke_at_step(self, step):
                return True
            """,
        )
        state = judged(jobs, rule, [])
        assert state.counts.not_evaluated == len(STEPS)
        assert state.counts.last_reason == "the rule requests a step that does not exist yet"

    def test_knows_modes_and_collections(self, tmp_path: Path) -> None:
        run = TrialBuilder(LocalStore(tmp_path / "run"))
        run.collections(mine=("^a",))
        for step in range(4):
            mode = ModeKeys.EVAL if step % 2 else ModeKeys.TRAIN
            run.step(step, {"a": [step], "b": [1.0]}, mode=mode)
        rule = inline(
            tmp_path,
            """
            def invoke_at_step(self, step):
                from smdebug import modes
                trial = self.base_trial
                assert trial.tensor_names(collection="mine") == ["a"]
                assert trial.steps(modes.EVAL) == list(range((step + 1) // 2))
                return trial.mode(step) is modes.EVAL and trial.tensor("a").value(step)[0] == 3
            """,
        )
        outcomes = run.outcomes(rule)
        assert [type(outcome) for outcome in outcomes] == [Passed, Passed, Passed, IssueFound]

    def test_incomplete_steps_are_judged_at_the_end(self, tmp_path: Path) -> None:
        run = write_run(tmp_path / "run", is_sick=False, num_workers=2)
        run.step(50, {"loss": [1.0]}, worker="worker_1", mode_step=50)
        run.step(55, {"loss": [9.0]}, worker="worker_1", mode_step=55)
        rule = inline(
            tmp_path,
            """
            def set_required_tensors(self, step):
                self.req_tensors.add("loss", [step])

            def invoke_at_step(self, step):
                assert step in self.base_trial.steps()
                (loss,) = self.req_tensors.get()
                return loss.value(step, worker="worker_1").max() > 5
            """,
        )
        state = run.evaluate(rule)
        assert state.evidence is not None
        assert (state.evidence.step, state.counts.evaluated) == (55, len(STEPS) + 2)
        assert state.evidence.tensor == "loss"
        whole = judged(tmp_path, rule, [], name="run")
        assert whole.evidence == state.evidence

    def test_a_run_beside_another_in_one_folder_sees_its_own_steps(self, tmp_path: Path) -> None:
        store = LocalStore(tmp_path / "run")
        old, new = TrialBuilder(store, run="run-1"), TrialBuilder(store, run="run-2")
        for step in range(3):
            old.step(step, {"loss": [1.0]})
        new.step(10, {"loss": [1.0]})
        body = """
            def invoke_at_step(self, step):
                assert 10 not in self.base_trial.steps()
                return len(self.base_trial.steps()) == 3
            """
        state = old.evaluate(inline(tmp_path, body))
        assert state.counts.failure == ""
        assert state.evidence is not None
        assert state.evidence.step == 2

    def test_files_of_the_original_client_are_judged_too(self, tmp_path: Path) -> None:
        run = TrialBuilder(LocalStore(tmp_path / "run"), run=None)
        run.collections(gradients=("^gradient",))
        for step in range(4):
            run.step(step, {"gradient/a": [1e-9 if step == 2 else 1.0]})
        state = run.evaluate(load("documented"))
        assert state.evidence is not None
        assert (state.evidence.step, state.evidence.count) == (2, 1)

    def test_a_file_that_comes_late_is_judged_in_the_second_pass(self, tmp_path: Path) -> None:
        run = TrialBuilder(LocalStore(tmp_path / "run"), run=None)
        rule = load("documented")
        keys = [run.step(step, {"gradient/a": [1.0]}) for step in (0, 1, 3)]
        run.collections(gradients=("^gradient",))
        state = EvaluationState.initial()
        state = Reconciler(run.store, rule, None).advance(state, load_step_files(run.store, keys))
        run.step(2, {"gradient/a": [1e-9]})
        state = Reconciler(run.store, rule, None).advance(state, (), ended=True)
        assert state.evidence is not None
        assert state.evidence.step == 2

    def test_a_failing_storage_is_passed_on(self, tmp_path: Path) -> None:
        class Away(LocalStore):
            is_away = False

            def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
                if self.is_away and key.startswith("events/"):
                    raise StorageError("the bucket is away")
                return super().get(key, start, length)

        store = Away(tmp_path / "run")
        run = TrialBuilder(store)
        key = run.step(0, {"loss": [1.0]})
        body = "def invoke_at_step(self, step):\n    return self.base_trial.tensor('loss').value(0)"
        rule = inline(tmp_path, body)
        store.is_away = True
        with pytest.raises(StorageError, match="is away"):
            Reconciler(store, rule, "run-1").advance(
                EvaluationState.initial(), load_step_files(store, [key])
            )
        store.is_away = False
        assert run.evaluate(rule).status is RuleStatus.ISSUES_FOUND

    def test_is_only_read(self, jobs: Path, tmp_path: Path) -> None:
        body = """
            def invoke_at_step(self, step):
                store = self.base_trial.store
                for change in (lambda: store.put("a", b""), lambda: store.delete("a")):
                    try:
                        change()
                    except PermissionError as error:
                        assert "a trial is only read" in str(error)
                    else:
                        raise AssertionError
                key = next(store.list("events/"))
                assert store.size(key) > 0 and store.exists(key)
                assert not store.exists("training_job_end.ts")
                return False
            """
        assert judged(jobs, inline(tmp_path, body), []).status is RuleStatus.NO_ISSUES_FOUND

    def test_objects_among_the_files_do_no_harm(self, tmp_path: Path) -> None:
        run = TrialBuilder(LocalStore(tmp_path / "run"))
        run.store.put("index/000000000/notes.json", b"{}")
        run.step(3, {"gradient/a": [1e-9]})
        assert run.evaluate(load("documented")).status is RuleStatus.ISSUES_FOUND

    def test_several_runs_take_turns(self, tmp_path: Path) -> None:
        body = """
            def invoke_at_step(self, step):
                self.seen = getattr(self, "seen", 0) + 1
                assert len(self.base_trial.steps()) == self.seen
                assert self.base_trial.tensor("loss").value(step)[0] == int(self.base_trial.name)
                return self.seen == 3
            """
        rule = inline(tmp_path, body)
        runs = [TrialBuilder(LocalStore(tmp_path / str(at)), run=f"run-{at}") for at in range(10)]
        states = [EvaluationState.initial()] * len(runs)
        for step in range(3):
            for at, run in enumerate(runs):
                files = load_step_files(run.store, [run.step(step, {"loss": [float(at)]})])
                states[at] = Reconciler(run.store, rule, run.run).advance(states[at], files)
        assert [state.counts.failure for state in states] == [""] * len(runs)
        assert {state.status for state in states} == {RuleStatus.ISSUES_FOUND}

    def test_another_trial_may_grow(self, tmp_path: Path) -> None:
        rule = load("required", patience="1")
        mine = TrialBuilder(LocalStore(tmp_path / "mine"))
        other = TrialBuilder(LocalStore(tmp_path / "other"))
        state = EvaluationState.initial()
        for step in range(4):
            if step:
                other.step(step, {"loss": np.float32(1)}, mode_step=step)
            key = mine.step(step, {"loss": np.float32(step)}, mode_step=step)
            reconciler = Reconciler(mine.store, rule, mine.run)
            state = reconciler.advance(state, load_step_files(mine.store, [key]))
        assert (state.counts.evaluated, state.counts.not_evaluated) == (3, 1)
        assert "no step is stored" in state.counts.last_reason
        assert state.evidence is not None
        assert state.evidence.step == 2
