"""Which rules a run is shown with whose user named none."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hook_layer.storage.base import Store
from rule_runtime.configuration.requested_rules import AskedRule, asked_rules
from rule_runtime.engine.outcome import RuleStatus
from rule_runtime.engine.registry import create_rule
from rule_runtime.engine.rule import Rule
from rule_runtime.reporting.job_verdicts import JobVerdict, stored_verdicts, verdicts_of
from rule_runtime.trial.job_file import usable_job_file
from rule_runtime.trial.run_files import current_run

__all__ = ["RunRules"]


class RunRules:
    """The rules that a job asks for in its `job.json`, or others where it asks for none.

    Verdicts that are stored beside the tensors count before those that are made here.

    Args:
        store: The trial's root.
        default: Returns the rules where the job does not say which.

    Attributes:
        left_out: Those that the job asks for and that cannot be made here.
    """

    def __init__(self, store: Store, default: Callable[[], Sequence[tuple[str, Rule]]]) -> None:
        self._store = store
        self._default = default
        self._are_asked_for = False
        self.left_out: list[JobVerdict] = []

    def asked(self) -> Sequence[tuple[str, Rule]] | None:
        """Return the rules that the job asks for, as far as they can be made here.

        None where it does not say which.

        Raises:
            StorageError: The storage cannot be read.
        """
        job = usable_job_file(self._store)
        if job is None or job.debug_rule_configurations is None:
            return None
        self._are_asked_for = True
        tried = {
            name: _made(name, rule)
            for name, rule in asked_rules(job.debug_rule_configurations)[0].items()
        }
        self.left_out = [
            JobVerdict(name=name, status=RuleStatus.IN_PROGRESS, details=f"not judged here: {why}")
            for name, why in tried.items()
            if isinstance(why, str)
        ]
        return [(name, rule) for name, rule in tried.items() if isinstance(rule, Rule)]

    def find(self) -> Sequence[tuple[str, Rule]]:
        """Return the rules to judge by; to be asked once the run has begun.

        It leaves out rules with a stored verdict, rules that cannot be created here, and custom
        rules: files in a folder must not make this process run their code. Left out rules are
        shown as InProgress until their verdict is stored.

        Raises:
            StorageError: The storage cannot be read.
        """
        stored = {each.name for each in stored_verdicts(self._store.uri, current_run(self._store))}
        asked = self.asked()
        if asked is None:
            return () if stored else self._default()
        return [(name, rule) for name, rule in asked if name not in stored]

    def shown(self, judged: Sequence[JobVerdict], stored: Sequence[JobVerdict]) -> list[JobVerdict]:
        """Return the verdicts to show.

        Args:
            judged: Those of the rules that were found.
            stored: Those that others stored.
        """
        if stored and not self._are_asked_for:
            return list(stored)
        names = {each.name for each in stored}
        others = [each for each in (*judged, *self.left_out) if each.name not in names]
        return verdicts_of([*stored, *others])


def _made(name: str, asked: AskedRule) -> Rule | str:
    """Return a rule, or why it is none that can be made here."""
    if asked.problem or asked.source is not None:
        return asked.problem or f"{asked.source} is a file of its own"
    try:
        return create_rule(asked.invoked(name), asked.parameters)
    except (ImportError, ValueError) as error:
        return str(error)
