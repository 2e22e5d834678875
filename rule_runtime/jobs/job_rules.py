"""Lists the Stepwatch rules that evaluate a job."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from rule_runtime.jobs.deployment import Deployment, DeploymentError

if TYPE_CHECKING:
    from hook_layer.format.job_file import JobFile
    from rule_runtime.jobs.job_files import JobFiles

__all__ = ["JobRules"]

logger = logging.getLogger("stepwatch")


class JobRules:
    """The rules that evaluate a job: its configured rules, otherwise the deployed ones.

    Args:
        files: The job's files.
        deployment: The deployment that evaluates it; None for a local job.
    """

    def __init__(self, files: JobFiles, deployment: Deployment | None) -> None:
        self._files = files
        self._deployment = deployment
        self._reported: set[str] = set()

    def parameters(self, job: JobFile | None) -> dict[str, Mapping[str, Any]]:
        """Return the rules' parameters from the job, by rule name, in configured order.

        Args:
            job: The run's `job.json`; None before it begins.
        """
        rules, problems = self._files.parse_rule_requests(job)
        if rules is not None:
            for problem in problems:
                if problem not in self._reported:
                    logger.warning("%s", problem)
            self._reported.update(problems)
            return {name: rule.parameters for name, rule in rules.items()}
        judged = [result.rule for result in self._files.results(job)]
        # A job without Stepwatch files may be a job of SageMaker Debugger.
        is_ours = job is not None or self._files.configuration() is not None
        deployed = self._deployed if is_ours else ()
        return {name: {} for name in (*deployed, *judged)}

    def is_complete(self, job: JobFile | None) -> bool:
        """Return whether the list of rules can no longer grow while the job runs."""
        return self._files.parse_rule_requests(job)[0] is not None or bool(self._deployed)

    @cached_property
    def _deployed(self) -> tuple[str, ...]:
        """Names of the deployed rules; empty if unknown."""
        if self._deployment is None:
            return ()
        try:
            names = self._deployment.log_groups
        except DeploymentError as error:
            logger.warning("which rules are deployed is not known: %s", error)
            return ()
        return tuple(name for name in names if not name.startswith("#"))
