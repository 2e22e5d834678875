"""Reads the files of a job: its configured rules, its run and the rules' results."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hook_layer.format.errors import FormatError
from hook_layer.format.job_file import (
    JobFile,
    StopFile,
)
from hook_layer.format.paths import JOB_FILE, STOP_FILE
from hook_layer.storage.base import ObjectNotFoundError
from hook_layer.storage.small_files import read_small
from rule_runtime.configuration.requested_rules import RequestedRule, parse_rule_requests
from rule_runtime.engine.result_file import (
    MAX_RESULT_BYTES,
    RESULTS_PREFIX,
    RuleResult,
    parse_result,
    result_place,
)
from rule_runtime.jobs.job_location import read_configuration
from rule_runtime.trial.job_file import usable_job_file
from rule_runtime.trial.run_files import read_end_marker
from rule_runtime.trial.stop_request import read_stop_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from hook_layer.storage.base import Store
    from rule_runtime.jobs.job_paths import JobPaths

__all__ = ["JobFiles", "RunLife"]

logger = logging.getLogger("stepwatch")

_RESULT: Final = "/status.json"
_INTERRUPTED: Final = 130
"""Exit status of a script after Ctrl-C."""


@dataclass(frozen=True)
class RunLife:
    """The state of a run, from its files.

    Attributes:
        has_begun: Whether its hook wrote any file.
        has_ended: Whether its hook has written the end marker.
        is_asked_to_stop: Whether a stop was requested for this run.
        exit_status: Exit status of its script, as in a shell; None if the script was not watched.
    """

    has_begun: bool = False
    has_ended: bool = False
    is_asked_to_stop: bool = False
    exit_status: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the state with the member names of DescribeTrainingJob."""
        failure: dict[str, Any] = {}
        if not self.has_begun:
            status, secondary = "InProgress", "Starting"
        elif self.is_asked_to_stop:
            status = secondary = "Stopped" if self.has_ended else "Stopping"
        elif self.has_ended and self.exit_status == _INTERRUPTED:
            status = secondary = "Stopped"
        elif self.has_ended and self.exit_status:
            status = secondary = "Failed"
            failure["FailureReason"] = f"the script ended with status {self.exit_status}"
        elif self.has_ended:
            status = secondary = "Completed"
        else:
            status, secondary = "InProgress", "Training"
        return {"TrainingJobStatus": status, "SecondaryStatus": secondary, **failure}


class JobFiles:
    """The files of one job.

    Args:
        places: Paths of the files.
        open_store: Returns the store at a path.
        configuration: URI of the hook's configuration, if it is not in the job's folder.
        earlier_run: RunId of an earlier run, which is ignored.
    """

    def __init__(
        self,
        places: JobPaths,
        open_store: Callable[[str], Store],
        configuration: str | None = None,
        earlier_run: str | None = None,
    ) -> None:
        self._places = places
        self._open_store = open_store
        self._configuration_uri = configuration or places.configuration
        self._earlier_run = earlier_run
        self._root: Store | None = None
        self._has_begun = False
        self._configuration: Mapping[str, Any] | None = None

    @property
    def root(self) -> Store:
        """The trial's root, as found by the last read."""
        return self._root if self._root is not None else self._find_root()

    def _find_root(self) -> Store:
        """Find the root of the run: `stepwatch run` writes into the job's folder itself."""
        if self._root is not None and self._has_begun:
            return self._root
        root = self._open_store(self._places.root)
        self._has_begun = root.exists(JOB_FILE)
        if not self._has_begun:
            folder = self._open_store(self._places.folder)
            self._has_begun = folder.exists(JOB_FILE)
            root = folder if self._has_begun else root
        self._root = root
        return root

    def job_file(self) -> JobFile | None:
        """Return `job.json` of the job's run; None before it begins."""
        job = usable_job_file(self._find_root())
        return None if job is None or job.run_id == self._earlier_run else job

    def configuration(self) -> Mapping[str, Any] | None:
        """Return the hook's configuration as stored by `prepare`; None if there is none."""
        if self._configuration is None:
            self._configuration = read_configuration(self._configuration_uri, self._open_store)
        return self._configuration

    def parse_rule_requests(
        self, job: JobFile | None
    ) -> tuple[Mapping[str, RequestedRule] | None, tuple[str, ...]]:
        """Return the configured rules of the job, and the problems of the configuration.

        Args:
            job: The run's `job.json`; None before it begins.

        Returns:
            The rules by name, None if the deployed rules apply; and why entries are ignored.
        """
        asked: object
        if job is not None:
            asked = job.debug_rule_configurations
        else:
            asked = (self.configuration() or {}).get("DebugRuleConfigurations")
        return parse_rule_requests(asked) if isinstance(asked, (list, tuple)) else (None, ())

    def result(self, rule_configuration_name: str, job: JobFile | None) -> RuleResult | None:
        """Return the result of a rule in a run; None if there is none yet.

        Args:
            rule_configuration_name: The rule.
            job: The run's `job.json`; None before it begins, and for the original client.
        """
        folder, key = result_place(self.root.uri, rule_configuration_name)
        return self._result(self._open_store(folder), key, job)

    def results(self, job: JobFile | None) -> list[RuleResult]:
        """Return the results of rules in a run, sorted by name."""
        folder, _ = result_place(self.root.uri, "")
        store = self._open_store(folder)
        keys = [key for key in store.list(RESULTS_PREFIX) if key.endswith(_RESULT)]
        found = (self._result(store, key, job) for key in keys)
        return [result for result in found if result is not None]

    def life(self, job: JobFile | None) -> RunLife:
        """Return the state of a run.

        Args:
            job: The run's `job.json`; None before it begins.
        """
        if job is None:
            return RunLife()
        marker = read_end_marker(self.root)
        has_ended = marker is not None and marker.run_id in (None, job.run_id)
        return RunLife(
            has_begun=True,
            has_ended=has_ended,
            exit_status=marker.exit_status if marker is not None and has_ended else None,
            is_asked_to_stop=read_stop_request(self.root, job.run_id) is not None,
        )

    def ask_to_stop(self, request: StopFile) -> None:
        """Write `stop.json`."""
        self.root.put(STOP_FILE, request.encode())

    @staticmethod
    def _result(store: Store, key: str, job: JobFile | None) -> RuleResult | None:
        try:
            result = read_small(store, key, MAX_RESULT_BYTES, parse_result)
        except ObjectNotFoundError:
            return None
        except FormatError as error:
            logger.warning("%s", error)
            return None
        run = "" if job is None else job.run_id
        return result if result.run_id == run else None
