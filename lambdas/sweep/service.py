"""Wakes evaluations that receive no events.

Each sweep reads the index of active evaluations, the longest silent first. A run that is quiet for
a minute is woken, then every minute for ten minutes. Later, it is woken whenever the silence has
grown by about a tenth, so that a thousand jobs that save once an hour cost almost nothing. Every
sweep also wakes evaluations whose status was not announced. The evaluator decides what the silence
means.

Reports of SageMaker on a job are signs of life, too. A job whose spot instances were taken away is
interrupted, not silent.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from hook_layer.format.paths import job_name_of
from lambdas.contracts.events import (
    ACTIVE,
    CUSTOM_RULES,
    JOB_RULES,
    MAX_INDEX_LAG_S,
    STATE_PARTITION_KEY,
    STATE_SORT_KEY,
)
from lambdas.shared.wake import Wake, WakeReason
from lambdas.sweep.active_evaluations import ActiveEvaluation, BrokenItemError
from rule_runtime.configuration.requested_rules import is_rule_name

if TYPE_CHECKING:
    from lambdas.shared.items import Items
    from lambdas.shared.observability import Telemetry
    from lambdas.shared.registration import Heartbeat, RegistrationTable
    from lambdas.shared.wake import WakeQueue

__all__ = ["SweepIncompleteError", "SweepService", "silence_of"]

_PERIOD_S: Final = 60.0
"""Interval of sweeps, and the minimum silence, seconds."""
_DELAY_S: Final = 5.0
"""Maximum delay of a sweep, seconds."""
_BRIEF_S: Final = 600.0
"""Maximum silence for which every sweep wakes a run, seconds."""
_FAREWELL_S: Final = 600.0
"""Maximum delay until the last files of an interrupted job are visible, seconds."""
_RESERVED_SHARE: Final = 0.25
_BATCH: Final = 10


class SweepIncompleteError(Exception):
    """Some evaluations could not be woken; the next sweep tries again."""


@dataclass
class _Sweep:
    """Results of one sweep so far."""

    now: float
    num_active: int = 0
    num_woken: int = 0
    oldest_quiet_s: float = 0.0
    failed_rules: set[str] = field(default_factory=set)
    failed_jobs: set[str] = field(default_factory=set)
    signs: dict[str, Heartbeat | None] = field(default_factory=dict)
    waiting: dict[str, list[Wake]] = field(default_factory=lambda: defaultdict(list))


@dataclass(frozen=True, kw_only=True)
class SweepService:
    """Checks all active evaluations, and wakes those that are due.

    Attributes:
        max_silence_s: Seconds without a sign of life after which a run counts as ended.
        items: The table, whose index lists the active evaluations.
        registrations: SageMaker's reports on jobs.
        queue: The evaluators' queues.
        telemetry: Logs and metrics.
        clock: Seconds since the epoch.
    """

    max_silence_s: float
    items: Items
    registrations: RegistrationTable
    queue: WakeQueue
    telemetry: Telemetry
    clock: Callable[[], float]

    def sweep(self, remaining_ms: Callable[[], float]) -> int:
        """Wake all due evaluations; return their number.

        Args:
            remaining_ms: Returns the function's remaining time, milliseconds.

        Raises:
            SweepIncompleteError: A queue did not accept its messages, or SageMaker's report on a
                job could not be read. All others were processed.
        """
        reserve_ms = remaining_ms() * _RESERVED_SHARE
        sweep = _Sweep(self.clock())
        for item in self.items.active(ACTIVE):
            if remaining_ms() < reserve_ms:
                self.telemetry.count("SweepsCutShort")
                self.telemetry.warning("the sweep has no time for all", num_seen=sweep.num_active)
                break
            self._look_at(item, sweep)
        for rule in list(sweep.waiting):
            self._send(rule, sweep)
        self.telemetry.count("ActiveEvaluations", sweep.num_active)
        self.telemetry.count("Wakes", sweep.num_woken)
        self.telemetry.seconds("OldestQuietSeconds", sweep.oldest_quiet_s)
        if sweep.failed_rules or sweep.failed_jobs:
            raise SweepIncompleteError(
                f"queues that accepted no message: {sorted(sweep.failed_rules)}; jobs whose life "
                f"sign could not be read: {sorted(sweep.failed_jobs)[:_BATCH]}"
            )
        return sweep.num_woken

    def _look_at(self, item: Mapping[str, Any], sweep: _Sweep) -> None:
        if not item[STATE_PARTITION_KEY]["S"].startswith("s3://"):
            return  # of another function
        sweep.num_active += 1
        try:
            found = ActiveEvaluation.of_item(item)
        except BrokenItemError as error:
            self.telemetry.count("ItemsBroken")
            self.telemetry.warning(
                "an item of the table is skipped",
                problem=str(error),
                run=item[STATE_PARTITION_KEY]["S"],
                rule_configuration_name=item[STATE_SORT_KEY]["S"],
            )
            return
        quiet_s = sweep.now - found.updated_at
        sweep.oldest_quiet_s = max(sweep.oldest_quiet_s, quiet_s)
        if quiet_s < _PERIOD_S:
            return
        try:
            wake = self._wake(found, quiet_s, sweep)
        except ClientError as error:  # one job must not affect the others
            sweep.failed_jobs.add(job_name_of(found.key.root_uri))
            self.telemetry.error("life sign not read", exception=error, run=found.key.root_uri)
            return
        if wake is None:
            return
        queues = self._queues_of(found.key.rule)
        if not queues:
            self.telemetry.count("RulesNotDeployed")
        for name in queues:
            sweep.waiting[name].append(wake)
            if len(sweep.waiting[name]) >= _BATCH:
                self._send(name, sweep)

    def _queues_of(self, rule: str) -> list[str]:
        """Return the queues of a rule's evaluators: its own, or else those of jobs' rules.

        `job.json` decides which of these is responsible; the other one finds nothing to do. Every
        evaluator takes its rules out of the item of a group that no longer exists.
        """
        if rule == JOB_RULES and any(map(is_rule_name, self.queue.rules)):
            return list(self.queue.rules)
        names = (rule,) if rule in self.queue.rules else (JOB_RULES, CUSTOM_RULES)
        return [name for name in names if name in self.queue.rules]

    def _wake(self, found: ActiveEvaluation, quiet_s: float, sweep: _Sweep) -> Wake | None:
        root_uri, run_id = found.key.root_uri, found.key.run_id
        rule = found.key.rule if is_rule_name(found.key.rule) else ""  # a group: all its rules
        if found.has_ended or not found.is_announced:
            is_due = not found.is_announced or _is_due(quiet_s)
            return Wake(root_uri, run_id, WakeReason.SWEEP, rule=rule) if is_due else None
        silent_s = silence_of(found.updated_at, self._sign(root_uri, sweep), sweep.now)
        excess_s = silent_s - self.max_silence_s - MAX_INDEX_LAG_S
        if excess_s >= 0 and (_is_due(excess_s) or _is_due(silent_s)):
            return Wake(root_uri, run_id, WakeReason.SILENT, silent_s=silent_s, rule=rule)
        if _is_due(quiet_s):
            return Wake(root_uri, run_id, WakeReason.SWEEP, silent_s=silent_s, rule=rule)
        return None

    def _sign(self, root_uri: str, sweep: _Sweep) -> Heartbeat | None:
        # Only a folder with the job's name represents a SageMaker job.
        name = job_name_of(root_uri)
        if name not in sweep.signs:
            sweep.signs[name] = self.registrations.heartbeat(name)
        return sweep.signs[name]

    def _send(self, rule: str, sweep: _Sweep) -> None:
        wakes = sweep.waiting.pop(rule)
        try:
            self.queue.send_all(rule, wakes)
        except Exception as error:  # noqa: BLE001 - one queue must not affect the others
            sweep.failed_rules.add(rule)
            self.telemetry.error(
                "evaluations not woken", exception=error, rule_configuration_name=rule
            )
        else:
            sweep.num_woken += len(wakes)


def silence_of(updated_at: float, sign: Heartbeat | None, now: float) -> float:
    """Return the silence of a run in seconds; 0 while its job is interrupted.

    Args:
        updated_at: Time when files of the run were last processed, seconds since the epoch.
        sign: SageMaker's latest report on its job.
        now: Seconds since the epoch.
    """
    if sign is None:
        return max(now - updated_at, 0.0)
    # Files long after the interruption show that training continues.
    if sign.is_interrupted and updated_at <= sign.at + _FAREWELL_S:
        return 0.0
    return max(now - max(updated_at, sign.at), 0.0)


def _is_due(quiet_s: float) -> bool:
    """Return whether this sweep wakes an evaluation with this silence."""
    doublings = max(math.floor(math.log2(max(quiet_s, 1.0) / _BRIEF_S)), 0)
    every_s = math.ldexp(_PERIOD_S, doublings)
    return quiet_s // every_s != (quiet_s - _PERIOD_S - _DELAY_S) // every_s
