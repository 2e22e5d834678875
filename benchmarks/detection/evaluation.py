"""Evaluates rules on a stored run, with a cache of verdicts."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.detection.digests import digest_of_shared_code
from hook_layer.storage.base import open_store
from rule_runtime.engine.evaluator import Evaluation
from rule_runtime.engine.evidence import Evidence, completed_for_silence
from rule_runtime.engine.outcome import IssueFound
from rule_runtime.engine.rule import Rule
from rule_runtime.trial.step_index import list_index_files, load_step_files
from rule_runtime.trial.step_view import StepReader

__all__ = ["SILENCE_S", "Verdict", "evaluate"]

SILENCE_S: Final = 7200.0
"""Silence of a run that hangs, in seconds, when rules evaluate it."""


@dataclass(frozen=True)
class Verdict:
    """The result of a rule for a whole run.

    Attributes:
        evidence: The first finding; None without any.
        evaluated: Number of evaluated steps.
        reason: Why the rule did not evaluate the last step that it skipped.
        failure: The error that the rule raised; empty without one.
    """

    evidence: Evidence | None
    evaluated: int
    reason: str
    failure: str = ""

    @property
    def step(self) -> int | None:
        """Global step of the first finding; None without any."""
        return None if self.evidence is None else self.evidence.first_step


def evaluate(trial: Path, rules: Mapping[str, Rule], *, hung: bool = False) -> dict[str, Verdict]:
    """Return the verdicts of rules on a run.

    Args:
        trial: Folder of its files.
        rules: The rules by name.
        hung: True if the run hangs: then rules see `SILENCE_S` after its last step.
    """
    path = trial.parent / "evaluations.json"
    known: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    keys = {name: _content(rule) for name, rule in rules.items()}
    missing = {name: rule for name, rule in rules.items() if keys[name] not in known}
    if missing:
        for name, verdict in _evaluate(trial, missing, hung=hung).items():
            known[keys[name]] = asdict(verdict)
        new = path.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps(known))
        new.replace(path)
    stored = {name: known[key] for name, key in keys.items()}
    found = {name: of["evidence"] and Evidence(**of["evidence"]) for name, of in stored.items()}
    return {name: Verdict(**{**of, "evidence": found[name]}) for name, of in stored.items()}


def _evaluate(trial: Path, rules: Mapping[str, Rule], *, hung: bool) -> dict[str, Verdict]:
    store = open_store(str(trial))
    reader = StepReader(store)
    evaluations = {name: Evaluation.fresh(rule) for name, rule in rules.items()}
    last = -1
    for file in load_step_files(store, [key for key, _ in list_index_files(store)]):
        view = reader.view(file.step, [file], num_workers=1)
        last = file.step
        for evaluation in evaluations.values():
            evaluation.feed(view)
    found = {name: _verdict(evaluation) for name, evaluation in evaluations.items()}
    if hung:
        for name, rule in rules.items():
            check = getattr(rule, "check_silence", None)
            silent = check(SILENCE_S, last) if check else None
            if found[name].step is None and isinstance(silent, IssueFound):
                evidence = completed_for_silence(silent.evidence, type(rule), last)
                found[name] = Verdict(evidence, 1, "")
    return found


def _verdict(evaluation: Evaluation) -> Verdict:
    of = evaluation.counts
    return Verdict(evaluation.evidence, of.evaluated, of.last_reason, of.failure)


def _content(rule: Rule) -> str:
    """Return a key that changes with a rule's code and parameters."""
    own = hashlib.sha256(Path(inspect.getfile(type(rule))).read_bytes())
    return hashlib.sha256(
        f"{rule!r} {own.hexdigest()} {digest_of_shared_code()}".encode()
    ).hexdigest()[:16]
