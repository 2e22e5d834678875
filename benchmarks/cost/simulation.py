"""Jobs that the real functions evaluate, with every request counted.

The clients, the handlers and the settings of the template are real; the answers come from memory,
and Lambda's pollers are simulated. Functions are called one after the other, so
nothing is counted of evaluators that write one state at the same time.
"""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final

from benchmarks.cost.deployment import Deployment, Evaluator
from benchmarks.cost.functions import BUCKET, Functions, queue_url
from benchmarks.cost.in_memory_aws import InMemoryAws, Requests, counted_requests
from benchmarks.cost.in_memory_table import item_bytes
from benchmarks.cost.jobs import Jobs
from benchmarks.cost.pollers import calls_of
from benchmarks.cost.workload import Timing, Workload
from lambdas.contracts.events import MAX_INDEX_LAG_S

__all__ = ["PHASES", "Counted", "run_jobs", "simulate"]

PHASES: Final = ("steps", "sweep", "sweep of silence", "end", "end reported by SageMaker")
"""What is counted apart."""

_SILENCE_S: Final = 61.0
UNITS_PER_S: Final = 1000
"""Write units a second that DynamoDB allows on one partition key."""
Message = tuple[int, str]


@dataclass
class Counted:
    """What a simulation counted.

    Attributes:
        requests: Requests of each phase by "<service>.<operation>"; "lambda.Invoke" are the calls
            of evaluators.
        log_bytes: Length of the functions' own log lines in each phase.
        units: Read and write units of the table in each phase.
        metrics: Number of metrics that the functions wrote, by the function's name.
        item_bytes: Mean length of an item of a state when the jobs end.
        most_writes: Write units of the partition key, of the table or its index, that took most
            while jobs trained.
        seconds: How long the simulation took.
    """

    requests: dict[str, Counter[str]] = field(default_factory=dict)
    log_bytes: dict[str, int] = field(default_factory=dict)
    units: dict[str, dict[str, float]] = field(default_factory=dict)
    metrics: Counter[str] = field(default_factory=Counter)
    item_bytes: float = 0.0
    most_writes: int = 0
    seconds: float = 0.0

    def job_steps_per_s(self, workload: Workload) -> float:
        """Return how many saved steps of all jobs a second no key of the table throttles."""
        return UNITS_PER_S * workload.jobs * workload.steps / self.most_writes


def simulate(deployment: Deployment, jobs: Jobs, timing: Timing) -> Counted:
    """Evaluate jobs, answered from memory; return the counted requests."""
    aws = InMemoryAws()

    def store(key: str, content: bytes) -> None:
        aws.objects.put(f"{BUCKET}/{key}", content)

    counting = counted_requests(aws)
    counted = run_jobs(deployment, jobs, timing, counting=counting, store=store, aws=aws)
    sizes = [
        item_bytes(item) for item in aws.table.items() if "progress" in item or "states" in item
    ]
    counted.item_bytes = sum(sizes) / max(len(sizes), 1)
    return counted


def run_jobs(
    deployment: Deployment,
    jobs: Jobs,
    timing: Timing,
    *,
    counting: AbstractContextManager[Requests],
    store: Callable[[str, bytes], None],
    aws: InMemoryAws | None = None,
) -> Counted:
    """Evaluate jobs; return the counted requests.

    Args:
        deployment: Rules and settings.
        jobs: The jobs.
        timing: Duration of calls.
        counting: Counts the requests.
        store: Stores an object, given its key and content.
        aws: Answers the requests; None if others do.
    """
    began = time.perf_counter()
    for key, content in jobs.objects():
        store(key, content)
    with counting as requests:
        run = _Run(deployment, timing, requests, random.Random(jobs.seed), aws)
        last_s = 0.0
        for evaluator in deployment.evaluators:
            if evaluator.hears_of_steps:
                steps = jobs.steps()
                run.deliver("steps", evaluator, steps)
                last_s = max(last_s, *(at for at, _ in steps))
        if aws is not None:
            run.counted.most_writes = max(aws.table.writes.values())
        run.now += last_s
        run.sweep("sweep", run.now)
        run.now += jobs.workload.saved_every_s + _SILENCE_S + MAX_INDEX_LAG_S
        run.sweep("sweep of silence", run.now)
        for key, content in jobs.end_markers():
            store(key, content)
        for evaluator in deployment.evaluators:
            if evaluator.hears_of_steps:
                run.deliver("end", evaluator, jobs.ends())
        run.finish("end reported by SageMaker", jobs)
    run.counted.seconds = time.perf_counter() - began
    return run.counted


class _Run:
    """The functions of a deployment, and their requests."""

    def __init__(
        self,
        deployment: Deployment,
        timing: Timing,
        requests: Requests,
        generator: random.Random,
        aws: InMemoryAws | None,
    ) -> None:
        self.counted = Counted()
        self.now = time.time()
        self._deployment, self._timing = deployment, timing
        self._requests, self._generator, self._aws = requests, generator, aws
        names = [evaluator.name for evaluator in deployment.evaluators]
        self._urls = {name: queue_url(number) for number, name in enumerate(names)}
        self._functions = Functions(self._urls)

    def deliver(
        self, phase: str, evaluator: Evaluator, messages: Sequence[tuple[float, Message]]
    ) -> None:
        """Have an evaluator called with messages."""

        def seconds(batch: Sequence[Message]) -> float:
            num_jobs = len({job for job, _ in batch})
            return self._timing.seconds(evaluator, len(batch), num_jobs)

        for call in calls_of(evaluator, messages, seconds, self._generator):
            bodies = [body for _, body in call.messages]
            self._functions.evaluate(evaluator, call.process, bodies, self.now + call.at)
            self._requests.counts["lambda.Invoke"] += 1
        self._record(phase)

    def sweep(self, phase: str, now: float) -> None:
        """Sweep the quiet runs, and evaluate those that are woken."""
        self._functions.sweep(now)
        self._wake(phase)

    def finish(self, phase: str, jobs: Jobs) -> None:
        """Report the ends of jobs, and evaluate those that are woken."""
        for event in jobs.completions():
            self._functions.finish(event)
        self._wake(phase, jobs.workload.saved_every_s)

    def _wake(self, phase: str, within_s: float = 0.0) -> None:
        """Deliver what was sent to the queues, spread over some seconds."""
        sent, self._requests.messages = self._requests.messages, {}
        for evaluator in self._deployment.evaluators:
            bodies: Iterable[str] = sent.get(self._urls[evaluator.name], [])
            times = (self._generator.uniform(0, within_s) for _ in iter(int, 1))
            messages = sorted(
                (at, (number, body))
                for at, (number, body) in zip(times, enumerate(bodies), strict=False)
            )
            self.deliver(phase, evaluator, messages)

    def _record(self, phase: str) -> None:
        counted = self.counted
        counted.metrics = Counter(service for _, *_, service, _ in self._functions.metrics)
        counted.requests.setdefault(phase, Counter()).update(self._requests.counts)
        self._requests.counts.clear()
        so_far = sum(counted.log_bytes.values())
        added = self._functions.log_bytes - so_far
        counted.log_bytes[phase] = counted.log_bytes.get(phase, 0) + added
        if self._aws is not None:
            units = counted.units.setdefault(phase, defaultdict(float))
            for kind, number in self._aws.table.units.items():
                units[kind] += number
            self._aws.table.units.clear()
