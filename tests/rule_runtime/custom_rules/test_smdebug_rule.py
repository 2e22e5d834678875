"""`Rule`, `invoke_rule`, required tensors and actions over trials that scripts open."""

from __future__ import annotations

import inspect
import json
from typing import Any

import numpy as np
import pytest

from rule_runtime.custom_rules.errors import NoMoreProfilerData, RuleEvaluationConditionMet
from rule_runtime.custom_rules.required_tensors import RequiredTensors, RequiredTensorsForTrial
from rule_runtime.custom_rules.rule_actions import Actions
from rule_runtime.custom_rules.smdebug_rule import Rule, invoke_rule
from rule_runtime.testing.trial_builder import TrialBuilder
from rule_runtime.trial.errors import (
    NoMoreData,
    StepUnavailable,
    TensorUnavailable,
    TensorUnavailableForStep,
)
from rule_runtime.trial.trial import Trial


def trial_of(num_steps: int = 6, *, ended: bool = True, name: str = "run") -> Trial:
    """A trial with `loss` at every second step from 0 and `w` at those that divide by four."""
    run = TrialBuilder()
    for step in range(0, num_steps, 2):
        tensors = {"loss": [float(step)], **({"w": [1.0]} if step % 4 == 0 else {})}
        run.step(step, tensors, mode_step=step)
    if ended:
        run.end()
    return Trial(run.store, name=name, sleep=_never)


def _never(_: float) -> None:
    raise AssertionError("waited")


class Above(Rule):
    def __init__(self, base_trial: Trial, bound: float = 3, **more: Any) -> None:
        super().__init__(base_trial, **more)
        self.bound = bound
        self.judged: list[int] = []

    def set_required_tensors(self, step: int) -> None:
        self.req_tensors.add("loss", steps=[step])

    def invoke_at_step(self, step: int) -> bool:
        self.judged.append(step)
        return any(tensor.value(step)[0] > self.bound for tensor in self.req_tensors.get())


def test_the_signatures_are_the_originals_with_a_default_for_the_action() -> None:
    assert [*inspect.signature(Rule).parameters] == ["base_trial", "action_str", "other_trials"]
    assert inspect.signature(Rule).parameters["action_str"].default == ""
    assert [*inspect.signature(invoke_rule).parameters] == [
        *("rule_obj", "start_step", "end_step", "raise_eval_cond")
    ]
    assert [*inspect.signature(RequiredTensors.add).parameters][1:] == [
        *("name", "steps", "trial", "should_match_regex")
    ]


def test_a_rule_is_invoked_at_every_step_until_the_data_ends() -> None:
    rule = Above(trial_of())
    with pytest.raises(NoMoreData):
        invoke_rule(rule)
    assert rule.judged == [0, 2, 4]


def test_bounds_and_the_first_finding() -> None:
    rule = Above(trial_of())
    invoke_rule(rule, start_step=1, end_step=4)
    assert rule.judged == [2]
    with pytest.raises(RuleEvaluationConditionMet) as found:
        invoke_rule(rule, raise_eval_cond=True)
    assert (found.value.rule_name, found.value.step) == ("Above", 4)
    assert str(found.value) == (
        "Evaluation of the rule Above at step 4 resulted in the condition being met"
    )


def test_a_rule_may_end_itself() -> None:
    class Ends(Above):
        error: Exception

        def invoke_at_step(self, step: int) -> bool:
            super().invoke_at_step(step)
            if step == 2:
                raise self.error
            return False

    for error in (RuleEvaluationConditionMet("Ends", 2, end_of_rule=True), NoMoreProfilerData(7)):
        rule = Ends(trial_of())
        rule.error = error
        invoke_rule(rule, start_step=None)
        assert rule.judged == [0, 2]


def test_steps_that_lack_something_are_passed_over() -> None:
    class NeedsW(Above):
        def set_required_tensors(self, step: int) -> None:
            self.req_tensors.add("w", [step])

    rule = NeedsW(trial_of())
    with pytest.raises(NoMoreData):
        invoke_rule(rule)
    assert rule.judged == [0, 4]
    with pytest.raises(StepUnavailable):
        rule.invoke(1)


def test_no_file_is_looked_for_while_a_step_is_judged() -> None:
    trial = trial_of(ended=False)
    seen = []

    class Looks(Above):
        def invoke_at_step(self, step: int) -> bool:
            seen.append([step, *(one.dynamic_refresh for one in self.trials)])
            return False

    Looks(trial, other_trials=[trial_of()]).invoke(2)
    assert seen == [[2, False, False]]
    assert trial.dynamic_refresh


class TestRequiredTensors:
    def test_names_and_steps_add_up(self) -> None:
        required = RequiredTensorsForTrial(trial_of())
        steps = [0]
        required.add("loss", steps)
        required.add(name="^[lw]", steps=(2, 0), should_match_regex=True)
        required.add("none", [0], should_match_regex=True)
        assert steps == [0], "the caller's list stays the caller's"
        assert list(required.get_names()) == ["loss", "w"]
        assert required.get_tensor_steps("loss") == [0, 2]
        assert required.get_tensor_steps("w") == [2, 0]
        assert [tensor.name for tensor in required.get()] == ["loss", "w"]
        with pytest.raises(TensorUnavailable, match="Tensor none was not saved"):
            required.add("none", [0])
        required.clear()
        assert not required.get_names()
        assert not required.get()

    def test_fetching_sees_that_they_are_there(self) -> None:
        required = RequiredTensorsForTrial(trial_of())
        required.add("w", [0, 4])
        required.fetch()
        required.add("w", [2])
        with pytest.raises(TensorUnavailableForStep, match="tensor w is not available for step 2"):
            required.fetch()
        required.clear()
        required.add("w", [1])
        with pytest.raises(StepUnavailable):
            required.fetch()

    def test_each_trial_has_its_own(self) -> None:
        base, other = trial_of(), trial_of(name="other")
        required = RequiredTensors(base, [other])
        required.add("loss", [0])
        required.add("w", [4], trial=other)
        assert list(required.get_names()) == ["loss"]
        assert list(required.get_names(trial=other)) == ["w"]
        assert required.get_tensor_steps("w", trial=other) == [4]
        assert [tensor.trial for tensor in required.get(trial=other)] == [other]
        required.fetch()
        required.clear()
        assert not required.get_names(trial=other)
        with pytest.raises(ValueError, match="is no trial of this rule"):
            required.add("loss", [0], trial=trial_of(name="third"))


class TestActions:
    BOTH = json.dumps(
        [
            {"name": "StopTraining", "training_job_prefix": "My-Job"},
            {"name": "email", "endpoint": "A@b.com"},
        ]
    )

    def test_they_are_remembered_and_not_carried_out(self) -> None:
        rule = Above(trial_of(), action_str=self.BOTH)
        with pytest.raises(NoMoreData):
            invoke_rule(rule)
        stop, message = rule._actions.actions
        assert (stop.training_job_prefix, stop.messages) == ("My-Job", [""])
        assert (message.message_endpoint, message.messages) == ("A@b.com", [""])

    def test_they_may_be_escaped_as_a_client_serialises_them(self) -> None:
        escaped = self.BOTH.replace('"', '\\"')
        assert len(Actions(escaped, "R").actions) == 2

    @pytest.mark.parametrize(
        "text",
        [
            None,
            " ",
            "3",
            "[7]",
            '{"name": "fax"}',
            '{"name": "sms"}',
            '{"name": "stoptraining"}',
            '{"name": "email", "endpoint": 3}',
        ],
    )
    def test_what_is_no_action_is_left_out(self, text: str | None) -> None:
        assert Actions(text, rule_name="R").actions == []

    def test_what_is_no_json_is_reported(self) -> None:
        with pytest.raises(ValueError, match="rule Above: the actions 'stop!' are not JSON"):
            Above(trial_of(), action_str="stop!")


def test_what_a_rule_finds_ready() -> None:
    base, other = trial_of(), trial_of()
    rule = Above(base, other_trials=(other,))
    assert (rule.base_trial, rule.other_trials, rule.trials) == (base, [other], [base, other])
    assert rule.rule_name == "Above"
    assert rule.report == {
        "RuleTriggered": 0,
        "Violations": 0,
        "Details": {},
        "Datapoints": 0,
        "RuleParameters": "",
    }
    assert rule.logger.name == "stepwatch"
    with pytest.raises(TypeError, match="abstract"):
        Rule(base)  # type: ignore[abstract]
    assert np.isfinite(base.tensor("loss").value(0)).all()
