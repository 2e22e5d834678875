"""The contract of every rule, as a test suite.

```python
class TestMyRuleContract(RuleContract):
    def make_rule(self) -> Rule:
        return MyRule(threshold=2.0)
```

The suite tests the rule on a healthy run and on a sick one. If `healthy_tensors` lacks the rule's
tensors, override `make_tensors`. If the rule does not detect `sick_tensors`, override `make_sick`.
By default, gradients of a sick run are zero, its loss is constant, and its weights have a NaN and
are a million times larger. For rules that need more than the tensors of training steps, override
`make_steps` and `make_sick_steps`. See `RuleUnderTest` for the rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.outcome import IssueFound, NotEvaluated, Outcome, Passed, RuleStatus
from rule_runtime.engine.parameters import ParameterError
from rule_runtime.engine.rule import Rule
from rule_runtime.testing.rule_evaluations import (
    as_text,
    assert_same_or_a_reason,
    assert_same_verdict,
    checked,
    has_finding,
    memory_sizes,
    num_undecided,
    states_file_by_file,
)
from rule_runtime.testing.rule_runs import (
    RunOfWorker,
    SavedStep,
    Tensors,
    backwards,
    filled,
    healthy_tensors,
    long_run,
    many_tensors,
    replaced,
    swapped,
)
from rule_runtime.testing.rule_under_test import RuleUnderTest
from rule_runtime.testing.trial_builder import TrialBuilder

__all__ = ["MAX_MEMORY_BYTES", "RuleContract", "SavedStep", "Tensors", "healthy_tensors"]

MAX_MEMORY_BYTES: Final = 256 << 10
"""Maximum size of a rule's memory as JSON for any number of tensors; a checkpoint must hold it."""

_MANY_TENSORS: Final = 2000
_ROUNDS: Final = 5
_NEEDS_AND_HAD: Final = re.compile(r"^needs (\d+) [^,]+, had (\d+)")
_HEALTHY: Final = "make_steps"
_SICK: Final = "make_sick_steps"
_BUILT: Final[dict[type, dict[tuple[str, int], TrialBuilder]]] = {}
"""The runs of the latest contract, by steps and number of workers."""
_NOTHING: Final = {"nothing_that_a_rule_looks_for": np.zeros(3, dtype="U1")}


class RuleContract(RuleUnderTest):
    """Tests that hold for every rule; subclass it and return the rule from `make_rule`."""

    # ------------------------------------------------------------------------------- findings

    def test_is_quiet_on_a_healthy_run(self) -> None:
        """A healthy run is evaluated without an issue."""
        for num_workers in (1, 2):
            outcomes = self._outcomes(self._trial(_HEALTHY, num_workers))
            found = [outcome for outcome in outcomes if isinstance(outcome, IssueFound)]
            assert not found, (
                f"override make_tensors, the rule finds an issue in its run: {found[0]}"
            )
            is_judged = any(isinstance(outcome, Passed) for outcome in outcomes)
            assert is_judged or num_workers < self.least_workers, (
                "override make_tensors, or make_steps for other modes: the rule evaluates no step "
                f"of their run: {outcomes[-1]}"
            )

    def test_finds_a_sick_run(self) -> None:
        """A sick run has an issue; otherwise the other tests would prove nothing."""
        outcomes = self._outcomes(self._trial(_SICK))
        assert any(isinstance(outcome, IssueFound) for outcome in outcomes), (
            "override make_sick, or make_sick_steps for a fault of some steps: the rule finds no "
            f"issue in their run: {outcomes[-1]}"
        )

    def test_frozen_parameters_are_no_issue(self) -> None:
        """Constant weights without a gradient do not change the verdict."""

        def run_of(worker: int) -> Iterable[SavedStep]:
            for saved in self.make_steps(worker):
                yield saved._replace(tensors={**saved.tensors, **self.make_frozen()})

        outcomes = self._outcomes(self.build(run_of))
        found = [outcome for outcome in outcomes if isinstance(outcome, IssueFound)]
        assert not found, (
            "ignore weights without a gradient, or return {} from make_frozen if constant tensors "
            f"are the fault: {found[0]}"
        )

    # --------------------------------------------------------------------- unusual files

    def test_takes_tensors_that_are_not_finite(self) -> None:
        """NaN and infinite tensors give an outcome, never an error."""
        for value in (np.nan, np.inf, -np.inf):
            self._outcomes(self.build(self._changed(partial(filled, value)), num_workers=2))

    def test_takes_tensors_of_every_kind(self) -> None:
        """Scalars, integers and booleans give an outcome, never an error."""
        for value in (np.float32(0.5), np.int64(3), np.True_, np.array([2**40, -1]), [[0j]]):
            self._outcomes(self.build(self._changed(partial(replaced, value))))

    def test_empty_tensors_and_strings_are_no_issue(self) -> None:
        """Empty tensors and strings are no issue."""
        for value in (np.empty(0), np.empty((0, 3), dtype=np.float32), np.array(["a", "b"])):
            outcomes = self._outcomes(self.build(self._changed(partial(replaced, value))))
            assert not [outcome for outcome in outcomes if isinstance(outcome, IssueFound)]

    def test_missing_tensors_are_not_evaluated(self) -> None:
        """A step without the rule's tensors is not evaluated, with a reason."""
        run = TrialBuilder()
        run.step(0, _NOTHING)
        (outcome,) = self._outcomes(run)
        assert isinstance(outcome, NotEvaluated)
        assert outcome.reason

    def test_runs_without_values_get_the_same_verdict_or_a_reason(self) -> None:
        """Statistics without values give the same verdict; a rule that needs values reports it."""
        for steps in (_HEALTHY, _SICK):
            whole = self._outcomes(self._trial(steps))
            less = self.build(getattr(self, steps), num_workers=2, save_values=False)
            without = self._outcomes(less)
            if assert_same_or_a_reason(whole, without):
                asked = [config.parameters for config in self.make_rule().requires()]
                saves = [parameters.get("save_raw_tensor", "") for parameters in asked]
                assert "true" in [text.lower() for text in saves], "requires() must ask for values"

    def test_files_of_the_original_client_get_the_same_verdict_or_a_reason(self) -> None:
        """Files without statistics give the same verdict."""
        for steps in (_HEALTHY, _SICK):
            theirs = self._outcomes(self.build(getattr(self, steps), run=None))
            assert_same_or_a_reason(self._outcomes(self._trial(steps, 1)), theirs)

    def test_runs_without_modes_get_the_same_verdict(self) -> None:
        """Without modes, every step counts as a training step; rules about modes are exempt."""

        def without_modes(run_of: RunOfWorker, worker: int) -> Iterable[SavedStep]:
            return (saved._replace(mode=ModeKeys.GLOBAL) for saved in run_of(worker))

        if {saved.mode for saved in self.make_steps(0)} != {ModeKeys.TRAIN}:
            return
        for steps in (_HEALTHY, _SICK):
            without = self.build(partial(without_modes, getattr(self, steps)), num_workers=2)
            outcomes = map(self._outcomes, (self._trial(steps), without))
            for one, other in zip(*outcomes, strict=True):
                assert type(one) is type(other), (one, other)

    # --------------------------------------------------------------------- ways of evaluation

    def test_is_deterministic(self) -> None:
        """Two evaluations of the same run end in the same state."""
        run = self._trial(_SICK)
        assert as_text(run.evaluate(self.make_rule())) == as_text(run.evaluate(self.make_rule()))

    def test_step_by_step_equals_one_pass(self) -> None:
        """Evaluation file by file, with the state as JSON in between, equals one pass."""
        for steps in (_HEALTHY, _SICK):
            run = self._trial(steps)
            *_, state = states_file_by_file(run, self.make_rule)
            whole = run.evaluate(self.make_rule())
            one, other = as_text(state), as_text(replace(whole, progress=state.progress))
            assert one == other

    def test_any_split_into_calls_gives_the_same_outcomes(self) -> None:
        """The order of steps and their split into calls do not change the outcomes.

        Healthy, sick and broken parts of a run are joined and evaluated in one call, and in several
        calls with the state as JSON in between.

        Raises:
            ImportError: If hypothesis is not installed.
        """
        try:
            from rule_runtime.testing.rule_splits import check_any_split  # noqa: PLC0415
        except ImportError as error:
            raise ImportError(
                "the contract of rules splits runs by hypothesis: pip install hypothesis"
            ) from error
        runs = {
            "healthy": self._trial(_HEALTHY),
            "sick": self._trial(_SICK),
            "not finite": self.build(self._changed(partial(filled, np.nan)), num_workers=2),
            "without its tensors": self.build(self._changed(lambda _: _NOTHING), num_workers=2),
        }
        check_any_split(runs, self.make_rule)

    def test_order_of_tensors_does_not_matter(self) -> None:
        """The saved order of tensors does not change the verdict."""
        for steps in (_HEALTHY, _SICK):
            one = self._trial(steps).evaluate(self.make_rule())
            other = self.build(backwards(getattr(self, steps)), num_workers=2)
            assert_same_verdict(one, other.evaluate(self.make_rule()))

    def test_order_of_workers_does_not_matter(self) -> None:
        """Swapping two workers changes only their names in the verdict."""

        def lopsided(worker: int) -> Iterable[SavedStep]:
            return self.make_sick_steps(worker) if worker else self.make_steps(worker)

        runs: list[tuple[TrialBuilder, RunOfWorker]] = [
            (self._trial(_HEALTHY), self.make_steps),
            (self._trial(_SICK), self.make_sick_steps),
            (self.build(lopsided, num_workers=2), lopsided),
        ]
        for run, run_of in runs:
            other = self.build(swapped(run_of), num_workers=2).evaluate(self.make_rule())
            assert_same_verdict(run.evaluate(self.make_rule()), other, any_worker=True)

    # --------------------------------------------------------------------------- three answers

    def test_a_run_that_is_too_short_is_not_evaluated(self) -> None:
        """Right before the first decision, the rule says what it needs and what it had."""
        views = self._trial(_HEALTHY).views()
        number = num_undecided(views, self.make_rule())

        def cut(worker: int) -> Iterable[SavedStep]:
            return (saved for saved in self.make_steps(worker) if saved.step < views[number].step)

        if number:
            state = self.build(cut, num_workers=2).evaluate(self.make_rule())
            assert (state.status, state.counts.evaluated) == (RuleStatus.ERROR, 0)
            if state.needs_more:
                needed, had = (int(part) for part in _NEEDS_AND_HAD.findall(state.reason)[0])
                assert had < needed
                assert str(self.make_rule().needs()), "needs() must declare what the rule needs"

    def test_no_decision_comes_before_an_issue_could_be_found(self) -> None:
        """Some steps of the sick run have an issue, as many as a healthy run has to a decision."""
        num_steps = 1 + num_undecided(self._trial(_HEALTHY).views(), self.make_rule())
        views = self._trial(_SICK).views()
        stretches = (views[at : at + num_steps] for at in range(len(views)))
        assert any(has_finding(each, self.make_rule()) for each in stretches), (
            f"needs() must declare more: no issue can be found in {num_steps} steps"
        )

    # ------------------------------------------------------------------------------ outcomes

    def test_evidence_names_what_was_found(self) -> None:
        """A finding names tensor, worker, mode, step and remedy."""
        run = self._trial(_SICK)
        for view, outcome in zip(run.views(), self._outcomes(run), strict=True):
            if isinstance(outcome, IssueFound):
                evidence = outcome.evidence
                assert evidence.sentence
                assert evidence.sentence.startswith(evidence.tensor)
                assert "\n" not in evidence.sentence
                assert evidence.worker in view.workers
                assert (evidence.step, evidence.mode) == (view.step, view.mode.name)
                assert evidence.measure
                assert evidence.remedy

    def test_values_are_beyond_their_threshold(self) -> None:
        """All values of a measure lie on the same side of the threshold that they exceed."""
        outcomes = self._outcomes(self._trial(_SICK))
        found = [each.evidence for each in outcomes if isinstance(each, IssueFound)]
        unequal = [each for each in found if each.value != each.threshold]
        sides = {(each.measure, each.value > each.threshold) for each in unequal}
        assert len(sides) == len({measure for measure, _ in sides}), sides

    def test_evidence_counts_the_findings(self) -> None:
        """The verdict has the first and last step with a finding, and their number."""
        run = self._trial(_SICK)
        found = [
            outcome.evidence.step
            for outcome in self._outcomes(run)
            if isinstance(outcome, IssueFound)
        ]
        evidence = run.evaluate(self.make_rule()).evidence
        assert evidence is not None
        assert (evidence.step, evidence.first_step) == (found[0], found[0])
        assert (evidence.last_step, evidence.count) == (found[-1], len(found))

    def test_a_verdict_never_turns_back(self) -> None:
        """After a finding, the status and the first finding stay."""
        first = self._trial(_SICK).evaluate(self.make_rule()).evidence
        assert first is not None

        def run_of(worker: int) -> Iterable[SavedStep]:
            yield from (s for s in self.make_sick_steps(worker) if s.step <= first.step)
            yield from (s for s in self.make_steps(worker) if s.step > first.step)

        states = states_file_by_file(self.build(run_of, num_workers=2), self.make_rule)
        found = [state for state in states if state.evidence is not None]
        assert found
        assert found == [state for state in states if state.status is RuleStatus.ISSUES_FOUND]
        assert found == states[len(states) - len(found) :]
        told = {(state.evidence.step, state.evidence.sentence) for state in found if state.evidence}
        assert told == {(first.step, first.sentence)}

    # ------------------------------------------------------------------------ memory

    def test_memory_does_not_grow(self) -> None:
        """The memory does not grow in the second half of a long run."""
        runs = (self._trial(_HEALTHY, 1), self._trial(_SICK, 1))
        sizes = memory_sizes(long_run(runs, rounds=_ROUNDS), self.make_rule())
        half = len(sizes) // 2
        assert max(sizes[half:]) <= 1.2 * max(sizes[:half]) + 64

    def test_memory_is_bounded_however_many_tensors_there_are(self) -> None:
        """The memory of a run with 2,000 tensors per step fits into a checkpoint."""
        for steps in (_HEALTHY, _SICK):
            views = many_tensors(self._trial(steps, 1), total=_MANY_TENSORS)
            assert max(memory_sizes(views, self.make_rule())) <= MAX_MEMORY_BYTES

    def test_takes_parameters_as_strings(self) -> None:
        """Parameters as strings give the same rule, and invalid ones are refused."""
        rule = self.make_rule()
        parameters = type(rule).parameters()
        texts = {p.name: _as_string(getattr(rule, p.name)) for p in parameters}
        assert type(rule)(**texts) == rule
        for parameter in parameters:
            if parameter.type in (int, float, bool):
                assert _is_refused(type(rule), {**texts, parameter.name: "neither"})

    def _trial(self, steps: str, num_workers: int = 2) -> TrialBuilder:
        """Return the trial of the healthy or sick run, which all tests share and only read."""
        if type(self) not in _BUILT:
            _BUILT.clear()
        # What a fixture has set on the contract may differ between its tests.
        built = {} if vars(self) else _BUILT.setdefault(type(self), {})
        key = steps, num_workers
        if key not in built:
            built[key] = self.build(getattr(self, steps), num_workers=num_workers)
        return built[key]

    def _outcomes(self, run: TrialBuilder) -> Sequence[Outcome]:
        return checked(run.outcomes(self.make_rule()))

    def _changed(self, change: Callable[[dict[str, Any]], Tensors]) -> RunOfWorker:
        """Return the healthy run with modified tensors at each step."""

        def run_of(worker: int) -> Iterable[SavedStep]:
            for saved in self.make_steps(worker):
                yield saved._replace(tensors=change(dict(saved.tensors)))

        return run_of


def _as_string(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _is_refused(cls: type[Rule], parameters: dict[str, str]) -> bool:
    try:
        cls(**parameters)
    except ParameterError:
        return True
    return False
