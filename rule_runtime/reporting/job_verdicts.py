"""Converts verdicts to one form: from states, the training API's JSON or stored files."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeAlias

from hook_layer.format.errors import FormatError
from hook_layer.storage.base import ObjectNotFoundError, Store, open_store, read_small
from rule_runtime.configuration.packs import find_pack
from rule_runtime.diagnosis.diagnosis import Diagnosis, diagnosis_of
from rule_runtime.engine.outcome import (
    STATUS_ORDER,
    Evidence,
    RuleStatus,
    is_insufficient,
    needs_more,
    status_details,
    status_text,
    without_api_prefix,
)
from rule_runtime.engine.registry import available_rules
from rule_runtime.engine.result_file import (
    MAX_RESULT_BYTES,
    RESULTS_PREFIX,
    parse_result,
    result_place,
)
from rule_runtime.engine.rule import Rule, snake_case
from rule_runtime.engine.state import EvaluationState

__all__ = [
    "JobVerdict",
    "Verdicts",
    "diagnosis_of_verdicts",
    "has_verdict",
    "stored_verdicts",
    "verdicts_of",
]

Verdicts: TypeAlias = (
    "Mapping[str, EvaluationState] | Iterable[JobVerdict] | Iterable[Mapping[str, Any]]"
)
"""Accepted forms of verdicts; JSON as entries of `stepwatch evaluate --output json`."""

_logger: Final = logging.getLogger(__name__)

_RESULT: Final = "/status.json"
_MAX_FILES: Final = 200
_HEADING: Final = re.compile(r"^(\S[^\n]*):$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class JobVerdict:
    """The verdict of one rule.

    Attributes:
        is_not_judged: Whether it was not evaluated, without a fault of the rule.
        needs_more: Whether it would have been evaluated with more steps or elements.
        summary: What the rule finds, if the rule is known here.
        remedy: What to try, from its documentation.
        advice: Its advice on this run, which is no finding; empty without one.
    """

    name: str
    status: RuleStatus
    details: str
    evidence: Evidence | None = None
    is_not_judged: bool = False
    needs_more: bool = False
    summary: str = ""
    remedy: str = ""
    advice: str = ""

    @classmethod
    def of_state(cls, name: str, state: EvaluationState) -> JobVerdict:
        """Return the verdict of a state."""
        is_not_judged = state.has_evaluated_nothing
        summary, remedy = _documentation(name)
        found = without_api_prefix(status_details(name, state))
        return cls(
            name=name,
            status=state.status,
            details=state.reason if is_not_judged else found,
            evidence=state.evidence,
            is_not_judged=is_not_judged,
            needs_more=state.needs_more,
            summary=summary,
            remedy=remedy,
            advice=state.counts.advice,
        )

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> JobVerdict:
        """Return the verdict from an entry of `DebugRuleEvaluationStatuses`, with its `Evidence`.

        Raises:
            ValueError: The entry is not a verdict.
        """
        try:
            name, status = str(data["RuleConfigurationName"]), data["RuleEvaluationStatus"]
            evidence = data.get("Evidence")
            found = None if evidence is None else Evidence.from_json(evidence)
            details = str(data.get("StatusDetails") or "")
            summary, remedy = _documentation(name)
            counts = data.get("Counts") or {}
            return cls(
                name=name,
                status=RuleStatus(status),
                details=without_api_prefix(details),
                evidence=found,
                is_not_judged=is_insufficient(details),
                needs_more=needs_more(details),
                summary=summary,
                remedy=remedy,
                advice=str(data.get("Advice") or counts.get("advice") or ""),
            )
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(
                f"no verdict of a rule: {type(error).__name__}: {error}; give entries as "
                "`stepwatch evaluate --output json` prints them"
            ) from error

    @property
    def displayed_status(self) -> str:
        """The status to display; an Error can mean that the rule was not evaluated (yet)."""
        return status_text(
            self.status.value, is_not_evaluated=self.is_not_judged, needs_more=self.needs_more
        )

    @property
    def is_problem(self) -> bool:
        """Whether the rule found an issue or failed."""
        is_failed = self.status is RuleStatus.ERROR and not self.is_not_judged
        return self.status is RuleStatus.ISSUES_FOUND or is_failed

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as JSON."""
        return {
            "RuleConfigurationName": self.name,
            "RuleEvaluationStatus": self.status.value,
            "Details": self.details,
            "NotJudged": self.is_not_judged,
            "NeedsMore": self.needs_more,
            "Evidence": None if self.evidence is None else self.evidence.to_json(),
        }


def diagnosis_of_verdicts(verdicts: Iterable[JobVerdict]) -> Diagnosis | None:
    """Return the cause of the findings; None if it is unknown."""
    every = list(verdicts)
    found = {each.name: each.evidence for each in every if each.status is RuleStatus.ISSUES_FOUND}
    return diagnosis_of(found, {each.name: each.advice for each in every})


def has_verdict(verdicts: Iterable[JobVerdict]) -> bool:
    """Return whether a rule decided: errors, and rules under way, say nothing about a run."""
    decided = {RuleStatus.NO_ISSUES_FOUND, RuleStatus.ISSUES_FOUND}
    return any(each.status in decided for each in verdicts)


def verdicts_of(given: Verdicts) -> list[JobVerdict]:
    """Return verdicts in display order: findings first.

    Raises:
        ValueError: An entry is not a verdict.
    """
    if isinstance(given, Mapping):
        found = [JobVerdict.of_state(name, state) for name, state in given.items()]
    else:
        found = [
            entry if isinstance(entry, JobVerdict) else JobVerdict.from_json(entry)
            for entry in given
        ]
    return sorted(found, key=_rank)


def stored_verdicts(root: str, run: str | None) -> list[JobVerdict]:
    """Return the verdicts of a run that are stored beside the tensors, in `rule-output/`.

    Invalid files, and those of other runs, are skipped with a warning.

    Raises:
        StorageError: If the storage fails, except for a missing object.
    """
    folder, _ = result_place(root, "")
    store = open_store(folder)
    keys = [key for key in store.list(RESULTS_PREFIX) if key.endswith(_RESULT)]
    if len(keys) > _MAX_FILES:
        _logger.warning("read %s of %s files of verdicts", _MAX_FILES, len(keys))
    found = (_read(store, key, run or "") for key in keys[:_MAX_FILES])
    return sorted(filter(None, found), key=_rank)


def _read(store: Store, key: str, run: str) -> JobVerdict | None:
    try:
        result = read_small(store, key, MAX_RESULT_BYTES, parse_result)
        if result.run_id != run:
            return None
        content = result.to_json()
        (status,) = content["DebugRuleEvaluationStatuses"]
        return JobVerdict.from_json({**content, **status})
    except ObjectNotFoundError:
        return None  # deleted since it was listed
    except (FormatError, ValueError) as error:
        _logger.warning("ignored %s: %s", key, error)
        return None


def _rank(verdict: JobVerdict) -> tuple[int, bool, int, str]:
    # The pack begins with the most fundamental rules, such as the one for non-finite numbers.
    place = _places().get(verdict.name, len(_places()))
    return STATUS_ORDER.index(verdict.status), verdict.is_not_judged, place, verdict.name


@cache
def _places() -> dict[str, int]:
    return {name: at for at, name in enumerate(find_pack("recommended").parameters)}


def _documentation(name: str) -> tuple[str, str]:
    """Return what a rule finds and what to try, from its docstring; empty for unknown rules."""
    rule = _rules().get(snake_case(name.partition(":")[0]))
    if rule is None:
        return "", ""
    parts = _HEADING.split(inspect.getdoc(rule) or "")
    sections = dict(zip(parts[1::2], parts[2::2], strict=False))
    return rule.summary(), " ".join(sections.get("What to try", "").split())


@cache
def _rules() -> Mapping[str, type[Rule]]:
    return {snake_case(name): rule for name, rule in available_rules().items()}
