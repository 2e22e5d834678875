"""Writes the verdicts of a run or session in machine-readable formats."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeAlias

from rule_runtime.engine.outcome import status_details
from rule_runtime.reporting.junit import junit_xml
from rule_runtime.reporting.run_verdicts import RunVerdicts
from rule_runtime.reporting.sarif import sarif_json

__all__ = ["VERDICT_FORMATS", "verdicts_json"]


def verdicts_json(
    runs: Sequence[RunVerdicts],
    required: Collection[str] = (),  # noqa: ARG001
) -> str:
    """Return verdicts as a JSON list, with the training API's names where they exist.

    Each verdict names its run (`Run`) if the run belongs to a session, and has the diagnosis of the
    run. Required rules are not marked.
    """
    return json.dumps([verdict for run in runs for verdict in _verdicts(run)], indent=2)


def _verdicts(run: RunVerdicts) -> list[dict[str, Any]]:
    in_session = {"Run": run.name} if run.name else {}
    diagnosis = run.diagnosis
    return [
        {
            **in_session,
            "RuleConfigurationName": name,
            "RuleEvaluationStatus": state.status.value,
            "StatusDetails": status_details(name, state),
            "Evidence": None if state.evidence is None else state.evidence.to_json(),
            "Counts": state.counts.to_json(),
            "Diagnosis": None if diagnosis is None else diagnosis.to_json(),
        }
        for name, state in run.states.items()
    ]


_Format: TypeAlias = "Callable[[Sequence[RunVerdicts], Collection[str]], str]"

VERDICT_FORMATS: Final[Mapping[str, _Format]] = {
    "json": verdicts_json,
    "junit": junit_xml,
    "sarif": sarif_json,
}
"""Writers of verdicts, by name of the format.

They also get the names of the required rules.
"""
