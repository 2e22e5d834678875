"""Evaluates all runs of a session while they train."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hook_layer.format.job_file import StopFile
from hook_layer.format.session_file import SESSION_FILE, SessionFile, SessionRun
from hook_layer.run.session_log import SessionLog, now_text
from hook_layer.storage.base import StorageError, Store, open_store
from rule_runtime.embedded.exit_mark import mark_exit, shell_status
from rule_runtime.embedded.live_judge import LiveJudge
from rule_runtime.embedded.stop_policy import StopPolicy
from rule_runtime.engine.rule import Rule
from rule_runtime.engine.state import Counts, EvaluationState
from rule_runtime.trial.cut_values import CutValues

__all__ = ["JudgedRun", "SessionJudge"]

logger = logging.getLogger("stepwatch")


@dataclass
class JudgedRun:
    """A run of the session with its verdicts.

    Attributes:
        run: The run.
        store: The trial's root.
        judge: Its evaluation.
        cut: The values stored with only their first rows.
        is_over: Whether its verdicts are final.
    """

    run: SessionRun
    store: Store
    judge: LiveJudge
    cut: CutValues
    is_over: bool = False

    @property
    def states(self) -> Mapping[str, EvaluationState]:
        """The state of each rule, by its name."""
        return self.judge.states

    @property
    def has_steps(self) -> bool:
        """Whether any step was evaluated."""
        return any(state.counts != Counts() for state in self.states.values())


class SessionJudge:
    """Evaluates each run of a session with the same rules, and stops the session at a finding.

    Args:
        store: The session's folder.
        notes: Notes of the session's processes.
        rules: The rules by displayed name.
        stops: Which findings stop the session.
        session: Current content of `session.json`.
    """

    def __init__(
        self,
        store: Store,
        notes: SessionLog,
        rules: Sequence[tuple[str, Rule]],
        *,
        stops: StopPolicy,
        session: SessionFile,
    ) -> None:
        self._store = store
        self._notes = notes
        self._rules = rules
        self._stops = stops
        self._session = session
        self._by_name: dict[str, JudgedRun] = {}
        self._request: StopFile | None = None

    @property
    def runs(self) -> list[JudgedRun]:
        """The runs in the order of their start."""
        return list(self._by_name.values())

    @property
    def stopped_by(self) -> str | None:
        """Name of the rule whose finding stopped the session; None without one."""
        return None if self._request is None else self._request.rule_configuration_name

    @property
    def num_not_watched(self) -> int:
        """Number of further runs that are not watched."""
        return self._notes.num_not_watched

    def look(self, *, is_over: bool = False) -> bool:
        """Read new files of all runs, and stop the session if a finding requires it.

        Args:
            is_over: True once the command has ended: all verdicts become final.

        Returns:
            Whether there was new data.

        Raises:
            StorageError: A run cannot be read. The others were updated; the next call continues.
        """
        has_changes = False
        failure: StorageError | None = None
        noted = {each.run.name: each for each in self._notes.runs}
        for name, each in noted.items():
            if name not in self._by_name:
                self._begin(each.run)
                has_changes = True
            self._by_name[name].run = each.run
        for name, judged in self._by_name.items():
            if judged.is_over:
                continue
            is_final = is_over or (name in noted and noted[name].is_over)
            try:
                has_changes |= self._look_at(judged, is_final=is_final)
                if not is_over:
                    self._stop_if_found(judged)
            except StorageError as error:
                failure = error
        self._write()
        if failure is not None:
            raise failure
        return has_changes

    def end(self, status: int | None) -> None:
        """Write the command's result into the session, and into the runs that ended with it.

        Args:
            status: Its exit status, negative for a signal; None if unknown.
        """
        runs = self.runs
        for judged in runs:
            is_last = judged is runs[-1]
            mark_exit(judged.store, judged.run.run_id, status if is_last else None)
        self._write(
            ended_at=now_text(), exit_status=None if status is None else shell_status(status)
        )

    def _begin(self, run: SessionRun) -> None:
        store = open_store(run.uri)
        cut = CutValues()
        judge = LiveJudge(store, self._rules, stops=self._stops, run=run.run_id, on_files=cut.add)
        self._by_name[run.name] = JudgedRun(run, store, judge, cut)

    def _look_at(self, judged: JudgedRun, *, is_final: bool) -> bool:
        has_changes = judged.judge.look(is_over=is_final)
        judged.is_over = is_final
        return has_changes

    def _stop_if_found(self, judged: JudgedRun) -> None:
        """Stop the session if a finding of this run requires it, and the run if it is stopped."""
        if self._request is None:
            self._request = judged.judge.stop_request
            if self._request is not None:
                self._notes.request_stop(self._request)
        if self._request is not None and not judged.is_over:
            judged.judge.ask_to_stop(self._request)

    def _write(self, *, ended_at: str | None = None, exit_status: int | None = None) -> None:
        root = self._store.uri
        session = replace(
            self._session,
            runs=tuple(
                replace(each.run, uri="") if each.run.uri == f"{root}{each.run.name}/" else each.run
                for each in self.runs
            ),
            runs_not_watched=self.num_not_watched,
            stopped_by=self.stopped_by,
            ended_at=ended_at,
            exit_status=exit_status,
        )
        if session == self._session:
            return
        self._session = session
        try:
            self._store.put(SESSION_FILE, session.encode())
        except StorageError as error:
            logger.warning("%s of %s is not written: %s", SESSION_FILE, root, error)
