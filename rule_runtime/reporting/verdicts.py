"""The verdicts over one run as JSON, and the other formats that they are told in."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import Final, TypeAlias

from rule_runtime.evaluation.outcome import status_details
from rule_runtime.evaluation.state import EvaluationState
from rule_runtime.reporting.junit import junit_xml
from rule_runtime.reporting.sarif import sarif_json

__all__ = ["VERDICT_FORMATS", "verdicts_json"]


def verdicts_json(
    path: str,  # noqa: ARG001
    states: Mapping[str, EvaluationState],
    required: Collection[str] = (),  # noqa: ARG001
) -> str:
    """Return verdicts as a JSON list, in the names of the training API where it has them.

    Args:
        path: Folder or URI of the trial's root, which these verdicts do not name.
        states: The final states by the names of the rules.
        required: Names of the rules that must judge, of which these verdicts tell nothing.
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


_Format: TypeAlias = "Callable[[str, Mapping[str, EvaluationState], Collection[str]], str]"

VERDICT_FORMATS: Final[Mapping[str, _Format]] = {
    "json": verdicts_json,
    "junit": junit_xml,
    "sarif": sarif_json,
}
"""What writes verdicts over the run at a path, by the name of the format.

It gets the names of the rules that must judge, too."""
