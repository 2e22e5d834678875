"""Writes verdicts as JUnit XML, which continuous integration systems show as tests."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final
from xml.etree import ElementTree as ET

from rule_runtime.engine.outcome import NOT_EVALUATED_YET, RuleStatus, status_details
from rule_runtime.engine.state import EvaluationState
from rule_runtime.reporting.run_verdicts import RunVerdicts

__all__ = ["junit_xml"]

_COUNTS: Final = ("tests", "failures", "errors", "skipped")
_NOT_OF_XML: Final = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(runs: Sequence[RunVerdicts], required: Collection[str] = ()) -> str:
    """Return verdicts as a test suite per run, with one test per rule.

    A finding is a failure. A rule that failed or was prevented from running is an error. A rule
    that was not evaluated is skipped, with the reason; if it is required, it is an error, unless it
    only needs more steps.
    """
    suites = [_suite(run, required) for run in runs]
    counts = {name: str(sum(int(suite.attrib[name]) for suite in suites)) for name in _COUNTS}
    root = ET.Element("testsuites", {"name": "stepwatch", **counts})
    root.extend(suites)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode")


def _suite(run: RunVerdicts, required: Collection[str]) -> ET.Element:
    tests = [_test(name, state, required) for name, state in run.states.items()]
    kinds = [test[0].tag if len(test) else "" for test in tests]
    counts = [len(tests), *(kinds.count(kind) for kind in ("failure", "error", "skipped"))]
    named = {name: str(count) for name, count in zip(_COUNTS, counts, strict=True)}
    suite = ET.Element("testsuite", {"name": _text(run.path), **named})
    if (diagnosis := run.diagnosis) is not None:
        properties = ET.SubElement(suite, "properties")
        for name, text in (
            ("diagnosis", diagnosis.headline),
            ("change", diagnosis.first.advice),
        ):
            ET.SubElement(properties, "property", {"name": name, "value": _text(text)})
    suite.extend(tests)
    return suite


def _test(name: str, state: EvaluationState, required: Collection[str]) -> ET.Element:
    test = ET.Element("testcase", {"classname": "stepwatch", "name": _text(name)})
    details = _text(status_details(name, state))
    evidence = state.evidence
    if evidence is not None:
        element = ET.SubElement(test, "failure", {"type": name, "message": _text(evidence.line)})
        element.text = f"{details}\n{evidence.seen} {evidence.remedy}"
    elif state.needs_more:
        ET.SubElement(test, "skipped", {"message": _text(f"{NOT_EVALUATED_YET}: {state.reason}")})
    elif state.has_evaluated_nothing and name not in required:
        ET.SubElement(test, "skipped", {"message": _text(state.reason)})
    elif state.status is RuleStatus.ERROR:
        element = ET.SubElement(test, "error", {"type": name, "message": _text(state.reason)})
        element.text = details
    else:
        ET.SubElement(test, "system-out").text = details
    return test


def _text(text: str) -> str:
    """Return a text without characters that XML forbids; names come from files."""
    return _NOT_OF_XML.sub("\N{REPLACEMENT CHARACTER}", text)
