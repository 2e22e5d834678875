"""Evaluates the rules of a job in a local folder, which no deployment watches."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hook_layer.storage.base import StorageError
from rule_runtime.embedded.live_judge import LiveJudge
from rule_runtime.embedded.result_writer import ResultWriter
from rule_runtime.engine.outcome import RuleStatus
from rule_runtime.engine.registry import UnknownRuleError, create_rule
from rule_runtime.engine.state import EvaluationState
from rule_runtime.jobs.summary import is_final

if TYPE_CHECKING:
    from hook_layer.format.job_file import JobFile
    from rule_runtime.configuration.requested_rules import RequestedRule
    from rule_runtime.engine.rule import Rule
    from rule_runtime.jobs.job_files import JobFiles

__all__ = ["FolderRules"]


class FolderRules:
    """Evaluates an ended run in a local folder.

    Args:
        files: The job's files.
        sources: Files of custom rules that may run. Others in `job.json` are not trusted.
        clock: Returns seconds since the epoch.
    """

    def __init__(
        self, files: JobFiles, sources: Collection[str], clock: Callable[[], float]
    ) -> None:
        self._files = files
        self._sources = frozenset(map(_absolute, sources))
        self._clock = clock

    def judge(self, job: JobFile) -> None:
        """Evaluate an ended run by its rules without a verdict, and store their verdicts.

        A rule with invalid parameters gets the verdict Error with the reason.

        Raises:
            ValueError: A rule cannot be created on this machine, its file must not run, or an entry
                of `job.json` names no rule; the other rules were evaluated.
            StorageError: The run cannot be read, or the verdicts cannot be written.
        """
        found, problems = self._files.parse_rule_requests(job)
        asked = found or {}
        left = [name for name in asked if self._files.result(name, job) is None]
        tried = {name: self._made(name, asked[name]) for name in left}
        made = {name: rule for name, rule in tried.items() if not isinstance(rule, _Unmade)}
        unmade = {name: rule for name, rule in tried.items() if isinstance(rule, _Unmade)}
        refused = {name: _refused(why.reason) for name, why in unmade.items() if why.is_final}
        if made:
            rules = list(made.items())
            judge = LiveJudge(self._files.root, rules, clock=self._clock)
            judge.look(is_over=True)
        ResultWriter(self._files.root, self._clock).write(job.run_id, {}, refused)
        self._check_written([*made, *refused], job)
        others = [
            f"the rule {name} is not evaluated: {why.reason}"
            for name, why in unmade.items()
            if not why.is_final
        ]
        if others or problems:
            raise ValueError("; ".join((*others, *problems)))

    def ended_member(self, member: Mapping[str, Any]) -> dict[str, Any]:
        """Return the summary's member for an ended run, with how to evaluate it."""
        if is_final(member):
            return dict(member)
        details = (
            "the job has ended, and no deployment watches a folder: evaluate it with "
            "DebugJob.wait_for_rules(), `stepwatch status --wait` or "
            f"`stepwatch evaluate {self._files.root.uri}`\n"
        )
        return {**member, "StatusDetails": details}

    def _made(self, name: str, asked: RequestedRule) -> Rule | _Unmade:
        """Return a rule, or the reason why it cannot be created."""
        source, invoked = asked.source, asked.invoked(name)
        if asked.problem:
            return _Unmade(asked.problem, is_final=True)
        if source is not None and _absolute(source) not in self._sources:
            return _Unmade(
                f"{source} runs only where its owner allowed it; ask the job that "
                "prepare(...).job() returns, give DebugJob(..., "
                f"rule_sources=[{source!r}]), or run `stepwatch evaluate {self._files.root.uri} "
                f"--rule {source}:{invoked}`",
                is_final=False,
            )
        if source is None:
            return _installed(invoked, asked.parameters)
        return _loaded(source, invoked, asked.parameters)

    def _check_written(self, names: Sequence[str], job: JobFile) -> None:
        lost = [name for name in names if self._files.result(name, job) is None]
        if lost:
            raise StorageError(
                f"the verdicts of {', '.join(lost)} cannot be written next to "
                f"{self._files.root.uri}: see the warning in the log, or evaluate without writing, "
                f"`stepwatch evaluate {self._files.root.uri}`"
            )


def _absolute(source: str) -> str:
    """Return the absolute path of a rule's file; a URI as it is."""
    return source if "://" in source else str(Path(source).expanduser().resolve())


@dataclass(frozen=True)
class _Unmade:
    """The reason why a rule cannot be created, and whether it holds on every machine."""

    reason: str
    is_final: bool


def _installed(invoked: str, parameters: Mapping[str, Any]) -> Rule | _Unmade:
    try:
        return create_rule(invoked, parameters)
    except (ImportError, UnknownRuleError) as error:
        return _Unmade(f"{error}; evaluate it where the rule is installed", is_final=False)
    except ValueError as error:
        return _Unmade(str(error), is_final=True)


def _loaded(source: str, invoked: str, parameters: Mapping[str, Any]) -> Rule | _Unmade:
    from rule_runtime.custom_rules.loader import (  # noqa: PLC0415 - rarely needed
        CustomRuleError,
        load_custom_rule,
    )

    folder = source.rpartition("/")[0] if "://" in source else Path(source).parent
    try:
        return load_custom_rule(source, invoked, parameters, allowed=[folder], hide_smdebug=True)
    except (CustomRuleError, ImportError, StorageError) as error:
        # Another machine may have the file and its imports, and the file can be fixed.
        reason = f"{error}; fix this, or evaluate it on another machine"
        return _Unmade(reason, is_final=False)
    except ValueError as error:
        return _Unmade(str(error), is_final=True)


def _refused(reason: str) -> EvaluationState:
    state = replace(EvaluationState.initial(), blocked_by=reason, ended=True)
    return state.with_status(RuleStatus.ERROR)
