"""Rules of a job in a folder: no deployment watches one, so they judge here when asked to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hook_layer.storage.base import StorageError
from rule_runtime.embedded.live_judge import LiveJudge
from rule_runtime.embedded.result_writer import ResultWriter
from rule_runtime.evaluation.outcome import RuleStatus
from rule_runtime.evaluation.registry import create_rule
from rule_runtime.evaluation.state import EvaluationState
from rule_runtime.jobs.summary import is_final

if TYPE_CHECKING:
    from hook_layer.format.job_file import JobFile
    from rule_runtime.evaluation.rule import Rule
    from rule_runtime.jobs.job_files import JobFiles

__all__ = ["FolderRules"]

_SOURCE: Final = "source_s3_uri"
_INVOKED: Final = "rule_to_invoke"


class FolderRules:
    """Judges a run in a folder once it has ended.

    Args:
        files: The job's files.
        sources: Files of custom rules that may be run: who can write the folder's `job.json` could
            name any other.
        clock: Seconds since the epoch.
    """

    def __init__(
        self, files: JobFiles, sources: Collection[str], clock: Callable[[], float]
    ) -> None:
        self._files = files
        self._sources = frozenset(sources)
        self._clock = clock

    def judge(self, job: JobFile) -> None:
        """Judge a run that has ended by those of its rules that have no verdict, and store these.

        A rule that cannot be made gets the verdict Error, with the reason.

        Args:
            job: The run's `job.json`.

        Raises:
            ValueError: A custom rule is in a file that may not be run; the others have judged.
            StorageError: The run cannot be read, or the verdicts cannot be written.
        """
        asked = {
            rule["RuleConfigurationName"]: rule.get("RuleParameters") or {}
            for rule in self._files.rule_configurations(job) or ()
        }
        left = [name for name in asked if self._files.result(name, job) is None]
        unknown = {name: asked[name][_SOURCE] for name in left if self._is_unknown(asked[name])}
        left = [name for name in left if name not in unknown]
        made = {name: _made(name, asked[name]) for name in left}
        rules = [(name, rule) for name, rule in made.items() if not isinstance(rule, str)]
        refused = {name: _refused(why) for name, why in made.items() if isinstance(why, str)}
        if rules:
            judge = LiveJudge(self._files.root, rules, stops=lambda _: False, clock=self._clock)
            judge.look(is_over=True)
        ResultWriter(self._files.root, self._clock).write(job.run_id, {}, refused)
        lost = [name for name in left if self._files.result(name, job) is None]
        if lost:
            raise StorageError(
                f"the verdicts of {', '.join(lost)} cannot be written beside "
                f"{self._files.root.uri}: see the warning in the log, or judge without writing, "
                f"`stepwatch evaluate {self._files.root.uri}`"
            )
        for name, source in unknown.items():
            raise ValueError(
                f"the rule {name} is not judged: {source} is run only where it is known to be "
                "wanted; ask the job that prepare(...).job() returns, give DebugJob(..., "
                f"rule_sources=[{source!r}]), or run `stepwatch evaluate {self._files.root.uri} "
                f"--rule {source}:{asked[name].get(_INVOKED) or name}`"
            )

    def told(self, member: Mapping[str, Any]) -> dict[str, Any]:
        """Return a member of the summary of a run that has ended, saying how it is judged.

        Args:
            member: The member.
        """
        if is_final(member):
            return dict(member)
        details = (
            "the job has ended, and nobody watches a folder: DebugJob.wait_for_rules() (`stepwatch "
            f"status --wait`) judges it, or `stepwatch evaluate {self._files.root.uri}`\n"
        )
        return {**member, "StatusDetails": details}

    def _is_unknown(self, parameters: Mapping[str, Any]) -> bool:
        return parameters.get(_SOURCE) not in (None, *self._sources)


def _made(name: str, parameters: Mapping[str, Any]) -> Rule | str:
    """Return a rule, or why it cannot be made."""
    source, invoked = parameters.get(_SOURCE), parameters.get(_INVOKED) or name
    try:
        if source is None:
            return create_rule(invoked, parameters)
        from rule_runtime.custom_rules.loader import load_custom_rule  # noqa: PLC0415 - rarely needed

        folder = Path(source).parent
        return load_custom_rule(source, invoked, parameters, allowed=[folder], hide_smdebug=True)
    except (ImportError, ValueError) as error:
        return str(error)


def _refused(reason: str) -> EvaluationState:
    state = replace(EvaluationState.initial(), blocked_by=reason, ended=True)
    return state.with_status(RuleStatus.ERROR)
