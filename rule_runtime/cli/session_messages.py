"""Sends messages about a session to the terminal and to a webhook."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from rich.console import Console
from rich.control import Control
from rich.segment import ControlType

from rule_runtime.cli.tables import harmless
from rule_runtime.diagnosis.diagnosis import Diagnosis, diagnosis_of_states
from rule_runtime.embedded.notifier import Notifier, message
from rule_runtime.embedded.session_judge import JudgedRun
from rule_runtime.embedded.stop_policy import StopPolicy
from rule_runtime.embedded.watched_script import ProcessEnd
from rule_runtime.engine.outcome import RuleStatus, status_details, without_api_prefix
from rule_runtime.engine.state import EvaluationState

__all__ = ["SessionMessages"]

_CLEAR_LINE: Final = Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2))


class SessionMessages:
    """Reports each finding once, stop requests and the end, to the terminal and a URL.

    Raises:
        ValueError: `notify_url` is not an http or https URL.
    """

    def __init__(
        self, job: str, stops: StopPolicy, console: Console, notify_url: str | None
    ) -> None:
        self._job = job
        self._stops = stops
        self._console = console
        self._notifier = None if notify_url is None else Notifier(notify_url, self._problem)
        self._found: dict[tuple[str, str], None] = {}  # by run and rule, in order
        self._diagnoses: dict[str, Diagnosis] = {}  # by run
        self._begun_again: set[str] = set()
        self._stopped_by: str | None = None
        self._said_that_it_continues = False

    def changes(self, runs: Sequence[JudgedRun], stopped_by: str | None) -> None:
        """Report new findings of runs, and the rule that requested the stop."""
        for run in runs:
            self._report_attempt(run)
            num_known = len(self._found)
            for name, state in run.states.items():
                is_new = (run.run.name, name) not in self._found
                if state.status is RuleStatus.ISSUES_FOUND and is_new:
                    self._found[run.run.name, name] = None
                    self._report(run.run.name if len(runs) > 1 else "", name, state)
            if len(self._found) > num_known:
                self._report_cause(run, of_run=f"{run.run.name}: " if len(runs) > 1 else "")
        if stopped_by is not None and self._stopped_by is None:
            self._stopped_by = stopped_by
            self.line(f"stop requested by {stopped_by}")

    def _report_attempt(self, run: JudgedRun) -> None:
        """Report once that a program restarted, and the step at which it continues."""
        name, attempt, first = run.run.name, run.run.attempt, run.judge.first_step
        if attempt == 1 or first is None or name in self._begun_again:
            return
        self._begun_again.add(name)
        steps = f"continues at step {first}" if first else "counts from step 0"
        self.line(f"{name}: the same program began again, attempt {attempt}; it {steps}")

    def _report(self, run: str, name: str, state: EvaluationState) -> None:
        details = without_api_prefix(status_details(name, state))
        of_run = f"{run}: " if run else ""
        self._begin_line()
        self.line(f"{of_run}{name}: {details}", style="red")
        step = None if state.evidence is None else state.evidence.step
        self._send(f"{of_run}{name} found an issue: {details}", name, "IssuesFound", step, details)
        if not self._stops.stops(name, state.evidence):
            self._say_that_it_continues()

    def _report_cause(self, run: JudgedRun, *, of_run: str) -> None:
        """Print the cause of the findings so far, when it is new or another one."""
        before = self._diagnoses.get(run.run.name)
        diagnosis = diagnosis_of_states(run.states)
        if diagnosis is not None:
            self._diagnoses[run.run.name] = diagnosis
            if before is None or diagnosis.first.cause != before.first.cause:
                self.line(f"{of_run}{diagnosis.headline}", style="bold red")

    def end(self, end: ProcessEnd) -> None:
        """Send the result of the command."""
        if end.passed_on is not None:
            status, details = "Stopped", f"{end.passed_on.name} ended the command"
        elif self._stopped_by is not None:
            status, details = "Stopped", f"stopped by {self._stopped_by}"
        elif end.was_interrupted:
            status, details = "Stopped", "the script was interrupted"
        elif end.status != 0:
            status, details = "Failed", f"the script ended with status {end.status}"
        else:
            status, details = "Completed", "the training has ended"
        found = ", ".join(dict.fromkeys(rule for _, rule in self._found)) or "none"
        details = f"{details}; rules that found issues: {found}"
        for name, diagnosis in self._diagnoses.items():
            of_run = f"{name}: " if len(self._diagnoses) > 1 else ""
            change = diagnosis.first.advice
            details += f"\n{of_run}{diagnosis.headline}. Change: {change}"
        self._send(details, None, status, None, details)

    def broke_off(self, error: BaseException) -> None:
        """Send that watching failed; the result of the run is unknown."""
        details = f"the run is no longer watched: {type(error).__name__}"
        self._send(details, None, "Error", None, details)

    def close(self) -> None:
        """Wait briefly until the messages are sent."""
        if self._notifier is not None:
            self._notifier.close()

    def line(self, text: str, style: str | None = None) -> None:
        """Print a line on the terminal."""
        with suppress(OSError):  # the terminal may be closed
            self._console.print(harmless(text), style=style, markup=False, soft_wrap=True)

    def _begin_line(self) -> None:
        """Start a new line; a progress bar of the script continues below it."""
        with suppress(OSError):
            if self._console.is_terminal:
                self._console.control(_CLEAR_LINE)
            else:
                self._console.print()  # the position of the cursor is unknown

    def _send(
        self, text: str, rule: str | None, status: str, step: int | None, details: str
    ) -> None:
        if self._notifier is not None:
            self._notifier.send(
                message(self._job, text, rule=rule, status=status, step=step, details=details)
            )

    def _problem(self, problem: str) -> None:
        with suppress(Exception):  # by another thread; the terminal may be closed
            self.line(f"stepwatch: {problem}")

    def _say_that_it_continues(self) -> None:
        if any(self._stops) and not self._said_that_it_continues:
            self._said_that_it_continues = True
            self.line("the run continues: only fatal findings stop it; `--stop any` stops at any")
