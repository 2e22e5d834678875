"""What is told of rules of the original's style that fail, or that cannot judge a step."""

from __future__ import annotations

from pathlib import Path

import pytest

from hook_layer.storage.local import LocalStore
from rule_runtime.engine.outcome import (
    Failed,
    IssueFound,
    NotEvaluated,
    RuleStatus,
)
from rule_runtime.testing.trial_builder import TrialBuilder
from tests.rule_runtime.custom_rules.smdebug_runs import (
    inline,
    judged,
    load,
    write_run,
)


class TestErrors:
    def test_the_line_of_the_file_is_reported(self, jobs: Path, tmp_path: Path) -> None:
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
        ("body", "reported"),
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
        self, jobs: Path, tmp_path: Path, body: str, reported: str
    ) -> None:
        rule = inline(tmp_path, f"{body}\ndef invoke_at_step(self, step):\n    return True")
        assert reported in judged(jobs, rule, []).counts.failure

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
        assert "only steps from 30 to before 40" in state.counts.last_reason

    def test_the_rule_itself_is_told_apart(self, tmp_path: Path) -> None:
        run = TrialBuilder(LocalStore(tmp_path / "run"))
        run.step(0, {"loss": [1.0]})
        rule = inline(tmp_path, "def invoke_at_step(self, step):\n    return 1 / 0")
        (outcome,) = run.outcomes(rule)
        assert isinstance(outcome, Failed)
        assert repr(rule) == "<SmdebugRule Mine>"
        assert rule != inline(tmp_path, "def invoke_at_step(self, step):\n    return 1 / 0")
        assert len({rule}) == 1
