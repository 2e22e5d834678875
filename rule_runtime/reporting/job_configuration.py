"""Reads the configuration of a run: `job.json` and its collections."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from hook_layer.format.errors import JobFileError
from hook_layer.format.job_file import JobFile
from hook_layer.storage.base import Store
from rule_runtime.configuration.requested_rules import parse_rule_requests
from rule_runtime.reporting.tensor_kinds import TensorKinds
from rule_runtime.trial.job_file import read_job_file
from rule_runtime.trial.stored_settings import StoredReductionConfig, StoredSaveConfig

__all__ = ["JobConfiguration"]

_MAX_COLLECTIONS: Final = 40
_MAX_RULES: Final = 40
_MAX_REGEXES: Final = 4


@dataclass(frozen=True)
class JobConfiguration:
    """The configuration of a run.

    Attributes:
        job: Content of `job.json`; None if it is missing or unreadable.
        problem: Why it is unreadable.
        collections: Name, number of tensors, patterns and save settings of each collection.
    """

    job: JobFile | None
    problem: str
    collections: list[dict[str, Any]]

    @classmethod
    def read(cls, store: Store, kinds: TensorKinds, names: Iterable[str]) -> JobConfiguration:
        """Return the configuration of a run.

        Raises:
            StorageError: If the storage fails, except for a missing object.
        """
        job, problem = None, ""
        try:
            job = read_job_file(store)
            problem = "" if job else "there is no job.json"
        except JobFileError as error:
            problem = str(error)
        found = sorted(kinds.collections(names).items())
        described = [
            {
                "name": name,
                "tensors": len(entry.tensor_names),
                "patterns": entry.include_regex[:_MAX_REGEXES],
                "saved": _config_text(entry.save_config),
                "reductions": _config_text(entry.reduction_config),
            }
            for name, entry in found
            if entry.tensor_names or entry.include_regex
        ]
        return cls(job, problem, described[:_MAX_COLLECTIONS])

    @property
    def facts(self) -> dict[str, str]:
        """Facts about the job, by name."""
        if self.job is None:
            return {"job.json": self.problem}
        facts = {
            "job": self.job.training_job_name,
            "run": self.job.run_id,
            "platform": self.job.platform,
            "started": self.job.started_at,
            "ARN": self.job.training_job_arn or "",
            "rules": ", ".join(self.rules),
            "actions": ", ".join(str(action.get("name", "?")) for action in self.job.actions),
            "stopping": "opted out" if self.job.opt_out_of_stop else "",
        }
        return {name: text for name, text in facts.items() if text}

    @property
    def rules(self) -> list[str]:
        """The rules that the job configures, with their parameters and problems."""
        configured = () if self.job is None else self.job.debug_rule_configurations or ()
        rules, problems = parse_rule_requests(configured)
        shown_rules = []
        for name, rule in islice(rules.items(), _MAX_RULES):
            shown = rule.problem or _as_text(dict(rule.parameters))
            shown_rules.append(f"{name} ({shown})" if shown else name)
        return [*shown_rules, *problems]

    def to_json(self) -> dict[str, Any]:
        """Return the configuration as JSON."""
        return {"job": self.facts, "collections": self.collections}


def _config_text(config: StoredSaveConfig | StoredReductionConfig | None) -> str:
    return _as_text(None if config is None else config.to_json_dict())


def _as_text(config: dict[str, Any] | None) -> str:
    """Return a configuration on one line, without empty members."""
    parts = []
    for name, value in (config or {}).items():
        inner = _as_text(value) if isinstance(value, dict) else value
        if inner in (None, "", [], False):
            continue
        text = inner if isinstance(inner, str) else json.dumps(inner, default=str)
        parts.append(f"{name}: {text}" if not isinstance(value, dict) else f"{name}: ({text})")
    return ", ".join(parts)
