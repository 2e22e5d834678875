"""One soak: deploy, let jobs write and things go wrong, wait until all is done, gather."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from infra.local import LocalTarget
from infra.local.poller_process import PollerError, PollerProcess
from tests.soak.checking import Findings
from tests.soak.faults import FaultyServices, Misfortune
from tests.soak.gathering import Gathering
from tests.soak.plan import JobPlan, drawn_jobs
from tests.soak.report import Course
from tests.soak.writing import WritingJobs

FILES_PER_S = 2.0
"""What all jobs together write. Each file leads to a dozen requests, which the emulator answers in
one thread; half a core of a machine that does other things, too, is to keep up nearly."""
SWEEP_S_PER_RULE = 5.0
"""Time between two schedules, as each wakes the evaluations of every rule; a minute on AWS."""
EVALUATOR_TIMEOUT_S = 30
"""Short, so that what a killed evaluator had in hand comes back in three minutes."""
BATCH_SIZE = 5
"""Half of the usual one, so that a slow machine, too, is through with a batch in that time."""
KILLS_PER_MINUTE = 2
KILL_AFTER_REQUESTS = (100, 1500)
"""Requests of the functions between two kills: in the midst of work, however fast a machine is."""
DEAD_S = (0.0, 5.0)
SETTLING_S = 3600.0
"""The longest time until all is done: the emulator, one process, answers 65 requests a second."""
LOOK_S = 2.0
LOOK_BRIEFLY_S, LOOK_RARELY_S = 0.02, 10.0


@dataclass(frozen=True)
class Settings:
    """What is to happen.

    Attributes:
        num_jobs: Number of jobs.
        span_s: How long they write, seconds.
        failures: Share of the functions' requests that fail.
        seed: Seed of all draws.
        rules: The rules and their parameters.
        evaluators: `per_rule` or `grouped`.
    """

    num_jobs: int
    span_s: float
    failures: float
    seed: int
    rules: Mapping[str, Mapping[str, str]]
    evaluators: str = "per_rule"

    def context(self) -> dict[str, object]:
        """Return the deployment's settings: every rule stops jobs."""
        return {
            "stepwatch:evaluators": self.evaluators,
            "stepwatch:rules": {name: dict(parameters) for name, parameters in self.rules.items()},
            "stepwatch:stop_policy": "watched",
            "stepwatch:stop_rules": "",
            "stepwatch:evaluator_timeout_s": EVALUATOR_TIMEOUT_S,
            "stepwatch:batch_size": BATCH_SIZE,
            "stepwatch:max_silence_s": 300,
        }

    def jobs(self) -> list[JobPlan]:
        """Return the jobs."""
        return drawn_jobs(
            self.seed,
            num_jobs=self.num_jobs,
            span_s=self.span_s,
            files_per_s=FILES_PER_S,
            rules=tuple(self.rules),
        )

    @property
    def sweep_s(self) -> float:
        """Time between two schedules."""
        return SWEEP_S_PER_RULE * len(self.rules)

    @property
    def most_kills(self) -> int:
        """How often the poller is killed, if there are requests enough."""
        return max(round(KILLS_PER_MINUTE * self.span_s / 60), 1)


class Killer:
    """Kills the poller, with the functions, at random requests of theirs, and starts it again.

    Args:
        poller: The poller.
        misfortune: Knows how many requests there were.
        chance: When.
        most: How often.
    """

    def __init__(
        self, poller: PollerProcess, misfortune: Misfortune, chance: random.Random, most: int
    ) -> None:
        self.num_kills = 0
        self._poller, self._misfortune = poller, misfortune
        self._chance, self._most = chance, most
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, with a poller that lives."""
        self._end.set()
        self._thread.join()
        self._poller.start()

    def _run(self) -> None:
        while self.num_kills < self._most and self._waits_for_a_request():
            self._poller.kill()
            self.num_kills += 1
            self._end.wait(self._chance.uniform(*DEAD_S))
            while not (self._poller.running or self._end.is_set()):
                with suppress(PollerError):  # a slow machine: it is tried again
                    self._poller.start()

    def _waits_for_a_request(self) -> bool:
        number = self._misfortune.num_requests + self._chance.randint(*KILL_AFTER_REQUESTS)
        while self._misfortune.num_requests < number:
            if self._end.wait(LOOK_BRIEFLY_S):
                return False
        return True


def soak(
    settings: Settings, workdir: Path, tell: Callable[[str], None]
) -> tuple[Findings, Course, Misfortune]:
    """Let it all happen; return what became of it.

    Args:
        settings: What is to happen.
        workdir: Folder of the deployment's files.
        tell: Shows how far it is.
    """
    misfortune = Misfortune(settings.seed, settings.failures)
    tell("deploying")
    with LocalTarget(
        settings.context(),
        workdir=workdir,
        middleware=lambda application: FaultyServices(application, misfortune),
    ) as target:
        plans = settings.jobs()
        gathering = Gathering(target, plans, settings.rules)
        gathering.subscribe()
        schedule = _Schedule(target, settings.sweep_s)
        chance = random.Random(f"kills {settings.seed}")
        killer = Killer(target.poller, misfortune, chance, most=settings.most_kills)
        begin = time.monotonic()
        jobs = WritingJobs(target, plans)
        killer.start()
        while jobs.are_running:
            schedule.run_if_due()
            tell(f"{jobs.num_files} files, {killer.num_kills} kills")
            time.sleep(LOOK_S)
        written = time.monotonic()
        _settle(gathering, schedule, target, tell)
        killer.stop()
        course = Course(
            jobs.num_files,
            killer.num_kills,
            schedule.num_runs,
            written - begin,
            time.monotonic() - written,
            tuple(_latencies_s(workdir)),
        )
        tell("comparing")
        return gathering.findings(jobs.errors), course, misfortune


def _latencies_s(workdir: Path) -> Iterator[float]:
    """Yield the seconds from a file to each verdict, from the logs of the functions."""
    for path in (workdir / "logs").glob("*"):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            if '"VerdictLatency":' in line:
                yield from (ms / 1000 for ms in json.loads(line)["VerdictLatency"])


class _Schedule:
    """Calls what a schedule calls, whenever it is due."""

    def __init__(self, target: LocalTarget, interval_s: float) -> None:
        self.num_runs = 0
        self._target = target
        self._interval_s = interval_s
        self._due = time.monotonic() + interval_s

    def run_if_due(self) -> None:
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + self._interval_s
            self._target.run_schedules()
            self.num_runs += 1


def _settle(
    gathering: Gathering,
    schedule: _Schedule,
    target: LocalTarget,
    tell: Callable[[str], None],
) -> None:
    """Wait until every evaluation has ended and nothing is on its way, as long as that may take."""
    ends = time.monotonic() + SETTLING_S
    while time.monotonic() < ends:
        schedule.run_if_due()
        if not _is_idle(target):
            tell("settling: events are on their way")
            continue
        # Asked rarely: the emulator, which answers, is what the functions wait for.
        num_left = len(gathering.unfinished())
        tell(f"settling: {num_left} evaluations are not through")
        if not (num_left or gathering.unconfirmed_stops()):
            return
        time.sleep(LOOK_RARELY_S)


def _is_idle(target: LocalTarget) -> bool:
    try:
        target.wait_idle(LOOK_S)
    except TimeoutError:
        return False
    return True
