from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from hook_layer.capture.captured_step import StepRecord
from hook_layer.format.modes import ModeKeys
from hook_layer.testing.written_trial import WrittenTrial
from rule_runtime.configuration.packs import PACKS
from rule_runtime.engine.outcome import IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.engine.parameters import ParameterError
from rule_runtime.engine.registry import create_rule
from rule_runtime.rules.stalled_training_rule import StalledTrainingRule
from rule_runtime.rules.vanishing_gradient import VanishingGradient
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract, SavedStep
from tests.hook_layer.tiny_hook import W, make_hook
from tests.rule_runtime.outcomes import evidence_of
from tests.rule_runtime.rules.xgboost_trials import judged


class TestStalledTrainingRuleContract(RuleContract):
    def make_rule(self) -> StalledTrainingRule:
        return StalledTrainingRule(threshold=60)

    def make_sick_steps(self, worker: int) -> Iterable[SavedStep]:
        """Nothing is saved for a while between two steps."""
        for saved in self.make_steps(worker):
            assert saved.time is not None
            yield saved._replace(time=saved.time + 100 * (saved.step >= 100))


def outcomes(rule: StalledTrainingRule, *times: float | None) -> list[Outcome]:
    trial = TrialBuilder()
    for step, time in enumerate(times):
        trial.step(step, {"loss": 1.0, "weight": 2.0}, time=time)
    return trial.outcomes(rule)


def kinds(outcomes: Iterable[Outcome]) -> str:
    names = {Passed: "P", IssueFound: "!", NotEvaluated: "-"}
    return "".join(names[type(outcome)] for outcome in outcomes)


def test_a_gap_longer_than_the_threshold_fires() -> None:
    rule = StalledTrainingRule()
    found = outcomes(rule, 1000.0, 1010.0, 2810.0, 4610.5, 4620.0)
    assert kinds(found) == "-PP!P"
    assert isinstance(found[3], IssueFound)
    evidence = found[3].evidence
    assert (evidence.step, evidence.tensor, evidence.worker) == (3, "", "worker_0")
    assert (evidence.value, evidence.threshold) == (1800.5, 1800)
    assert evidence.sentence == (
        "nothing was saved for 1800 s after step 2, more than 1800 s; the training continued"
    )


def test_a_stall_that_is_over_may_be_ignored() -> None:
    rule = StalledTrainingRule(check_gaps=False)
    assert kinds(outcomes(rule, 1000.0, 9000.0, 90000.0)) == "-PP"
    assert isinstance(rule.check_silence(1801.0, 2), IssueFound)


def test_the_recommended_pack_stops_no_training_that_went_on() -> None:
    rule = PACKS["recommended"].rules()["StalledTrainingRule"]
    assert isinstance(rule, StalledTrainingRule)
    assert kinds(outcomes(rule, 1000.0, 9000.0)) == "-P"
    assert isinstance(rule.check_silence(1801.0, 2), IssueFound)


def test_steps_without_a_time_are_ignored() -> None:
    assert kinds(outcomes(StalledTrainingRule(), None, 10.0, None, 20.0, 5000.0)) == "---P!"
    (outcome,) = outcomes(StalledTrainingRule(), None)
    assert outcome == NotEvaluated("the files of the step have no time: use the hook of Stepwatch")


def test_a_clock_that_was_set_back_makes_no_gap() -> None:
    assert kinds(outcomes(StalledTrainingRule(), 9000.0, 100.0, 200.0, 9100.0)) == "-PPP"


def test_output_of_any_worker_counts() -> None:
    trial = TrialBuilder(num_workers=2)
    for step in range(4):
        trial.step(step, {"w": 1.0}, worker="worker_0", time=1000.0 * step)
        trial.step(step, {"w": 1.0}, worker="worker_1", time=5000.0 * step)
    assert kinds(trial.outcomes(StalledTrainingRule())) == "-PPP"
    assert kinds(trial.outcomes(StalledTrainingRule(threshold=999))) == "-!!!"


def test_silence_is_judged_by_whoever_has_a_clock() -> None:
    rule = StalledTrainingRule(threshold=60)
    assert rule.check_silence(60.0, 5) == Passed()
    evidence = evidence_of(rule.check_silence(61.0, 5))
    assert evidence.sentence == "nothing was saved for 61 s after step 5, more than 60 s"
    assert "for 61 s since the start" in evidence_of(rule.check_silence(61.0, -1)).sentence


def test_other_rules_say_nothing_of_silence() -> None:
    assert VanishingGradient().check_silence(1e9, 0) is None


def test_on_what_a_hook_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = WrittenTrial(str(tmp_path / "t"))
    clock = {"now": 1000.0}

    def record(step: int, mode: ModeKeys, mode_step: int) -> StepRecord:
        return StepRecord(step, mode, mode_step, wall_time=clock["now"])

    monkeypatch.setattr("hook_layer.core.recorder.StepRecord", record)
    hook = make_hook(trial)
    for pause in (10, 10, 4000, 10):
        hook.train(W)
        clock["now"] += pause
    hook.close()
    state = judged(trial, StalledTrainingRule())
    assert state.evidence is not None
    assert (state.evidence.step, state.evidence.value) == (3, 4000)
    assert state.counts.evaluated == 3


def test_the_original_s_way_to_stop_is_accepted() -> None:
    rule = create_rule(
        "StalledTrainingRule",
        {
            "threshold": "60",
            "stop_training_on_fire": "True",
            "training_job_name_prefix": "mnist",
        },
    )
    assert rule == StalledTrainingRule(
        threshold=60, stop_training_on_fire=True, training_job_name_prefix="mnist"
    )
    with pytest.raises(ParameterError, match="threshold is 0 s"):
        create_rule("StalledTrainingRule", {"threshold": "0"})
