"""What every rule has to say of every run: one pass, in order, over the files that are stored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hook_layer.storage.base import Store
from rule_runtime.engine.evaluator import Evaluation
from rule_runtime.engine.outcome import Evidence, RuleStatus
from rule_runtime.engine.registry import create_rule
from rule_runtime.trial.step_index import StepFile, iter_step_files, list_index_files
from rule_runtime.trial.step_view import StepReader


@dataclass(frozen=True)
class Expected:
    """The right end of one rule's evaluation of one run.

    Attributes:
        status: The verdict.
        evidence: What a finding rests on.
        memory: The rule's memory after the last step; other steps, or another order, give another.
        num_steps: Numbers of steps that the rule judged, could not judge, and need not judge.
    """

    status: RuleStatus
    evidence: Evidence | None
    memory: Mapping[str, Any]
    num_steps: tuple[int, int, int]


def expected_verdicts(
    store: Store, rules: Mapping[str, Mapping[str, str]], *, num_workers: int
) -> dict[tuple[str, str], Expected]:
    """Return the right end of every evaluation of a trial, by run and rule.

    Args:
        store: The trial's root.
        rules: The rules and their parameters.
        num_workers: How many workers write.
    """
    keys = [key for key, _ in list_index_files(store)]
    runs: dict[str, dict[int, list[StepFile]]] = defaultdict(lambda: defaultdict(list))
    for file in iter_step_files(store, keys):
        if file.index is None:
            raise ValueError(f"{store.uri}{file.key} cannot be read: {file.problem}")
        runs[file.index.run or ""][file.step].append(file)
    return {
        (run, rule): _in_order(store, rule, parameters, steps, num_workers)
        for run, steps in runs.items()
        for rule, parameters in rules.items()
    }


def _in_order(
    store: Store,
    rule: str,
    parameters: Mapping[str, str],
    steps: Mapping[int, list[StepFile]],
    num_workers: int,
) -> Expected:
    evaluation, reader = Evaluation.fresh(create_rule(rule, parameters)), StepReader(store)
    for step, files in sorted(steps.items()):
        evaluation.feed(reader.view(step, files, num_workers=num_workers))
    if evaluation.evidence is not None:
        status = RuleStatus.ISSUES_FOUND
    elif evaluation.counts.evaluated and not evaluation.failure:
        status = RuleStatus.NO_ISSUES_FOUND
    else:
        status = RuleStatus.ERROR
    counts = evaluation.counts
    num_steps = (counts.evaluated, counts.not_evaluated, counts.not_applicable)
    return Expected(status, evaluation.evidence, evaluation.memory, num_steps)
