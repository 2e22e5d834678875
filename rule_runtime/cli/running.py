"""The command `run`: a training script with a hook in it, and rules that judge it meanwhile."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from hook_layer.autopatch import FRAMEWORKS
from hook_layer.autopatch.run_notes import RunNotes
from hook_layer.storage.base import open_store
from hook_layer.storage.probing import check_writable
from rule_runtime.cli.evaluation import ExitStatus, exit_status
from rule_runtime.cli.run_configuration import rule_configurations
from rule_runtime.cli.run_telling import RunTelling
from rule_runtime.configuration.packs import find_pack
from rule_runtime.configuration.ranks import Ranks, include_workers
from rule_runtime.embedded.commands import (
    hooked_command,
    hooked_environment,
    script_name,
    why_nothing,
)
from rule_runtime.embedded.exit_mark import mark_exit
from rule_runtime.embedded.live_judge import LiveJudge
from rule_runtime.embedded.watched_script import ProcessEnd, watch_process
from rule_runtime.evaluation.rule import Rule
from rule_runtime.evaluation.state import Counts, EvaluationState
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
        ranks: Which ranks of a distributed run write: `auto`, `all` or `chief`.
        stops: Names of the rules whose finding ends the training.
        patience_s: Seconds that the script may take to end once it was asked to.
        required: Names of the rules each of which must be able to judge.
        stdout: File descriptor that the script's standard output goes to; None: ours.
        notify_url: Where messages about the run are posted; None: nowhere.
    """

    out_dir: str
    save_interval: int
    stops: frozenset[str]
    patience_s: float
    ranks: Ranks = "auto"
    required: Sequence[str] = ()
    stdout: int | None = None
    notify_url: str | None = field(default=None, repr=False)


class WatchedRun:
    """One run of a script with rules that judge it.

    Args:
        rules: The rules and the names under which they are told.
        options: How the script is watched.
        told: Where changes of status are told.

    Attributes:
        why_nothing: Why nothing was captured, if that is so, once the command has ended.

    Raises:
        ValueError: The folder's URI cannot be opened, or `notify_url` is none.
        StorageError: Nothing can be written there.
    """

    why_nothing = ""

    def __init__(
        self, rules: Sequence[tuple[str, Rule]], options: RunOptions, told: Console
    ) -> None:
        self._rules = rules
        self._options = options
        job = Path(options.out_dir).name
        self._telling = RunTelling(job, options.stops, told, options.notify_url)
        check_writable(options.out_dir)
        self._store = store = open_store(options.out_dir)
        self._judge = LiveJudge(
            store,
            rules,
            stops=lambda name: name in options.stops,
            earlier_run=named_run(store),
        )

    @property
    def out_dir(self) -> str:
        """Folder or URI of its tensors."""
        return self._options.out_dir

    @property
    def has_steps(self) -> bool:
        """Whether there was anything to judge."""
        return any(state.counts != Counts() for state in self.states.values())

    @property
    def states(self) -> Mapping[str, EvaluationState]:
        """The state of each rule, by its name."""
        return self._judge.states

    def run(self, command: Sequence[str]) -> int:
        """Run a command and return the exit status to end with.

        Args:
            command: The command of the user.

        Raises:
            ValueError: There is no such script or command, or rules ask for what cannot be had
                together.
            OSError: It cannot be run.
            StorageError: What it stores cannot be read.
        """
        try:
            end = self._watch(command)
            self._telling.end(end)
        except BaseException as error:
            self._telling.broke_off(error)
            raise
        finally:
            self._telling.close()
        mark_exit(self._store, self._judge.run, end.status)
        if end.was_interrupted:
            self._telling.line("the script was interrupted")
            return INTERRUPTED
        verdict = exit_status(self.states, required=self._options.required)
        if verdict is ExitStatus.ISSUE_FOUND or end.status == 0:
            return verdict
        self._telling.line(f"the script ended with status {end.status}")
        return SCRIPT_FAILED

    def _watch(self, command: Sequence[str]) -> ProcessEnd:
        with tempfile.TemporaryDirectory(prefix="stepwatch-") as folder:
            config, notes_folder = Path(folder) / "stepwatch.json", Path(folder) / "notes"
            config.write_text(json.dumps(self._configuration()))
            notes = RunNotes.make(notes_folder, FRAMEWORKS)
            end = watch_process(
                hooked_command(command, config),
                self._judge,
                patience_s=self._options.patience_s,
                on_news=lambda: self._telling.changes(self.states, self._judge.stopped_by),
                stdout=self._options.stdout,
                environment=hooked_environment(config, notes_folder),
                trainings=lambda: notes.trainings,
            )
            self.why_nothing = why_nothing(notes)
        return end

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
                    "include_workers": include_workers(self._options.ranks),
                    "stop_poll_s": "0.5",
                },
                "CollectionConfigurations": [each.to_json() for each in collections],
            },
        }


def default_out_dir(command: Sequence[str]) -> str:
    """Return a new folder below `runs/` that is named after the script and the time.

    Args:
        command: The command of the user.
    """
    now = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
    return str(Path("runs") / f"{script_name(command)}-{now}")
