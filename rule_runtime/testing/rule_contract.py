"""The contract that every rule keeps, as a suite of tests.

```python
class TestMyRule(RuleContract):
    def make_rule(self) -> Rule:
        return MyRule(threshold=2.0)
```
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from hook_layer.format.modes import ModeKeys
from rule_runtime.evaluation.evaluator import Evaluation
from rule_runtime.evaluation.outcome import IssueFound, NotEvaluated
from rule_runtime.evaluation.reconciler import Reconciler
from rule_runtime.evaluation.rule import Rule
from rule_runtime.evaluation.state import EvaluationState
from rule_runtime.testing.trial_builder import TrialBuilder
from rule_runtime.trial.step_index import load_step_files

__all__ = ["RuleContract", "healthy_tensors"]

_NUM_STEPS = 40
_INTERVAL = 5

Tensors = Mapping[str, Any]


def healthy_tensors(step: int, worker: int = 0) -> dict[str, Any]:
    """Return what a small network that learns well saves at a step.

    Args:
        step: Global step.
        worker: Number of the worker, whose batches differ.
    """
    rng = np.random.default_rng(1000 * worker + step)
    layers = ("conv1", "conv2", "fc")
    weights = {f"Net_{layer}.weight": rng.normal(0, 0.1, (8, 4)) for layer in layers}
    gradients = {
        f"gradient/Net_{layer}.{kind}": rng.normal(0, 1e-2, (8, 4)).astype(np.float32)
        for layer in layers
        for kind in ("weight", "bias")
    }
    loss = 2.3 * 0.98**step * rng.uniform(0.999, 1.001)
    return {**weights, **gradients, "CrossEntropyLoss_output_0": np.float32(loss)}


class RuleContract:
    """Tests that hold for every rule; subclass it and return the rule from `make_rule`."""

    def make_rule(self) -> Rule:
        """Return the rule, with parameters that a healthy run does not violate."""
        raise NotImplementedError

    def make_tensors(self, step: int, worker: int) -> Tensors:
        """Return what a healthy run saves at a step, all that the rule needs included.

        Args:
            step: Global step.
            worker: Number of the worker.
        """
        return healthy_tensors(step, worker)

    def build(
        self,
        change: Callable[[dict[str, Any]], Tensors] | None = None,
        *,
        num_workers: int = 1,
    ) -> TrialBuilder:
        """Return a run of two modes whose tensors were changed.

        Args:
            change: What to do to the tensors of each step.
            num_workers: How many workers write.
        """
        builder = TrialBuilder(num_workers=num_workers)
        for step in range(0, _NUM_STEPS * _INTERVAL, _INTERVAL):
            for worker in range(num_workers):
                builder.step(
                    step,
                    (change or _unchanged)(dict(self.make_tensors(step, worker))),
                    mode=ModeKeys.TRAIN,
                    mode_step=step,
                    worker=f"worker_{worker}",
                )
        return builder

    def test_is_quiet_on_a_healthy_run(self) -> None:
        """A run that learns well is judged, and no issue is found in it."""
        for num_workers in (1, 2):
            outcomes = self.build(num_workers=num_workers).outcomes(self.make_rule())
            assert not [outcome for outcome in outcomes if isinstance(outcome, IssueFound)]
            assert any(not isinstance(outcome, NotEvaluated) for outcome in outcomes)

    def test_takes_tensors_that_are_not_finite(self) -> None:
        """NaN, infinite and empty tensors lead to an outcome, never to an error."""
        for value in (np.nan, np.inf, -np.inf):
            self._assert_no_error(self.build(partial(_filled, value)))
        self._assert_no_error(self.build(lambda t: {n: np.empty(0) for n in t}))

    def test_is_deterministic(self) -> None:
        """Two evaluations of the same run end in the same state."""
        run = self.build(_sick, num_workers=2)
        assert run.evaluate(self.make_rule()) == run.evaluate(self.make_rule())

    def test_step_by_step_equals_one_pass(self) -> None:
        """Evaluating file by file, with the state as JSON in between, equals one pass."""
        for change in (_unchanged, _sick):
            run = self.build(change, num_workers=2)
            state = EvaluationState.initial()
            for key in run.keys:
                files = load_step_files(run.store, [key])
                state = Reconciler(run.store, self.make_rule(), run.run).advance(state, files)
                state = EvaluationState.from_json(json.loads(json.dumps(state.to_json())))
            reconciler = Reconciler(run.store, self.make_rule(), run.run)
            state = reconciler.advance(state, (), ended=True)
            whole = run.evaluate(self.make_rule())
            assert state.memory == whole.memory
            assert (state.status, state.evidence, state.counts) == (
                whole.status,
                whole.evidence,
                whole.counts,
            )

    def test_order_of_tensors_does_not_matter(self) -> None:
        """The order in which tensors were saved changes nothing in the verdict."""
        for change in (_unchanged, _sick):
            run = self.build(change)
            reversed_run = self.build(partial(_reversed, change))
            one, other = run.evaluate(self.make_rule()), reversed_run.evaluate(self.make_rule())
            assert (one.status, one.evidence) == (other.status, other.evidence)

    def test_missing_tensors_are_not_evaluated(self) -> None:
        """A step without the rule's tensors is not evaluated, and says why."""
        run = TrialBuilder()
        run.step(0, {"nothing_that_a_rule_looks_for": np.zeros(3, dtype="U1")})
        (outcome,) = run.outcomes(self.make_rule())
        assert isinstance(outcome, NotEvaluated)
        assert outcome.reason

    def test_memory_does_not_grow(self) -> None:
        """The memory after the second half of a run is not larger than after the first."""
        views = self.build().views()
        evaluation = Evaluation.fresh(self.make_rule())
        sizes = []
        for view in views:
            evaluation.feed(view)
            sizes.append(len(json.dumps(evaluation.memory)))
        half = len(sizes) // 2
        assert max(sizes[half:]) <= 1.2 * max(sizes[:half]) + 64

    def test_evidence_names_what_was_found(self) -> None:
        """A finding names tensor, worker and values, and what to try."""
        for outcome in self.build(_sick, num_workers=2).outcomes(self.make_rule()):
            if isinstance(outcome, IssueFound):
                evidence = outcome.evidence
                assert evidence.sentence.startswith(evidence.tensor)
                assert evidence.worker.startswith("worker_")
                assert evidence.remedy

    def _assert_no_error(self, run: TrialBuilder) -> None:
        for outcome in run.outcomes(self.make_rule()):
            assert not (isinstance(outcome, NotEvaluated) and "failed with" in outcome.reason), (
                outcome
            )


def _unchanged(tensors: dict[str, Any]) -> Tensors:
    return tensors


def _filled(value: float, tensors: dict[str, Any]) -> Tensors:
    return {name: np.full(np.shape(tensor), value) for name, tensor in tensors.items()}


def _reversed(change: Callable[[dict[str, Any]], Tensors], tensors: dict[str, Any]) -> Tensors:
    return dict(reversed(list(change(tensors).items())))


def _sick(tensors: dict[str, Any]) -> Tensors:
    """Return tensors with zero gradients, a NaN and a loss that stands still."""
    changed = dict(tensors)
    for name, value in tensors.items():
        array = np.array(value, dtype=np.float64)
        if name.startswith("gradient"):
            array = array * 0.0
        elif "oss" in name:
            array = np.ones_like(array)
        elif array.size > 1:
            array.flat[0] = np.nan
        changed[name] = array
    return changed
