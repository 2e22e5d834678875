"""Rules that a job's `job.json` configures, and that have no function of their own.

Two functions share them. One runs only the files that the deployer pinned. The other evaluates the
built-in rules, and reports all invalid configurations. Name and parameters of a configuration alone
decide which function is responsible, so both always agree.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from hook_layer.storage.base import StoreRefusedError
from lambdas.evaluate_rule.rules import (
    NOT_CONFIGURED,
    RULE_TO_INVOKE,
    MadeRules,
    RuleConfigurationError,
    requested_rule,
    usable_parameters,
)
from rule_runtime.configuration.requested_rules import PROBLEMS
from rule_runtime.engine.registry import create_rule

if TYPE_CHECKING:
    from hook_layer.storage.base import Store
    from lambdas.shared.environment_reader import CustomRules
    from lambdas.shared.registration import Registration
    from rule_runtime.engine.rule import Rule

__all__ = ["MAX_JOB_RULES", "JobRules"]

MAX_JOB_RULES: Final = 40
"""Maximum own rules of a job, as in CreateTrainingJob."""

_SOURCE: Final = "source_s3_uri"
_MAX_SHOWN: Final = 5


class JobRules:
    """Rules that jobs configure themselves.

    Args:
        deployed: Names of rules with their own functions.
        custom: The files that jobs may use.
        runs_files: Whether this function runs those files; otherwise it has all other rules.
        open_store: Returns the store at a folder of the files.
    """

    def __init__(
        self,
        deployed: Collection[str],
        custom: CustomRules,
        *,
        runs_files: bool,
        open_store: Callable[[str], Store],
    ) -> None:
        self._deployed = frozenset(deployed)
        self._custom = custom
        self._runs_files = runs_files
        self._open_store = open_store
        self._made = MadeRules()

    def names(self, job: Registration) -> Sequence[str]:
        """Return the configuration names of a job's rules that this function evaluates."""
        found = [name for name in islice(self._own(job), MAX_JOB_RULES) if self._is_here(name, job)]
        if not self._runs_files and self._problems(job):
            found.append(PROBLEMS)
        return found

    def includes(self, name: str, job: Registration) -> bool:
        """Return whether this function evaluates a rule that a wake names.

        The function without files reports rules that no job configures any more.
        """
        return name not in self._deployed and self._is_here(name, job)

    def rule(self, name: str, job: Registration) -> Rule:
        """Return a rule as configured by the job.

        Raises:
            RuleConfigurationError: The rule does not exist, or its parameters are invalid.
            StorageError: Its file is temporarily unreadable.
        """
        if name == PROBLEMS:
            raise RuleConfigurationError("; ".join(["job.json is invalid", *self._problems(job)]))
        if job.rules is None or name not in job.rules:
            raise RuleConfigurationError(NOT_CONFIGURED)
        wanted = usable_parameters(job.rules[name])
        # The name is part of the identity: some configuration names select the rule.
        identity = {RULE_TO_INVOKE: name, **wanted}
        return self._made.rule(identity, lambda: self._make(name, wanted))

    def _make(self, name: str, wanted: Mapping[str, Any]) -> Rule:
        if _SOURCE in wanted:
            return self._load(wanted)
        return create_rule(wanted.get(RULE_TO_INVOKE) or name, wanted)

    def _load(self, wanted: Mapping[str, Any]) -> Rule:
        source, invoked = wanted[_SOURCE], wanted.get(RULE_TO_INVOKE)
        sha256 = self._custom.sha256_of(source)
        if sha256 is None:
            raise RuleConfigurationError(self._not_allowed(source))
        if not isinstance(invoked, str):
            raise RuleConfigurationError(
                f"{RULE_TO_INVOKE} is {invoked!r:.60}: name the rule's class in {source}"
            )
        from rule_runtime.custom_rules.loader import load_custom_rule  # noqa: PLC0415 - rarely needed

        try:
            return load_custom_rule(
                source,
                invoked,
                wanted,
                allowed=[self._custom.uri],
                sha256=sha256,
                open_folder=self._open_store,
            )
        except StoreRefusedError as error:
            raise RuleConfigurationError(
                f"{source} is missing or unreadable: upload the pinned file ({error})"
            ) from error

    def _not_allowed(self, source: object) -> str:
        files = self._custom.sha256_by_key
        if not files:
            return (
                f"{_SOURCE} is {source!r:.200}, but this deployment runs no custom rules: "
                "its deployer must pin the file in the setting stepwatch:custom_rules"
            )
        shown = ", ".join(f"{self._custom.uri}/{key}" for key in islice(sorted(files), _MAX_SHOWN))
        more = f" and {len(files) - _MAX_SHOWN} more" if len(files) > _MAX_SHOWN else ""
        return (
            f"{_SOURCE} is {source!r:.200}, which the deployer did not pin in the setting "
            f"stepwatch:custom_rules; pinned are {shown}{more}"
        )

    def _own(self, job: Registration) -> list[str]:
        return [name for name in job.rules or () if name not in self._deployed]

    def _is_here(self, name: str, job: Registration) -> bool:
        source = requested_rule(job, name).source
        return (self._custom.sha256_of(source) is not None) is self._runs_files

    def _problems(self, job: Registration) -> list[str]:
        left_out = self._own(job)[MAX_JOB_RULES:]
        problems = list(job.rule_problems)
        if left_out:
            shown = ", ".join(f"{name!r:.60}" for name in left_out[:_MAX_SHOWN])
            problems.append(
                f"of the rules without a function of their own, {MAX_JOB_RULES} are evaluated, "
                f"and {len(left_out)} are skipped: {shown}{', ...' * (len(left_out) > _MAX_SHOWN)}"
            )
        return problems
