"""Rules in files of the user, in three styles, on the same run: locally, and in any split."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hook_layer.format.modes import ModeKeys
from hook_layer.storage.base import StorageError
from hook_layer.storage.local import LocalStore
from rule_runtime import create_trial, smdebug_alias
from rule_runtime.custom_rules.loader import load_custom_rule
from rule_runtime.custom_rules.smdebug_rule import invoke_rule
from rule_runtime.evaluation.outcome import (
    Failed,
    IssueFound,
    NotEvaluated,
    Passed,
    RuleStatus,
    status_details,
)
from rule_runtime.evaluation.reconciler import Reconciler
from rule_runtime.evaluation.rule import Rule
from rule_runtime.evaluation.state import EvaluationState
from rule_runtime.testing.trial_builder import TrialBuilder
from rule_runtime.trial.errors import NoMoreData
from rule_runtime.trial.step_index import load_step_files

RULES = Path(__file__).parent / "files"
STYLES = {
    "native": ("native.py", "QuietGradient", {"threshold": "1e-3", "patience": "1"}),
    "documented": ("documented.py", "QuietGradientRule", {"threshold": "1e-3"}),
    "required": ("required.py", "BehindTheOther", {"other_trial_0": "other"}),
}
STEPS = list(range(0, 50, 5))


@pytest.fixture(autouse=True)
def _without_alias() -> Iterator[None]:
    smdebug_alias.uninstall()
    yield
    smdebug_alias.uninstall()


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs: from step 25 on, gradients of `judged` vanish and its loss is behind `other`'s."""
    folder = tmp_path_factory.mktemp("jobs")
    for name in ("judged", "other"):
        write_run(folder / name, is_sick=name == "judged")
    return folder


def write_run(folder: Path, *, is_sick: bool, num_workers: int = 1) -> TrialBuilder:
    run = TrialBuilder(LocalStore(folder), num_workers=num_workers)
    for step in STEPS:
        factor = 1e-6 if is_sick and step >= 25 else 1.0
        tensors = {
            "gradient/fc": np.full(4, 0.1 * factor),
            "loss": np.float32(2.0 if is_sick and step >= 25 else 1.0),
        }
        for worker in range(num_workers):
            run.step(step, tensors, worker=f"worker_{worker}", mode_step=step)
    run.end()
    return run


def load(style: str, **more: Any) -> Rule:
    file, name, parameters = STYLES[style]
    return load_custom_rule(RULES / file, name, {**parameters, **more}, allowed=[RULES])


def inline(folder: Path, body: str, **parameters: Any) -> Rule:
    """Return a rule of the original's style whose class has this body."""
    code = "from smdebug.rules import Rule\n\n\nclass Mine(Rule):\n"
    path = folder / "mine.py"
    path.write_text(code + textwrap.indent(textwrap.dedent(body), "    "))
    return load_custom_rule(path, "Mine", parameters, allowed=[folder])


def judged(jobs: Path, rule: Rule, sizes: list[int], name: str = "judged") -> EvaluationState:
    """Return the final state when as many files as `sizes` says come between two looks."""
    store = LocalStore(jobs / name)
    keys = sorted(store.list("index/"))
    state = EvaluationState.initial()
    while keys:
        size = max(sizes.pop(0) if sizes else len(keys), 1)
        files = load_step_files(store, keys[:size])
        state = Reconciler(store, rule, "run-1").advance(state, files)
        state = EvaluationState.from_json(json.loads(json.dumps(state.to_json())))
        keys = keys[size:]
    return Reconciler(store, rule, "run-1").advance(state, (), ended=True)


class TestThreeStyles:
    @pytest.mark.parametrize("style", STYLES)
    def test_each_finds_the_issue(self, jobs: Path, style: str) -> None:
        state = judged(jobs, load(style), [])
        assert state.status is RuleStatus.ISSUES_FOUND
        assert state.evidence is not None
        first = 30 if style == "required" else 25  # the second step behind the other
        assert (state.evidence.first_step, state.evidence.last_step) == (first, 45)
        assert state.counts.evaluated == len(STEPS)
        name = STYLES[style][1]
        assert f"Evaluation of the rule {name} at step {first}" in status_details(name, state)
        if style != "native":
            assert state.evidence.line.endswith(
                f": {name}.invoke_at_step({first}) is true (worker_0, TRAIN)"
            )
            json.dumps(state.evidence.to_json(), allow_nan=False)

    @pytest.mark.parametrize("style", STYLES)
    def test_each_is_quiet_on_the_healthy_run(self, jobs: Path, style: str) -> None:
        more = {"other_trial_0": str(jobs / "judged")} if style == "required" else {}
        state = judged(jobs, load(style, **more), [], name="other")
        assert state.status is RuleStatus.NO_ISSUES_FOUND
        assert state.counts.evaluated == len(STEPS)

    @settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(sizes=st.lists(st.integers(1, 4), max_size=10), is_fresh=st.booleans())
    @pytest.mark.parametrize("style", STYLES)
    def test_any_split_equals_one_pass(
        self, jobs: Path, style: str, sizes: list[int], is_fresh: bool
    ) -> None:
        rule = load(style)
        whole = judged(jobs, load(style) if is_fresh else rule, [])
        parts = judged(jobs, rule, list(sizes))
        assert (parts.status, parts.memory, parts.counts) == (
            *(whole.status, whole.memory, whole.counts),
        )
        assert parts.evidence is not None
        assert whole.evidence is not None
        assert parts.evidence.to_json() == whole.evidence.to_json()

    @pytest.mark.parametrize("style", ["documented", "required"])
    def test_the_original_way_of_invoking_agrees(self, jobs: Path, style: str) -> None:
        rule_class = load(style)._settings.rule_class  # type: ignore[attr-defined]
        trial = create_trial(jobs / "judged")
        others = [create_trial(jobs / "other")]
        if style == "required":
            rule = rule_class(trial, other_trials=others)
        else:
            rule = rule_class(trial, threshold="1e-3")
        fired = []
        judge = rule.invoke_at_step

        def noted(step: int) -> bool:
            holds = judge(step)
            fired.extend([step] if holds else [])
            return holds

        rule.invoke_at_step = noted
        with pytest.raises(NoMoreData):
            invoke_rule(rule)
        assert fired == STEPS[STEPS.index(30 if style == "required" else 25) :]


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
        assert state.counts.last_reason == "the rule asks for a step that has not come yet"

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


class TestAttributes:
    """What a rule notes in `self` is there at the next step, whichever process judges it."""

    def test_are_kept_as_what_they_are(self, jobs: Path, tmp_path: Path) -> None:
        rule = inline(
            tmp_path,
            """
            def __init__(self, base_trial):
                super().__init__(base_trial)
                import collections, logging, re
                self.sizes = (1, 2.5)
                self.total = collections.defaultdict(float)
                self.when = {("a", 1): None}
                self.mean = sum
                self.log = logging.getLogger("mine")
                self.pattern = re.compile("^l", re.I)
                self.trial = base_trial
                self.bound = self.double
                self.array = __import__("numpy").zeros((2, 2), dtype="float16")
                self.tensors = []

            def double(self, value):
                return 2 * value

            def invoke_at_step(self, step):
                assert self.trial is self.base_trial and self.sizes == (1, 2.5)
                assert self.bound(2) == 4 and self.log.name == "mine" and self.pattern.match("Loss")
                assert self.array.dtype.name == "float16"
                assert self.array.sum() == 4 * len(self.when) - 4
                self.array += 1
                self.when["a", step + 2] = step
                self.total[step] += self.mean([1.0])
                if not self.tensors:
                    self.tensors = [self.base_trial.tensor("loss")]
                assert self.tensors[0] is self.base_trial.tensor("loss")
                return len(self.total) == 10 and set(self.total.values()) == {1.0}
            """,
        )
        for sizes in ([], [1] * 10):
            state = judged(jobs, rule, list(sizes))
            assert state.counts.failure == ""
            assert state.evidence is not None
            assert state.evidence.step == 45

    @pytest.mark.parametrize(
        ("value", "told"),
        [
            ("open(__file__)", "it is or holds a TextIOWrapper"),
            ("[object()]", "it is or holds a object"),
            ("__import__('numpy').zeros(100_000)", "an array of 800000 bytes, of 65536"),
            ("'x' * 300_000", "the attribute 'helper' alone takes 300002"),
        ],
    )
    def test_that_cannot_be_kept_are_named(
        self, jobs: Path, tmp_path: Path, value: str, told: str
    ) -> None:
        body = f"""
            def __init__(self, base_trial):
                super().__init__(base_trial)
                self.helper = []

            def invoke_at_step(self, step):
                self.helper = {value}
                return False
            """
        state = judged(jobs, inline(tmp_path, body), [])
        assert state.status is RuleStatus.ERROR
        assert state.counts.failure.startswith("Mine: the attribute")
        assert "'helper'" in state.counts.failure
        assert told in state.counts.failure

    def test_a_finding_counts_before_what_cannot_be_kept_ends_it(
        self, jobs: Path, tmp_path: Path
    ) -> None:
        body = """
            def invoke_at_step(self, step):
                self.helper = object()
                return True
            """
        state = judged(jobs, inline(tmp_path, body), [1])
        assert state.status is RuleStatus.ISSUES_FOUND
        assert (state.counts.evaluated, state.counts.not_evaluated) == (1, 1)
        assert "'helper'" in state.counts.failure

    def test_an_argument_that_is_changed_is_the_objects_own(
        self, jobs: Path, tmp_path: Path
    ) -> None:
        body = """
            def __init__(self, base_trial, names: list = ()):
                super().__init__(base_trial)
                self.names = names

            def invoke_at_step(self, step):
                self.names.append(step)
                return len(self.names) > 10
            """
        rule = inline(tmp_path, body, names="first")
        for sizes in ([], [2, 2]):
            state = judged(jobs, rule, sizes)
            assert state.evidence is not None
            assert (state.evidence.step, state.evidence.count) == (45, 1)

    def test_changes_before_a_tensor_was_missing_stay(self, jobs: Path, tmp_path: Path) -> None:
        body = """
            seen = 0

            def invoke_at_step(self, step):
                self.seen += 1
                if self.seen < 3:
                    self.base_trial.tensor("never saved")
                return True
            """
        state = judged(jobs, inline(tmp_path, body), [1] * 10)
        assert state.evidence is not None
        assert (state.evidence.step, state.counts.not_evaluated) == (10, 2)


class TestErrors:
    def test_the_line_of_the_file_is_told(self, jobs: Path, tmp_path: Path) -> None:
        body = """
            def invoke_at_step(self, step):
                return self.base_trial.tensor("loss").value(step)[7, 7] > 1
            """
        state = judged(jobs, inline(tmp_path, body), [])
        assert state.status is RuleStatus.ERROR
        assert state.counts.failure.startswith("IndexError: too many indices")
        line = 'return self.base_trial.tensor("loss").value(step)[7, 7] > 1'
        assert f"(mine.py, line 7: {line}), at step 0" in state.counts.failure

    @pytest.mark.parametrize(
        ("body", "told"),
        [
            ("def __init__(self, base_trial):\n    pass", "must call super().__init__(base_trial)"),
            ("def __init__(self, base_trial):\n    exit(1)", "SystemExit: 1 (mine.py, line 6"),
            (
                "def __init__(self, base_trial):\n    super().__init__(base_trial, '{')",
                "(mine.py, line 6: super().__init__(base_trial, '{'))",
            ),
        ],
    )
    def test_a_constructor_that_fails(
        self, jobs: Path, tmp_path: Path, body: str, told: str
    ) -> None:
        rule = inline(tmp_path, f"{body}\ndef invoke_at_step(self, step):\n    return True")
        assert told in judged(jobs, rule, []).counts.failure

    def test_a_constructor_that_needs_a_later_tensor_is_tried_again(self, tmp_path: Path) -> None:
        run = TrialBuilder(LocalStore(tmp_path / "run"))
        for step in range(4):
            run.step(step, {"late" if step > 1 else "early": [1.0]})
        body = """
            def __init__(self, base_trial):
                super().__init__(base_trial)
                self.tensor = base_trial.tensor("late")

            def invoke_at_step(self, step):
                return self.tensor.value(step)[0] == 1
            """
        outcomes = run.outcomes(inline(tmp_path, body))
        assert outcomes[0] == NotEvaluated("Tensor late was not saved.")
        assert [type(outcome) for outcome in outcomes[1:]] == [NotEvaluated, IssueFound, IssueFound]

    def test_a_condition_may_be_raised(self, jobs: Path, tmp_path: Path) -> None:
        body = """
            def invoke_at_step(self, step):
                from smdebug.exceptions import RuleEvaluationConditionMet
                raise RuleEvaluationConditionMet("Mine", step)
            """
        assert judged(jobs, inline(tmp_path, body), []).status is RuleStatus.ISSUES_FOUND

    def test_missing_information_is_a_failure(self, jobs: Path, tmp_path: Path) -> None:
        body = """
            def invoke_at_step(self, step):
                from smdebug.exceptions import InsufficientInformationForRuleInvocation
                raise InsufficientInformationForRuleInvocation("Mine", "no regex")
            """
        failure = judged(jobs, inline(tmp_path, body), []).counts.failure
        assert "Insufficient information to invoke rule Mine: no regex" in failure

    def test_another_trial_that_may_not_be_read(self, jobs: Path, tmp_path: Path) -> None:
        write_run(tmp_path / "elsewhere", is_sick=False)
        state = judged(jobs, load("required", other_trial_0=str(tmp_path / "elsewhere")), [])
        assert state.status is RuleStatus.ERROR
        assert "may not be read" in state.counts.last_reason

    def test_steps_out_of_bounds_are_not_judged(self, jobs: Path) -> None:
        state = judged(jobs, load("documented", start_step="30", end_step="40"), [2, 2])
        assert state.evidence is not None
        assert (state.evidence.step, state.counts.evaluated) == (30, 2)
        assert "steps from 30 to before 40 only" in state.counts.last_reason

    def test_the_rule_itself_is_told_apart(self, tmp_path: Path) -> None:
        run = TrialBuilder(LocalStore(tmp_path / "run"))
        run.step(0, {"loss": [1.0]})
        rule = inline(tmp_path, "def invoke_at_step(self, step):\n    return 1 / 0")
        (outcome,) = run.outcomes(rule)
        assert isinstance(outcome, Failed)
        assert repr(rule) == "<SmdebugRule Mine>"
        assert rule != inline(tmp_path, "def invoke_at_step(self, step):\n    return 1 / 0")
        assert len({rule}) == 1


def test_the_readmes_example_works(tmp_path: Path) -> None:
    readme = (Path(__file__).parents[3] / "rule_runtime" / "README.md").read_text()
    start = readme.index("from smdebug.rules import Rule")
    (tmp_path / "readme.py").write_text(readme[start : readme.index("```", start)])
    rule = load_custom_rule(
        tmp_path / "readme.py", "LossTooHigh", {"bound": "5"}, allowed=[tmp_path]
    )
    run = TrialBuilder(LocalStore(tmp_path / "run"))
    for step in range(6):
        run.step(step, {"CrossEntropyLoss_output_0": np.float32(step % 2 * 9)})
    state = run.evaluate(rule)
    assert state.evidence is not None
    assert (state.evidence.step, state.evidence.count) == (5, 1)
