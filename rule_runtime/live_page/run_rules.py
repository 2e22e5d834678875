"""Which rules a run is shown with whose user named none."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hook_layer.format.errors import FormatError
from hook_layer.format.job_file import MAX_JOB_FILE_BYTES, JobFile, parse_job_file
from hook_layer.format.paths import JOB_FILE
from hook_layer.storage.base import ObjectNotFoundError, Store
from hook_layer.storage.small_files import read_small
from rule_runtime.evaluation.outcome import RuleStatus
from rule_runtime.evaluation.registry import create_rule
from rule_runtime.evaluation.rule import Rule
from rule_runtime.jobs.asked_rules import AskedRule, asked_rules
from rule_runtime.reporting.job_verdicts import JobVerdict, stored_verdicts, verdicts_of
from rule_runtime.trial.run_files import current_run

__all__ = ["RunRules"]


class RunRules:
    """The rules that a job asks for in its `job.json`, or others where it asks for none.

    Verdicts that are stored beside the tensors count before those that are made here.

    Args:
        store: The trial's root.
        default: Returns the rules where the job does not say which.
    """

    def __init__(self, store: Store, default: Callable[[], Sequence[tuple[str, Rule]]]) -> None:
        self._store = store
        self._default = default
        self._are_asked_for = False
        self._left_out: list[JobVerdict] = []

    def find(self) -> Sequence[tuple[str, Rule]]:
        """Return the rules to judge by; to be asked once the run has begun.

        Those of which a verdict is stored are left out. Custom rules are, too, for a folder's files
        are no reason to run code of them, and so are rules that cannot be made here: they are shown
        as InProgress until they are stored.

        Raises:
            StorageError: The storage cannot be read.
        """
        stored = {each.name for each in stored_verdicts(self._store.uri, current_run(self._store))}
        job = self._job()
        if job is None or job.debug_rule_configurations is None:
            return () if stored else self._default()
        self._are_asked_for = True
        tried = {
            name: _made(name, rule)
            for name, rule in asked_rules(job.debug_rule_configurations)[0].items()
        }
        self._left_out = [
            JobVerdict(name=name, status=RuleStatus.IN_PROGRESS, details=f"not judged here: {why}")
            for name, why in tried.items()
            if isinstance(why, str)
        ]
        return [
            (name, rule)
            for name, rule in tried.items()
            if isinstance(rule, Rule) and name not in stored
        ]

    def shown(self, judged: Sequence[JobVerdict], stored: Sequence[JobVerdict]) -> list[JobVerdict]:
        """Return the verdicts to show.

        Args:
            judged: Those of the rules that were found.
            stored: Those that others stored.
        """
        if stored and not self._are_asked_for:
            return list(stored)
        names = {each.name for each in stored}
        others = [each for each in (*judged, *self._left_out) if each.name not in names]
        return verdicts_of([*stored, *others])

    def _job(self) -> JobFile | None:
        try:
            return read_small(self._store, JOB_FILE, MAX_JOB_FILE_BYTES, parse_job_file)
        except (ObjectNotFoundError, FormatError):  # as of the original client
            return None


def _made(name: str, asked: AskedRule) -> Rule | str:
    """Return a rule, or why it is none that can be made here."""
    if asked.problem or asked.source is not None:
        return asked.problem or f"{asked.source} is a file of its own"
    try:
        return create_rule(asked.invoked(name), asked.parameters)
    except (ImportError, ValueError) as error:
        return str(error)
