"""Runs for the tests of rules: a loss, and whatever else was saved beside it, step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from hook_layer.format.collections_file import parse_collections
from hook_layer.format.modes import ModeKeys
from hook_layer.format.paths import collections_key
from hook_layer.format.reductions import reduction_tensor_name
from rule_runtime.engine.outcome import IssueFound, NotEvaluated
from rule_runtime.engine.rule import Rule
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import SavedStep, healthy_tensors

LOSS = "CrossEntropyLoss_output_0"


def run_of_losses(
    losses: Iterable[float],
    *,
    interval: int = 5,
    name: str = LOSS,
    mode: ModeKeys = ModeKeys.TRAIN,
    beside: Mapping[str, Any] | None = None,
) -> TrialBuilder:
    trial = TrialBuilder()
    for at, loss in enumerate(losses):
        tensors = {**(beside or {}), name: np.float64(loss)}
        trial.step(at * interval, tensors, mode=mode, mode_step=at * interval)
    return trial


def trial_of(steps: Iterable[SavedStep]) -> TrialBuilder:
    """Return a run of these steps."""
    trial = TrialBuilder()
    for saved in steps:
        trial.step(saved.step, saved.tensors, mode=saved.mode, mode_step=saved.mode_step)
    return trial


def write_gradient_stops(trial: TrialBuilder, stops: Mapping[str, tuple[str, ...]]) -> None:
    """Write a collections file in which these operations stop the gradients of parameters."""
    trial.collections()
    key = collections_key("worker_0")
    file = parse_collections(trial.store.get(key), file=key)
    trial.store.put(key, replace(file, gradient_stops=stops).encode())


def found_at(rule: Rule, trial: TrialBuilder) -> list[int]:
    """Return the steps at which a rule finds something."""
    return [o.evidence.step for o in trial.outcomes(rule) if isinstance(o, IssueFound)]


def judged_at(rule: Rule, trial: TrialBuilder) -> list[int]:
    """Return the steps that a rule judges."""
    outcomes = zip(trial.views(), trial.outcomes(rule), strict=True)
    return [view.step for view, outcome in outcomes if not isinstance(outcome, NotEvaluated)]


def with_losses(loss_of: Callable[[int], float], worker: int) -> Iterable[SavedStep]:
    """Return a healthy run with another loss at each step."""
    for step in range(0, 200, 5):
        tensors = healthy_tensors(step, worker)
        yield SavedStep(step, {**tensors, LOSS: np.float64(loss_of(step))}, time=1.5e9 + step)


def with_maxima(*names: str, num_workers: int = 1, num_steps: int = 1) -> TrialBuilder:
    """Return a run of an original client that saved nothing but the maximum of each tensor."""
    trial = TrialBuilder(run=None, num_workers=num_workers)
    maxima = {reduction_tensor_name(name, "max", absolute=False): [1.0] for name in names}
    for step in range(num_steps):
        for worker in range(num_workers):
            trial.step(step, maxima, worker=f"worker_{worker}")
    return trial
