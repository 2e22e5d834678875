"""A contract that no rule could break would prove nothing: each check has a rule that breaks it."""

# ruff: noqa: ARG002 - the arguments are those of the base

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import (
    Evidence,
    IssueFound,
    NotEnough,
    NotEvaluated,
    Outcome,
    Passed,
)
from rule_runtime.engine.rule import Memory, Rule
from rule_runtime.testing.rule_contract import RuleContract, SavedStep, Tensors
from rule_runtime.trial.step_view import StepView

COUNTER = itertools.count()
SEEN: set[int] = set()

Names = list[tuple[str, str]]
CHECKS = sorted(name for name in vars(RuleContract) if name.startswith("test_"))


def finding(step: StepView, tensor: str, worker: str, value: float = 0.0, **other: Any) -> Outcome:
    fields: dict[str, Any] = {
        "step": step.step,
        "mode": step.mode.name,
        "worker": worker,
        "tensor": tensor,
        "measure": "l1",
        "value": value,
        "threshold": 1.0,
        "sentence": f"{tensor}: is zero",
        "remedy": "Try something else.",
    }
    return IssueFound(Evidence(**fields | other))


class Sound(Rule):
    """Finds gradients that are zero throughout; keeps the contract."""

    limit: float = 0.0
    collections = (CollectionConfig("gradients"),)

    def check(self, step: StepView, memory: Memory) -> Outcome:
        rows = step.tensors(collections=("gradients",))
        l1 = rows.column("l1")
        if not len(rows) or np.isnan(l1).all():
            return NotEvaluated("no gradient was saved")
        memory["steps"] = memory.get("steps", 0) + 1
        names = [(rows.names[at], rows.workers[at]) for at in np.flatnonzero(l1 <= self.limit)]
        return self.found(step, sorted(names), memory) if names else Passed()

    def found(self, step: StepView, names: Names, memory: Memory) -> Outcome:
        return finding(step, *names[0])


class FailsOnNaN(Sound):
    def check(self, step: StepView, memory: Memory) -> Outcome:
        if step.tensors(collections=("gradients",)).column("nan").any():
            raise ZeroDivisionError
        return super().check(step, memory)


class FailsOnWholeNumbers(Sound):
    def check(self, step: StepView, memory: Memory) -> Outcome:
        for name in step.tensors(collections=("gradients",)).names:
            assert step.value(name).dtype.kind == "f"
        return super().check(step, memory)


class Alarmist(Sound):
    def check(self, step: StepView, memory: Memory) -> Outcome:
        rows = step.tensors()
        return finding(step, rows.names[0], rows.workers[0])


class Blind(Sound):
    def check(self, step: StepView, memory: Memory) -> Outcome:
        rows = step.tensors(collections=("gradients",))
        return Passed() if len(rows) else NotEvaluated("nothing was saved")


class ComparesWithAnotherLimit(Sound):
    def found(self, step: StepView, names: Names, memory: Memory) -> Outcome:
        return finding(step, *names[0], threshold=float(step.step % 2) - 0.5)


class DislikesConstants(Sound):
    def check(self, step: StepView, memory: Memory) -> Outcome:
        rows = step.tensors()
        constant = [name for name in rows.names if "frozen" in name]
        return finding(step, constant[0], "worker_0") if constant else super().check(step, memory)


class PassesWithoutData(Sound):
    def check(self, step: StepView, memory: Memory) -> Outcome:
        outcome = super().check(step, memory)
        return Passed() if isinstance(outcome, NotEvaluated) else outcome


class ReadsValuesSilently(Sound):
    def check(self, step: StepView, memory: Memory) -> Outcome:
        names = step.tensors(collections=("gradients",)).names
        if not step.values(names, step.workers[0]):
            return NotEvaluated("no value was saved")
        return super().check(step, memory)


class TakesAbsenceForHealth(Sound):
    def check(self, step: StepView, memory: Memory) -> Outcome:
        names = step.tensors(collections=("gradients",)).names
        if names and not step.values(names, step.workers[0]):
            return Passed()
        return super().check(step, memory)


class KnowsOneFormatOnly(Sound):
    def check(self, step: StepView, memory: Memory) -> Outcome:
        if any(file.index.statistics is None for file in step._files.values()):
            return Passed()
        return super().check(step, memory)


class NeedsModes(Sound):
    def check(self, step: StepView, memory: Memory) -> Outcome:
        return super().check(step, memory) if step.mode.name == "TRAIN" else Passed()


class Random(Sound):
    def found(self, step: StepView, names: Names, memory: Memory) -> Outcome:
        return finding(step, *names[0], value=float(next(COUNTER)))


class FiresOnce(Sound):
    def found(self, step: StepView, names: Names, memory: Memory) -> Outcome:
        if step.step in SEEN:
            return Passed()
        SEEN.add(step.step)
        return finding(step, *names[0])


class RemembersElsewhere(Sound):
    def __post_init__(self) -> None:
        object.__setattr__(self, "count", itertools.count())

    def found(self, step: StepView, names: Names, memory: Memory) -> Outcome:
        count = next(self.count)  # type: ignore[attr-defined]
        return finding(step, *names[0]) if count > 2 else Passed()


class TakesTheFirst(Sound):
    def found(self, step: StepView, names: Names, memory: Memory) -> Outcome:
        rows = step.tensors(collections=("gradients",))
        return finding(step, rows.names[0], rows.workers[0])


class LooksAtOneWorker(Sound):
    def found(self, step: StepView, names: Names, memory: Memory) -> Outcome:
        first = [name for name in names if name[1] == "worker_0"]
        return finding(step, *first[0]) if first else Passed()


class KeepsAll(Sound):
    def check(self, step: StepView, memory: Memory) -> Outcome:
        memory.setdefault("all", []).append(step.step)
        return super().check(step, memory)


class KeepsEachTensor(Sound):
    def check(self, step: StepView, memory: Memory) -> Outcome:
        memory["last"] = {name: [0.0] * 100 for name in step.tensors().names}
        return super().check(step, memory)


class NamesNoRemedy(Sound):
    def found(self, step: StepView, names: Names, memory: Memory) -> Outcome:
        return finding(step, *names[0], remedy="")


class NamesAnotherStep(Sound):
    def found(self, step: StepView, names: Names, memory: Memory) -> Outcome:
        other: dict[str, Any] = {"step": step.step - 5, "first_step": 0, "last_step": 0}
        return finding(step, *names[0], **other)


class CountsByItself(Sound):
    def found(self, step: StepView, names: Names, memory: Memory) -> Outcome:
        return finding(step, *names[0], first_step=max(step.step - 5, 0), count=7)


class TakesAnything(Sound):
    def __post_init__(self) -> None:
        pass  # neither coerced nor checked


class Patient(Sound):
    def found(self, step: StepView, names: Names, memory: Memory) -> Outcome:
        return super().found(step, names, memory) if memory["steps"] >= 3 else Passed()


class KeepsItsNeedsSecret(Sound):
    def check(self, step: StepView, memory: Memory) -> Outcome:
        outcome = super().check(step, memory)
        if isinstance(outcome, Passed) and memory["steps"] < 3:
            raise NotEnough(3, "saved step", memory["steps"])
        return outcome


BROKEN = [
    ("test_is_quiet_on_a_healthy_run", Alarmist),
    ("test_finds_a_sick_run", Blind),
    ("test_frozen_parameters_are_no_issue", DislikesConstants),
    ("test_takes_tensors_that_are_not_finite", FailsOnNaN),
    ("test_takes_tensors_of_every_kind", FailsOnWholeNumbers),
    ("test_empty_tensors_and_strings_are_no_issue", Alarmist),
    ("test_missing_tensors_are_not_evaluated", PassesWithoutData),
    ("test_runs_without_values_get_the_same_verdict_or_a_reason", ReadsValuesSilently),
    ("test_runs_without_values_get_the_same_verdict_or_a_reason", TakesAbsenceForHealth),
    ("test_files_of_the_original_client_get_the_same_verdict_or_a_reason", KnowsOneFormatOnly),
    ("test_runs_without_modes_get_the_same_verdict", NeedsModes),
    ("test_is_deterministic", Random),
    ("test_a_run_that_is_too_short_is_not_evaluated", KeepsItsNeedsSecret),
    ("test_no_decision_comes_before_an_issue_could_be_found", Patient),
    ("test_step_by_step_equals_one_pass", RemembersElsewhere),
    ("test_any_split_into_calls_gives_the_same_outcomes", RemembersElsewhere),
    ("test_order_of_tensors_does_not_matter", TakesTheFirst),
    ("test_order_of_workers_does_not_matter", LooksAtOneWorker),
    ("test_evidence_names_what_was_found", NamesNoRemedy),
    ("test_evidence_names_what_was_found", NamesAnotherStep),
    ("test_evidence_counts_the_findings", CountsByItself),
    ("test_values_are_beyond_their_threshold", ComparesWithAnotherLimit),
    ("test_a_verdict_never_turns_back", FiresOnce),
    ("test_memory_does_not_grow", KeepsAll),
    ("test_memory_is_bounded_however_many_tensors_there_are", KeepsEachTensor),
    ("test_takes_parameters_as_strings", TakesAnything),
]


def run(rule: type[Rule], check: str) -> None:
    class Contract(RuleContract):
        def make_rule(self) -> Rule:
            return rule()

    getattr(Contract(), check)()


def test_each_check_has_a_rule_that_breaks_it() -> None:
    assert sorted({check for check, _ in BROKEN}) == CHECKS


@pytest.mark.parametrize("check", CHECKS)
def test_a_sound_rule_keeps_the_contract(check: str) -> None:
    run(Sound, check)


@pytest.mark.parametrize(("check", "rule"), BROKEN)
def test_a_broken_rule_is_found(check: str, rule: type[Rule]) -> None:
    with pytest.raises(AssertionError):
        run(rule, check)


def test_says_so_without_hypothesis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "rule_runtime.testing.rule_splits", raising=False)
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    with pytest.raises(ImportError, match="pip install hypothesis"):
        run(Sound, "test_any_split_into_calls_gives_the_same_outcomes")


def test_the_tests_of_a_contract_share_the_runs_that_it_builds() -> None:
    built = []

    class Counted(RuleContract):
        def make_rule(self) -> Rule:
            return Sound()

        def make_steps(self, worker: int) -> Iterable[SavedStep]:
            built.append(worker)
            return super().make_steps(worker)

    for contract in (Counted(), Counted()):
        contract.test_is_quiet_on_a_healthy_run()
        contract.test_no_decision_comes_before_an_issue_could_be_found()
        assert len(built) == 5  # healthy by one and two workers, sick by two


def test_each_parameter_of_a_fixture_has_runs_of_its_own() -> None:
    class Parametrized(RuleContract):
        is_sick = False

        def make_rule(self) -> Rule:
            return Sound()

        def make_tensors(self, step: int, worker: int) -> Tensors:
            tensors = super().make_tensors(step, worker)
            return self.make_sick(dict(tensors)) if self.is_sick else tensors

    Parametrized().test_is_quiet_on_a_healthy_run()
    contract = Parametrized()
    contract.is_sick = True  # as a fixture with a parameter does
    with pytest.raises(AssertionError, match="finds an issue"):
        contract.test_is_quiet_on_a_healthy_run()


def test_what_is_left_to_the_author_is_reported() -> None:
    class Forgotten(RuleContract):
        pass

    with pytest.raises(NotImplementedError, match=r"^Forgotten must override make_rule\(self\)"):
        Forgotten().test_is_deterministic()
