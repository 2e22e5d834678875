"""The requests that a workload leads to, on paper; `simulation` counts them.

What the functions do for each job and rule is written down here once more, from their own
documentation. The comparison with the simulation fails if they change.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from benchmarks.cost.deployment import Deployment, Evaluator
from benchmarks.cost.workload import POLLERS, Batches, Timing, Workload, batches_of
from lambdas.contracts.events import MAX_INDEX_LAG_S

__all__ = ["ENTRY_BYTES", "MESSAGES_A_REQUEST", "Flow", "index_moves", "requests_of"]

Requests = dict[str, float]

MESSAGES_A_REQUEST: Final = 10
"""The most that SQS takes, hands out or removes with one request."""
DISTRUST_S: Final = 30.0
"""How long a function without a rule for a job does not read `job.json` again, in seconds."""
ENTRY_BYTES: Final = 190
"""Length of an entry of the index of active evaluations, with a root of some ninety bytes."""
VALUE_READERS: Final = frozenset({"LossInputMismatch", "PlateauedLoss"})
"""Rules that read values of each step from its event file; those of a group share them."""
QUERY_BYTES: Final = 1 << 20
REPORTED_STEPS: Final = 400
"""Of how many steps, evenly over the run, a report is made."""
REPORT: Final = {"dynamodb.Query": 1, "s3.ListObjectsV2": 3, "s3.GetObject": 4, "s3.PutObject": 1}
"""What a report takes besides files of steps and of collections."""
STATUS_CHANGE: Final = {"lambda.Invoke": 1, "dynamodb.Query": 2}
"""What a verdict leads to that is not the run's last: there is no report to be made yet."""
REGISTRATION: Final = {"s3.GetObject": 2, "dynamodb.PutItem": 1}
"""What a process does when it sees a job for the first time: it reads `job.json` before and after
it registers the job."""


@dataclass(frozen=True)
class Flow:
    """The index files of a workload on their way through one evaluator.

    Attributes:
        evaluator: Queue and function.
        workload: What is written.
        batches: How the files come.
        ends: How the end messages come, one a job.
    """

    evaluator: Evaluator
    workload: Workload
    batches: Batches
    ends: Batches

    @classmethod
    def of(cls, evaluator: Evaluator, workload: Workload, timing: Timing) -> Flow:
        """Return how a workload's files come to an evaluator."""
        ends = Workload(jobs=workload.jobs, steps=1, saved_every_s=workload.saved_every_s)
        batches = batches_of(evaluator, workload, timing)
        return cls(evaluator, workload, batches, batches_of(evaluator, ends, timing))

    @property
    def write(self) -> str:
        """The request that writes a state, or the states of a group."""
        return "dynamodb.PutItem" if self.evaluator.grouped else "dynamodb.UpdateItem"

    @property
    def status(self) -> Requests:
        """What statuses that are announced take: an event each, and one note that they were."""
        return {self.write: 1, "events.PutEvents": len(self.evaluator.rules)}

    @property
    def files(self) -> float:
        """Index files of all jobs."""
        return float(self.workload.jobs * self.workload.steps * self.workload.workers)

    @property
    def calls(self) -> float:
        """Calls of the function that they lead to."""
        return self.files / self.batches.files

    @property
    def visits(self) -> float:
        """How often a call evaluates a job."""
        return self.calls * self.batches.jobs

    @property
    def first_sights(self) -> float:
        """How often a process of the function sees a job for the first time."""
        return self.workload.jobs * self.batches.processes_seeing(self.visits / self.workload.jobs)

    def late_sights(self, visits_since: int) -> float:
        """Return how often a process sees a job for the first time by one more of its messages.

        Args:
            visits_since: How many messages of the job came since its last step.
        """
        shares = self.batches.shares
        unseen = zip(shares, self._unseen, strict=True)
        late = (share * left * math.pow(1 - share, visits_since) for share, left in unseen)
        return self.workload.jobs * sum(late)

    @property
    def sudden_sights(self) -> float:
        """The same when messages of all jobs come at once, to all processes alike."""
        return self.workload.jobs * sum(self._unseen) / len(self._unseen)

    @property
    def _unseen(self) -> list[float]:
        """Probability that each process saw no step of a job."""
        visits = self.visits / self.workload.jobs
        return [math.pow(1 - share, visits) for share in self.batches.shares]


def requests_of(
    deployment: Deployment, workload: Workload, timing: Timing, *, on_aws: bool = True
) -> dict[str, Requests]:
    """Return the requests of the functions, by phase and "<service>.<operation>".

    The phases follow each other as in the simulation.

    Args:
        deployment: Rules and settings.
        workload: The jobs.
        timing: Durations of the parts of a call.
        on_aws: False to leave out what a simulation does not show: it calls one function after the
            other and does not wait. On AWS, calls for one job may begin together: all but one find
            that the state was written, and write again. A function without a rule for the job
            reads `job.json` again after half a minute.
    """
    steps, silence, end, reported = (defaultdict[str, float](float) for _ in range(4))
    pages = _pages(deployment, workload)
    _add(silence, {"dynamodb.Query": pages, "dynamodb.GetItem": workload.jobs})
    _add(reported, {"dynamodb.Query": workload.jobs})
    _report(reported, workload)
    if on_aws:  # which hands verdicts to the function, and one report is made of the last of them
        _report(end, workload)
        _add(end, STATUS_CHANGE, workload.jobs * len(deployment.rules))
    for evaluator in deployment.evaluators:
        flow = Flow.of(evaluator, workload, timing)
        if evaluator.hears_of_steps:
            _steps(steps, flow)
            _end(end, flow)
        if evaluator.rules:
            _silence(silence, flow)
        if on_aws:
            _add_by_time(steps, flow)
        _reported_by_sagemaker(reported, flow)
    phases = {"steps": steps, "sweep": {"dynamodb.Query": float(pages)}}
    return phases | {"sweep of silence": silence, "end": end, "end reported by SageMaker": reported}


def _steps(requests: Requests, flow: Flow) -> None:
    """Add the requests of one evaluator while jobs write.

    Each visit of a job reads its state and writes it. Each index file is read, and the
    collections file of each worker that wrote the step at hand.
    """
    workload, jobs = flow.workload, flow.workload.jobs
    _add(requests, {"lambda.Invoke": 1}, flow.calls)
    _add(requests, REGISTRATION, flow.first_sights)
    if not flow.evaluator.rules:
        return  # the jobs ask for nothing of their own
    _add(requests, {"dynamodb.GetItem": 1, flow.write: 1}, flow.visits)
    # A run that is seen for the first time may have states in the other kind of items.
    other = "dynamodb.Query" if flow.evaluator.grouped else "dynamodb.GetItem"
    _add(requests, {other: 1, flow.write: 1}, jobs)
    _add(requests, flow.status, jobs)
    _add(requests, {"s3.GetObject": 1}, flow.files + _other_reads(flow))
    if VALUE_READERS.intersection(flow.evaluator.rules):
        _add(requests, {"s3.GetObject": 1}, flow.files)
    if workload.workers > 1:
        # The first visit lists who writes, and finds files before their messages come.
        _add(requests, {"s3.ListObjectsV2": 1}, jobs)
        _add(requests, {flow.write: -1}, jobs * (flow.batches.at_once - 1))


def _add_by_time(requests: Requests, flow: Flow) -> None:
    """Add what depends on when calls begin; see `requests_of`."""
    workload = flow.workload
    if flow.evaluator.rules:
        refused = (flow.batches.at_once - 1) * workload.jobs * workload.steps
        _add(requests, {flow.write: 1}, refused)
    elif flow.evaluator.hears_of_steps:
        share = min(workload.saved_every_s / DISTRUST_S, 1.0)
        _add(requests, {"s3.GetObject": 1}, flow.visits * share)


def _other_reads(flow: Flow) -> float:
    """Return how many collections files are read, and index files for a second time.

    With several workers the call that completes a step reads again what other calls saw of it.
    """
    workers = flow.workload.workers
    if workers == 1:
        return flow.visits
    again = max(workers - flow.batches.files / flow.batches.jobs, 0)
    return flow.workload.jobs * flow.workload.steps * (workers + again)


def _end(requests: Requests, flow: Flow) -> None:
    """Add the requests of one evaluator when the end markers come: the verdicts.

    A function without a rule for the job reads `job.json` once more, for the last time.
    """
    jobs = flow.workload.jobs
    _add(requests, {"lambda.Invoke": 1}, jobs / flow.ends.files)
    _add(requests, REGISTRATION, flow.late_sights(1))
    if flow.evaluator.rules:
        _add(requests, {"dynamodb.GetItem": 1, "s3.GetObject": 1, flow.write: 1}, jobs)
        _add(requests, {"s3.PutObject": len(flow.evaluator.rules)}, jobs)
        _add(requests, flow.status, jobs)
    else:
        _add(requests, {"s3.GetObject": 1}, jobs)


def _reported_by_sagemaker(requests: Requests, flow: Flow) -> None:
    """Add what SageMaker's event of each job's end leads to, after the verdicts."""
    jobs = flow.workload.jobs
    _add(requests, {"sqs.SendMessageBatch": 1}, jobs)
    _add(requests, {"lambda.Invoke": 1}, jobs / flow.ends.files)
    _add(requests, REGISTRATION, flow.late_sights(2))
    _add(requests, {"s3.GetObject": 1}, jobs)
    if flow.evaluator.rules:
        _add(requests, {"dynamodb.GetItem": 1}, jobs)


def _report(requests: Requests, workload: Workload) -> None:
    """Add what the report of each job takes."""
    files = (min(workload.steps, REPORTED_STEPS) + 1) * workload.workers
    _add(requests, {**REPORT, "s3.GetObject": REPORT["s3.GetObject"] + files}, workload.jobs)


def _silence(requests: Requests, flow: Flow) -> None:
    """Add what a sweep leads to that finds every job quiet for a minute.

    The wakes of a rule come at once, so batches are full. Each reads the state, checks
    the end marker and lists files.
    """
    jobs = flow.workload.jobs
    calls = max(jobs / flow.evaluator.batch_size, min(jobs, POLLERS))
    _add(requests, {"sqs.SendMessageBatch": 1}, math.ceil(jobs / MESSAGES_A_REQUEST))
    _add(requests, {"lambda.Invoke": 1}, calls)
    _add(requests, REGISTRATION, flow.sudden_sights)
    _add(requests, {"dynamodb.GetItem": 1, "s3.GetObject": 1, "s3.ListObjectsV2": 1}, jobs)


def index_moves(deployment: Deployment, workload: Workload) -> float:
    """Return how often entries of the index of active evaluations move."""
    # Steps come at irregular times, so the next one after the lag is half an interval later.
    every_s = MAX_INDEX_LAG_S + workload.saved_every_s / 2
    share = min(workload.saved_every_s / every_s, 1.0)
    return workload.jobs * workload.steps * share * deployment.num_items


def _pages(deployment: Deployment, workload: Workload) -> int:
    """Return how many requests the index of active evaluations takes to be read."""
    size = workload.jobs * deployment.num_items * ENTRY_BYTES
    return max(math.ceil(size / QUERY_BYTES), 1)


def _add(requests: Requests, each: Mapping[str, float], times: float = 1.0) -> None:
    for operation, count in each.items():
        requests[operation] += count * times
