"""The verdicts over one run as JSON, and the other formats that they are told in."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Final

from rule_runtime.evaluation.outcome import status_details
from rule_runtime.evaluation.state import EvaluationState
from rule_runtime.reporting.junit import junit_xml
from rule_runtime.reporting.sarif import sarif_json

__all__ = ["VERDICT_FORMATS", "verdicts_json"]


def verdicts_json(path: str, states: Mapping[str, EvaluationState]) -> str:  # noqa: ARG001
    """Return verdicts as a JSON list, in the names of the training API where it has them.

    Args:
        path: Folder or URI of the trial's root, which these verdicts do not name.
        states: The final states by the names of the rules.
    """
    verdicts = [
        {
            "RuleConfigurationName": name,
            "RuleEvaluationStatus": state.status.value,
            "StatusDetails": status_details(name, state),
            "Evidence": None if state.evidence is None else state.evidence.to_json(),
            "Counts": state.counts.to_json(),
        }
        for name, state in states.items()
    ]
    return json.dumps(verdicts, indent=2)


VERDICT_FORMATS: Final[Mapping[str, Callable[[str, Mapping[str, EvaluationState]], str]]] = {
    "json": verdicts_json,
    "junit": junit_xml,
    "sarif": sarif_json,
}
"""What writes verdicts over the run at a path, by the name of the format."""
