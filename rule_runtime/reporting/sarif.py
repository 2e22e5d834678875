"""Writes verdicts as SARIF 2.1.0, the format of code scanning services."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from hook_layer.format.paths import index_key
from rule_runtime.diagnosis.diagnosis import Diagnosis
from rule_runtime.engine.outcome import NOT_EVALUATED_YET, Evidence, RuleStatus
from rule_runtime.engine.registry import available_rules
from rule_runtime.engine.rule import snake_case
from rule_runtime.engine.state import EvaluationState
from rule_runtime.reporting.run_verdicts import RunVerdicts

__all__ = ["sarif_json"]

_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_ROOT: Final = "TRIAL"


def sarif_json(runs: Sequence[RunVerdicts], required: Collection[str] = ()) -> str:
    """Return verdicts as a SARIF log: findings as results, rules not evaluated as notifications.

    A finding's location is the line of the script to change, relative to the directory in which
    the run was started; if it is unknown, the index file of its step, relative to the trial's root.
    A required rule that was not evaluated is an error, unless it only needs more steps.
    """
    described = [_run(run, required) for run in runs]
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": described}, indent=2)


def _run(run: RunVerdicts, required: Collection[str]) -> dict[str, Any]:
    path, states, diagnosis = run.path, run.states, run.diagnosis
    names = list(states)
    results = [
        _result(name, names.index(name), state.evidence, diagnosis)
        for name, state in states.items()
        if state.evidence is not None
    ]
    notices = [
        _notice(name, names.index(name), state, is_required=name in required)
        for name, state in states.items()
        if state.status is RuleStatus.ERROR
    ]
    root = path if "://" in path else Path(path).absolute().as_uri()
    driver = {
        "name": "stepwatch",
        "version": metadata.version("stepwatch"),
        "rules": [_rule(name) for name in names],
    }
    return {
        "tool": {"driver": driver},
        "originalUriBaseIds": {_ROOT: {"uri": f"{root.rstrip('/')}/"}},
        "invocations": [
            {
                "executionSuccessful": not any(notice["level"] == "error" for notice in notices),
                "toolExecutionNotifications": notices,
            }
        ],
        "results": results,
        "properties": {"diagnosis": None if diagnosis is None else diagnosis.to_json()},
    }


def _rule(name: str) -> dict[str, Any]:
    """Return the descriptor of a rule; its name may have parameters as suffix."""
    rules = available_rules()
    by_any_name = {**{snake_case(rule): rules[rule] for rule in rules}, **rules}
    known = by_any_name.get(name.partition(":")[0])
    if known is None:
        return {"id": name}
    return {"id": name, "name": known.__name__, "shortDescription": {"text": known.summary()}}


def _notice(name: str, index: int, state: EvaluationState, *, is_required: bool) -> dict[str, Any]:
    is_harmless = state.needs_more or (state.has_evaluated_nothing and not is_required)
    text = f"{NOT_EVALUATED_YET}: {state.reason}" if state.needs_more else state.reason
    return {
        "level": "note" if is_harmless else "error",
        "message": {"text": text},
        "associatedRule": {"id": name, "index": index},
    }


def _result(
    name: str, index: int, evidence: Evidence, diagnosis: Diagnosis | None
) -> dict[str, Any]:
    described = evidence.to_json()
    return {
        "ruleId": name,
        "ruleIndex": index,
        "level": "error",
        "message": {"text": f"{evidence.line}\n{evidence.remedy}"},
        "locations": [
            {
                "physicalLocation": _place(evidence, _line(name, evidence, diagnosis)),
                "logicalLocations": [{"fullyQualifiedName": evidence.tensor, "kind": "tensor"}],
            }
        ],
        "properties": {
            key: described[key]
            for key in ("step", "mode", "worker", "measure", "value", "threshold", "count")
        },
    }


def _line(name: str, evidence: Evidence, diagnosis: Diagnosis | None) -> str:
    """Return the line to change: that of the cause, otherwise that of the finding's tensor."""
    first = None if diagnosis is None else diagnosis.first
    if first is not None and first.line and name in {one.name for one in first.symptoms}:
        return first.line
    return (evidence.lines or {}).get("tensor", "")


def _place(evidence: Evidence, line: str) -> dict[str, Any]:
    file, _, number = line.rpartition(":")
    if file and number.isdecimal():
        uri = Path(file).as_uri() if Path(file).is_absolute() else quote(file)
        return {"artifactLocation": {"uri": uri}, "region": {"startLine": int(number)}}
    uri = quote(index_key(evidence.step, evidence.worker))
    return {"artifactLocation": {"uri": uri, "uriBaseId": _ROOT}}
