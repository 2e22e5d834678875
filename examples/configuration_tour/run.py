"""Runs one stop of the tour in this process: prepare, train, evaluate."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.configuration_tour.stops import Stop
from examples.configuration_tour.train import train
from hook_layer.storage.base import open_store
from rule_runtime.embedded.live_judge import LiveJudge
from rule_runtime.embedded.stop_policy import StopPolicy
from rule_runtime.engine.registry import create_rule
from stepwatch import ModeKeys, PreparedJob, Rule, Trial, load_custom_rule, prepare
from stepwatch.configuration import ActionList, StopTraining
from stepwatch.configuration import Rule as RuleConfiguration

__all__ = ["Ran", "Saved", "run"]

_WITHOUT_MEANING = frozenset({"all", "default"})  # collections that everything is in, or nothing


@dataclass(frozen=True)
class Saved:
    """What a run holds of one collection.

    Attributes:
        collection: Name of the collection.
        num_tensors: How many tensors of it were saved.
        train: Steps of training with one of them.
        evaluation: Steps of evaluation with one of them, counted by themselves.
        form: `value`, or names of the reductions; `statistics` where nothing else is stored.
    """

    collection: str
    num_tensors: int
    train: list[int]
    evaluation: list[int]
    form: str


@dataclass(frozen=True)
class Ran:
    """A stop that was run.

    Attributes:
        stop: The stop.
        prepared: Its job.
        num_steps: How many steps it made.
        stopped: Why it made no more; empty if these were all.
    """

    stop: Stop
    prepared: PreparedJob
    num_steps: int
    stopped: str

    def trial(self) -> Trial:
        """Return what was saved."""
        return self.prepared.job().trial()

    def saved(self) -> list[Saved]:
        """Return what was saved, by collection."""
        trial = self.trial()
        names = sorted(set(trial.collections()) - _WITHOUT_MEANING) if trial.steps() else []
        found = {name: sorted(trial.collection(name).tensor_names) for name in names}
        return [_saved(trial, name, tensors) for name, tensors in found.items() if tensors]

    def summary(self) -> list[dict[str, Any]]:
        """Return what became of the rules."""
        return self.prepared.job().rule_job_summary() if self.stop.rules else []

    def tensorboard_files(self) -> list[Path]:
        """Return TensorBoard's files."""
        folder = self.prepared.tensorboard_output
        return sorted(Path(folder).rglob("*.tfevents")) if folder else []


def run(stop: Stop, folder: Path, **environment: str) -> Ran:
    """Prepare a stop's job, train it, and evaluate it while it trains, all in this process.

    Args:
        stop: The stop.
        folder: Where the job's output goes below.
        **environment: Environment variables of the training beside those of the job.
    """
    prepared = prepare(job_name=stop.name, output_path=folder, **stop.arguments())
    evaluator = embedded_evaluator(prepared)
    with _environment({**prepared.environment, **environment}):
        num_steps, stopped = train(stop.num_steps, evaluator.look)
    if stop.rules:
        evaluator.look(is_over=True)
    return Ran(stop, prepared, num_steps, stopped)


def embedded_evaluator(prepared: PreparedJob) -> LiveJudge:
    """Return what evaluates a job in this process, with the code of the cloud."""
    rules = prepared.configuration.rules
    stopping = {rule.name for rule in rules if _stops(rule)}
    return LiveJudge(
        open_store(prepared.debug_output),
        [(rule.name, rule_of(rule)) for rule in rules],
        stops=StopPolicy(frozenset(stopping)),
    )


def rule_of(configured: RuleConfiguration) -> Rule:
    """Return the rule that was configured: a built-in one, or one of a file of this machine."""
    invoked, parameters = configured.rule_to_invoke or configured.name, configured.rule_parameters
    if configured.source is None:
        return create_rule(invoked, parameters)
    folder = Path(configured.source).parent
    return load_custom_rule(configured.source, invoked, parameters, allowed=[folder])


def _stops(rule: RuleConfiguration) -> bool:
    actions = rule.actions.actions if isinstance(rule.actions, ActionList) else (rule.actions,)
    return any(isinstance(action, StopTraining) for action in actions)


def _saved(trial: Trial, collection: str, names: list[str]) -> Saved:
    tensors = [trial.tensor(name) for name in names]
    steps = {
        mode: sorted({step for tensor in tensors for step in tensor.steps(mode)})
        for mode in (ModeKeys.TRAIN, ModeKeys.EVAL)
    }
    forms = {_form(tensor) for tensor in tensors}
    return Saved(
        collection,
        len(names),
        steps[ModeKeys.TRAIN],
        steps[ModeKeys.EVAL],
        " or ".join(sorted(forms)),
    )


def _form(tensor: Any) -> str:
    step = tensor.steps()[0]
    reductions = [f"{'abs_' * is_abs}{name}" for name, is_abs in tensor.reduction_values(step)]
    if reductions:
        return ", ".join(sorted(reductions))
    try:
        tensor.value(step)
    except LookupError:
        return "statistics"
    return "value"


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables as the platform does that runs the job."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
