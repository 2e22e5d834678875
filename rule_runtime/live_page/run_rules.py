"""Chooses the rules for displaying a run if the user names none."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hook_layer.storage.base import Store
from rule_runtime.configuration.requested_rules import RequestedRule, parse_rule_requests
from rule_runtime.engine.outcome import RuleStatus
from rule_runtime.engine.registry import create_rule
from rule_runtime.engine.rule import Rule
from rule_runtime.reporting.job_verdicts import JobVerdict, stored_verdicts, verdicts_of
from rule_runtime.trial.job_file import usable_job_file
from rule_runtime.trial.run_files import current_run

__all__ = ["RunRules"]


class RunRules:
    """The rules in a job's `job.json`, otherwise default rules.

    Verdicts stored beside the tensors have priority.

    Args:
        store: The trial's root.
        default: Returns the rules if the job configures none.

    Attributes:
        left_out: Configured rules that cannot be created here.
    """

    def __init__(self, store: Store, default: Callable[[], Sequence[tuple[str, Rule]]]) -> None:
        self._store = store
        self._default = default
        self._are_asked_for = False
        self.left_out: list[JobVerdict] = []

    def asked(self) -> Sequence[tuple[str, Rule]] | None:
        """Return the configured rules that can be created here.

        None if the job configures none.

        Raises:
            StorageError: The storage cannot be read.
        """
        job = usable_job_file(self._store)
        if job is None or job.debug_rule_configurations is None:
            return None
        self._are_asked_for = True
        tried = {
            name: _made(name, rule)
            for name, rule in parse_rule_requests(job.debug_rule_configurations)[0].items()
        }
        self.left_out = [
            JobVerdict(
                name=name, status=RuleStatus.IN_PROGRESS, details=f"not evaluated here: {why}"
            )
            for name, why in tried.items()
            if isinstance(why, str)
        ]
        return [(name, rule) for name, rule in tried.items() if isinstance(rule, Rule)]

    def find(self) -> Sequence[tuple[str, Rule]]:
        """Return the rules to evaluate; call it once the run has begun.

        It skips rules with a stored verdict, rules that cannot be created here, and custom rules,
        because files in a folder must not make this process run their code. Skipped rules are shown
        as InProgress until their verdict is stored.

        Raises:
            StorageError: The storage cannot be read.
        """
        stored = {each.name for each in stored_verdicts(self._store.uri, current_run(self._store))}
        asked = self.asked()
        if asked is None:
            return () if stored else self._default()
        return [(name, rule) for name, rule in asked if name not in stored]

    def shown(self, judged: Sequence[JobVerdict], stored: Sequence[JobVerdict]) -> list[JobVerdict]:
        """Return the verdicts to display.

        Args:
            judged: Verdicts of the rules from `find`.
            stored: Stored verdicts.
        """
        if stored and not self._are_asked_for:
            return list(stored)
        names = {each.name for each in stored}
        others = [each for each in (*judged, *self.left_out) if each.name not in names]
        return verdicts_of([*stored, *others])


def _made(name: str, asked: RequestedRule) -> Rule | str:
    """Return a rule, or why it cannot be created here."""
    if asked.problem or asked.source is not None:
        return asked.problem or f"{asked.source} is a file of its own"
    try:
        return create_rule(asked.invoked(name), asked.parameters)
    except (ImportError, ValueError) as error:
        return str(error)
