"""The command `run`: a training script with a hook in it, and rules that judge it meanwhile."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from hook_layer.configuration.configuration_file import OWN_VARIABLE
from hook_layer.storage.base import open_store
from hook_layer.storage.probing import check_writable
from rule_runtime.cli.evaluation import ExitStatus, exit_status
from rule_runtime.cli.run_configuration import rule_configurations
from rule_runtime.configuration.packs import find_pack
from rule_runtime.embedded.exit_mark import mark_exit
from rule_runtime.embedded.live_judge import LiveJudge
from rule_runtime.embedded.watched_script import hooked_command, script_name, watch_process
from rule_runtime.evaluation.outcome import RuleStatus, status_details
from rule_runtime.evaluation.rule import Rule
from rule_runtime.evaluation.state import EvaluationState
from rule_runtime.trial.run_files import named_run

__all__ = ["INTERRUPTED", "SCRIPT_FAILED", "RunOptions", "WatchedRun", "default_out_dir"]

SCRIPT_FAILED: Final = 4
"""Exit status where no issue was found, and the script ended with a status of its own."""
INTERRUPTED: Final = 130
"""Exit status behind Ctrl-C, as a shell has it."""


@dataclass(frozen=True)
class RunOptions:
    """How a script is watched.

    Attributes:
        out_dir: Folder or URI that the hook writes to.
        save_interval: Steps between two that are saved.
        stops: Names of the rules whose finding ends the training.
        patience_s: Seconds that the script may take to end once it was asked to.
        required: Names of the rules each of which must be able to judge.
        stdout: File descriptor that the script's standard output goes to; None: ours.
    """

    out_dir: str
    save_interval: int
    stops: frozenset[str]
    patience_s: float
    required: Sequence[str] = ()
    stdout: int | None = None


class WatchedRun:
    """One run of a script with rules that judge it.

    Args:
        rules: The rules and the names under which they are told.
        options: How the script is watched.
        told: Where changes of status are told.

    Raises:
        ValueError: The folder's URI cannot be opened.
        StorageError: Nothing can be written there.
    """

    def __init__(
        self, rules: Sequence[tuple[str, Rule]], options: RunOptions, told: Console
    ) -> None:
        self._rules = rules
        self._options = options
        self._told = told
        self._statuses: dict[str, RuleStatus] = {}
        self._has_told_of_stop = self._has_told_of_more = False
        check_writable(options.out_dir)
        self._store = store = open_store(options.out_dir)
        self._judge = LiveJudge(
            store,
            rules,
            stops=lambda name: name in options.stops,
            earlier_run=named_run(store),
        )

    @property
    def states(self) -> Mapping[str, EvaluationState]:
        """The state of each rule, by its name."""
        return self._judge.states

    def run(self, command: Sequence[str]) -> int:
        """Run a command and return the exit status to end with.

        Args:
            command: The command of the user.

        Raises:
            ValueError: It is no script of Python, there is none of its name, or rules ask for what
                cannot be had together.
            OSError: It cannot be run.
            StorageError: What it stores cannot be read.
        """
        with tempfile.TemporaryDirectory(prefix="stepwatch-") as folder:
            config = Path(folder) / "stepwatch.json"
            config.write_text(json.dumps(self._configuration()))
            end = watch_process(
                hooked_command(command, config),
                self._judge,
                patience_s=self._options.patience_s,
                on_news=self._tell,
                stdout=self._options.stdout,
                # A hook that the script makes by a file is made by this one.
                environment={OWN_VARIABLE: str(config)},
            )
        mark_exit(self._store, self._judge.run, end.status)
        if end.was_interrupted:
            self._told.print("the script was interrupted", soft_wrap=True)
            return INTERRUPTED
        verdict = exit_status(self.states, required=self._options.required)
        if verdict is ExitStatus.ISSUE_FOUND or end.status == 0:
            return verdict
        self._told.print(f"the script ended with status {end.status}", soft_wrap=True)
        return SCRIPT_FAILED

    def _configuration(self) -> dict[str, Any]:
        pack = find_pack("recommended").with_interval(self._options.save_interval)
        collections = pack.collections_for(rule for _, rule in self._rules)
        # Elsewhere than here a deployment may judge the job, and by rules of its own.
        is_here = "://" not in self._options.out_dir
        return {
            "TrainingJobName": Path(self._options.out_dir).name,
            **({"DebugRuleConfigurations": rule_configurations(self._rules)} if is_here else {}),
            "DebugHookConfig": {
                "LocalPath": self._options.out_dir,
                "HookParameters": {
                    "save_interval": str(self._options.save_interval),
                    "stop_poll_s": "0.5",
                },
                "CollectionConfigurations": [each.to_json() for each in collections],
            },
        }

    def _tell(self) -> None:
        for name, state in self.states.items():
            if self._statuses.get(name, RuleStatus.IN_PROGRESS) is state.status:
                continue
            self._statuses[name] = state.status
            if state.status is RuleStatus.ISSUES_FOUND:
                details = status_details(name, state).rpartition("\n")[2]
                self._told.print(f"{name}: {details}", style="red", markup=False, soft_wrap=True)
                self._tell_that_it_goes_on(name)
        stopped_by = self._judge.stopped_by
        if stopped_by is not None and not self._has_told_of_stop:
            self._has_told_of_stop = True
            self._told.print(
                f"the training is asked to stop because of {stopped_by}",
                markup=False,
                soft_wrap=True,
            )

    def _tell_that_it_goes_on(self, name: str) -> None:
        stops = self._options.stops
        if stops and name not in stops and not self._has_told_of_more:
            self._has_told_of_more = True
            self._told.print(
                "the training goes on: serious issues alone stop it; `--stop any` stops at any",
                markup=False,
                soft_wrap=True,
            )


def default_out_dir(command: Sequence[str]) -> str:
    """Return a new folder below `runs/` that is named after the script and the time.

    Args:
        command: The command of the user.
    """
    now = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
    return str(Path("runs") / f"{script_name(command)}-{now}")
