"""Runs a command with hooks in its training runs, and evaluates rules meanwhile."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from hook_layer.configuration.collections import CollectionKeys
from hook_layer.format.known_collections import meant_collection
from hook_layer.format.metric_names import GROWING_METRICS
from hook_layer.format.paths import ENVIRONMENT_FILE
from hook_layer.format.session_file import SessionFile
from hook_layer.frameworks import WATCHED
from hook_layer.run.environment import environment_file, masked
from hook_layer.run.session_log import LoggerRun, SessionLog, now_text
from hook_layer.storage.base import open_store
from rule_runtime.cli.evaluation import ExitStatus, exit_status_of_runs
from rule_runtime.cli.run_configuration import rule_configurations
from rule_runtime.cli.session_messages import SessionMessages
from rule_runtime.configuration.ranks import Ranks, include_workers
from rule_runtime.embedded.commands import (
    checked_command,
    hooked_environment,
    script_name,
)
from rule_runtime.embedded.console_log import ConsoleLog
from rule_runtime.embedded.hook_configuration import hook_configuration
from rule_runtime.embedded.live_judge import LiveJudge
from rule_runtime.embedded.nothing_captured import NothingCaptured, why_nothing
from rule_runtime.embedded.periodic_tasks import PeriodicTasks
from rule_runtime.embedded.session_folder import default_folder, make_session_folder
from rule_runtime.embedded.session_judge import JudgedRun, SessionJudge
from rule_runtime.embedded.stop_policy import StopPolicy
from rule_runtime.embedded.system_metrics import SystemMetrics
from rule_runtime.embedded.watched_script import ProcessEnd, watch_process
from rule_runtime.engine.rule import Rule
from rule_runtime.engine.state import EvaluationState
from rule_runtime.exporting.session_findings import session_findings
from rule_runtime.exporting.targets import Target, export

__all__ = ["BY_SIGNAL", "INTERRUPTED", "SCRIPT_FAILED", "RunOptions", "WatchedSession"]

SCRIPT_FAILED: Final = 4
"""Exit status if the script failed and no issue was found."""
INTERRUPTED: Final = 130
"""Exit status after Ctrl-C, as in a shell."""
_STOP_POLL_S: Final = "0.5"
"""Interval of a hook's checks for a stop request in a local folder, seconds."""
_STDOUT: Final = 1
BY_SIGNAL: Final = 128
"""Offset of a signal's number in the exit status, as in a shell."""


@dataclass(frozen=True)
class RunOptions:
    """Options for watching a command.

    Attributes:
        out_dir: Folder or URI of the session; None for a new folder in `runs/`.
        save_interval: Interval of saved steps; None for 10 after a dense start.
        stops: Which findings stop the session.
        patience_s: Seconds that the command has to end after a stop request.
        required: Names of the rules that must be evaluated.
        stdout: File descriptor for the script's standard output; None to inherit ours.
        notify_url: URL for messages about the run; None for none.
        keeps_console: Whether the session keeps the command's output.
        losses: Names of logged scalars that are losses.
        higher_is_better: Names of logged scalars of which higher values are better.
        exports: Where the findings are exported at the end.
    """

    out_dir: str | None
    save_interval: int | None
    stops: StopPolicy
    patience_s: float
    max_runs: int = 32
    ranks: Ranks = "auto"
    required: Sequence[str] = ()
    stdout: int | None = None
    notify_url: str | None = field(default=None, repr=False)
    keeps_console: bool = False
    losses: Sequence[str] = ()
    higher_is_better: Sequence[str] = ()
    exports: Sequence[Target] = ()


class WatchedSession:
    """A watched command, with the verdicts on each of its training runs.

    Attributes:
        path: Folder or URI of the session.
        why_nothing: Why nothing was captured, if so, once the command has ended.

    Raises:
        ValueError: The folder's URI or `notify_url` is invalid, or a rule misspells a collection.
        StorageError: The folder is not writable.
    """

    why_nothing = ""
    _num_not_watched = 0
    _logger_runs: Sequence[LoggerRun] = ()

    def __init__(
        self,
        command: Sequence[str],
        rules: Sequence[tuple[str, Rule]],
        options: RunOptions,
        console: Console,
    ) -> None:
        self._command = checked_command(command)
        _check_collections(rules)
        self._rules = rules
        self._options = options
        session = SessionFile(tuple(masked(command)), str(Path.cwd()), now_text())
        asked = options.out_dir or default_folder(script_name(command))
        self._messages = SessionMessages(
            Path(asked).name, options.stops, console, options.notify_url
        )
        self.path, self._store = make_session_folder(asked, session)
        self._store.put(ENVIRONMENT_FILE, environment_file(command))
        self._session = session
        self._judge: SessionJudge | None = None
        if self.path != asked:
            self._messages.line(f"{asked} holds another run: this session is in {self.path}")

    @property
    def runs(self) -> Sequence[JudgedRun]:
        """The training runs so far, with their verdicts."""
        return [] if self._judge is None else self._judge.runs

    @property
    def num_not_watched(self) -> int:
        """Number of training runs that were not watched, once the command has ended."""
        return self._num_not_watched

    def run(self) -> int:
        """Run the command and return the exit status.

        Raises:
            ValueError: The script or command does not exist, or needs of rules conflict.
            OSError: It cannot be run.
        """
        try:
            end = self._watch()
            self._messages.end(end)
            for run in self.runs:
                if cut := str(run.cut):
                    self._messages.line(f"{run.run.name}: {cut}" if len(self.runs) > 1 else cut)
        except BaseException as error:
            self._messages.broke_off(error)
            raise
        finally:
            self._messages.close()
        self._export()
        if end.failure is not None:
            self._messages.line(f"not evaluated to the end: {end.failure}")
        if end.passed_on is not None:
            self._messages.line(f"{end.passed_on.name} ended the command")
            return BY_SIGNAL + end.passed_on
        if end.was_interrupted:
            self._messages.line("the script was interrupted")
            return INTERRUPTED
        verdict = exit_status_of_runs(
            [run.states for run in self.runs], required=self._options.required
        )
        if end.failure is not None and verdict is ExitStatus.NO_ISSUE:
            verdict = ExitStatus.NOT_JUDGED
        if verdict is ExitStatus.ISSUE_FOUND or end.status == 0:
            return verdict
        self._messages.line(f"the script ended with status {end.status}")
        return SCRIPT_FAILED

    def empty_states(self) -> Mapping[str, EvaluationState]:
        """Return the verdicts if no run began: no rule was evaluated."""
        judge = LiveJudge(open_store("memory://no-run"), self._rules)
        judge.look(is_over=True)
        return judge.states

    def _export(self) -> None:
        for target in self._options.exports if self.runs else ():
            findings = session_findings(self.path, self.runs, self._logger_runs, target.value)
            export(target, findings, self._messages.line)

    def _watch(self) -> ProcessEnd:
        with tempfile.TemporaryDirectory(prefix="stepwatch-") as folder:
            config, notes_folder = Path(folder) / "stepwatch.json", Path(folder) / "notes"
            config.write_text(json.dumps(self._configuration()))
            notes = SessionLog.make(
                notes_folder, WATCHED, root=self._store.uri, max_runs=self._options.max_runs
            )
            judge = self._judge = SessionJudge(
                self._store,
                notes,
                self._rules,
                stops=self._options.stops,
                session=self._session,
            )
            status = None
            try:
                with ExitStack() as stack:
                    stdout, stderr = self._outputs(stack)
                    end = watch_process(
                        self._command,
                        judge,
                        patience_s=self._options.patience_s,
                        on_findings=lambda: self._messages.changes(judge.runs, judge.stopped_by),
                        stdout=stdout,
                        stderr=stderr,
                        environment=hooked_environment(config, notes_folder),
                        trainings=lambda: notes.trainings,
                        on_turn=NothingCaptured(notes, self._messages.line).look,
                    )
                status = end.status
            finally:
                judge.end(status)
            self._num_not_watched = notes.num_not_watched
            self._logger_runs = notes.logger_runs
            self.why_nothing = why_nothing(notes, end.status)
        return end

    def _outputs(self, stack: ExitStack) -> tuple[int | None, int | None]:
        """Record the machine's use and, if requested, the output; return where that goes."""
        metrics, stdout = SystemMetrics(self._store), self._options.stdout
        if not self._options.keeps_console:
            stack.enter_context(PeriodicTasks([metrics.sample]))
            return stdout, None
        console = ConsoleLog(self._store, _STDOUT if stdout is None else stdout)
        stack.enter_context(PeriodicTasks([metrics.sample, console.write]))
        stack.enter_context(console)  # ends first, so that the last task writes all of it
        return console.stdout, console.stderr

    def _configuration(self) -> dict[str, Any]:
        root = self._store.uri
        # In S3, a deployment may evaluate the runs by its own rules.
        is_here = root.startswith("file:")
        parameters = {
            "include_workers": include_workers(self._options.ranks),
            "stop_poll_s": _STOP_POLL_S,
        }
        options = self._options
        members = {
            CollectionKeys.LOSSES: options.losses,
            GROWING_METRICS: options.higher_is_better,
        }
        hook = hook_configuration(dict(self._rules), options.save_interval, parameters, members)
        return {
            **({"DebugRuleConfigurations": rule_configurations(self._rules)} if is_here else {}),
            "DebugHookConfig": {"LocalPath": root, **hook},
        }


def _check_collections(rules: Sequence[tuple[str, Rule]]) -> None:
    """Refuse misspelled collection names, which the hook would refuse in the command."""
    for name, rule in rules:
        for config in rule.requires():
            meant = meant_collection(config.name)
            if meant is not None and "include_regex" not in config.parameters:
                raise ValueError(
                    f"{name}: there is no collection {config.name!r}; did you mean {meant!r}?"
                )
