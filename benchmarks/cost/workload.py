"""What training jobs write, how long a function works on it, and how it comes to it in batches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.cost.deployment import Evaluator

__all__ = ["FEWEST_POLLERS", "POLLERS", "Batches", "Timing", "Workload", "batches_of"]

POLLERS: Final = 5
"""Batches of one queue that Lambda collects at the same time while there is little to do.

"Configuring scaling behavior for SQS event source mappings" in Lambda's guide: processing begins
with five batches at a time and goes back to five; to two only without a maximum concurrency.
"""
FEWEST_POLLERS: Final = 2
"""Those that remain where nothing comes; by the same page, with a maximum concurrency none go."""
_FULL_CPU_MB: Final = 1769
"""Memory at which a function has one whole CPU, by Lambda's guide."""
_PARALLEL_READS: Final = 8
_ROUNDS: Final = 50


@dataclass(frozen=True)
class Workload:
    """Jobs that train at the same time, all alike.

    Attributes:
        jobs: How many.
        workers: Processes of a job that write.
        steps: Saved steps of a job.
        saved_every_s: Seconds between two saved steps: the save interval times the time of a step.
        step_bytes: Length of all that a worker writes at a saved step; 20 KB are the statistics of
            some fifty tensors and a few small values.
        item_bytes: Length of an item of the state table.
        puts_a_step: Objects that a worker writes at a saved step; one without an event file.
    """

    jobs: int = 10
    workers: int = 1
    steps: int = 1000
    saved_every_s: float = 10.0
    step_bytes: int = 20_000
    item_bytes: int = 900
    puts_a_step: int = 2

    @property
    def files_a_second(self) -> float:
        """Index files of all jobs together."""
        return self.jobs * self.workers / self.saved_every_s


@dataclass(frozen=True)
class Timing:
    """How long the parts of a call take: assumptions, not measured on AWS.

    Attributes:
        read_ms: An object of S3, in the same region.
        table_ms: A request to the table.
        call_cpu_ms: Work of a call at one whole CPU, whatever it brings.
        job_cpu_ms: Work for each job of a batch, its requests among it, likewise.
        file_cpu_ms: Work for each index file, likewise.
        rule_cpu_ms: Work for each further rule of a group and each job, likewise.
    """

    read_ms: float = 20.0
    table_ms: float = 6.0
    call_cpu_ms: float = 1.0
    job_cpu_ms: float = 3.0
    file_cpu_ms: float = 1.0
    rule_cpu_ms: float = 1.2

    def seconds(self, evaluator: Evaluator, files: float, jobs: float) -> float:
        """Return how long a call takes.

        A job's files are read several at a time, its collections file after them; jobs are looked
        at one after the other.
        """
        slower = max(_FULL_CPU_MB / evaluator.memory_mb, 1.0)
        job_cpu_ms = self.job_cpu_ms + self.rule_cpu_ms * max(len(evaluator.rules) - 1, 0)
        cpu = self.call_cpu_ms + jobs * job_cpu_ms + files * self.file_cpu_ms
        waves = max(files / max(jobs, 1e-9) / _PARALLEL_READS, 1.0)
        waiting = jobs * (2 * self.table_ms + (waves + 1) * self.read_ms)
        return (slower * cpu + waiting) / 1000


@dataclass(frozen=True)
class Batches:
    """How the files of a workload come to one evaluator, on average.

    Attributes:
        files: Index files of a batch.
        jobs: Different jobs of a batch.
        at_once: Calls that the files of one step of a job lead to, at the same time.
        seconds: How long a call takes.
        shares: Share of the calls that each of the function's processes gets; Lambda calls the
            first one that is free.
    """

    files: float
    jobs: float
    at_once: float
    seconds: float
    shares: tuple[float, ...]

    def processes_seeing(self, visits: float) -> float:
        """Return how many processes a job comes to that is part of some batches."""
        return sum(1 - math.pow(1 - share, visits) for share in self.shares)


def batches_of(evaluator: Evaluator, workload: Workload, timing: Timing) -> Batches:
    """Return how a workload's files come to an evaluator.

    Each of Lambda's pollers collects a batch of its own. It begins with a file; others join it
    until the window closes: the other workers' of the same step, which come at once and are shared
    among the pollers, and whatever else comes meanwhile, which is taken for a Poisson process.
    Pollers that wait for the function take none. Where all of them do, files queue up, and batches
    are full.
    """
    hit = _pollers_hit(workload.workers)
    at_once = sum(hit)
    burst = workload.workers / at_once
    rate, files = workload.files_a_second, burst
    # A job's own steps join each other only where they come within one window.
    is_dense = workload.saved_every_s < evaluator.window_s
    others = rate if is_dense else rate * (1 - 1 / workload.jobs)
    for _ in range(_ROUNDS):
        jobs = _distinct_jobs(files / burst, workload)
        seconds = timing.seconds(evaluator, files, jobs)
        collecting = POLLERS - rate / files * seconds
        if collecting * evaluator.batch_size <= rate * evaluator.window_s:
            found = float(evaluator.batch_size)
        else:
            joined = others * evaluator.window_s / collecting
            found = _mean_of_at_most(evaluator.batch_size, burst, joined)
        files = (files + found) / 2
    jobs = _distinct_jobs(files / burst, workload)
    seconds = timing.seconds(evaluator, files, jobs)
    return Batches(files, jobs, at_once, seconds, _shares(rate / files * seconds, hit))


def _pollers_hit(workers: int) -> list[float]:
    """Return the probability that the files of a step reach 1, 2, ... of the pollers or more."""
    exactly = [1.0] + [0.0] * POLLERS
    for _ in range(workers):
        exactly = [
            exactly[n] * n / POLLERS + (exactly[n - 1] * (POLLERS - n + 1) / POLLERS if n else 0)
            for n in range(POLLERS + 1)
        ]
    return [sum(exactly[n:]) for n in range(1, POLLERS + 1)]


def _mean_of_at_most(most: int, first: float, joined: float) -> float:
    """Return the mean of min(most, first + n), where n is Poisson distributed."""
    probability, mean, seen = math.exp(-joined), 0.0, 0.0
    for n in range(math.ceil(most - first)):
        mean += probability * (first + n)
        seen += probability
        probability *= joined / (n + 1)
    return mean + (1 - seen) * most


def _distinct_jobs(bursts: float, workload: Workload) -> float:
    """Return how many jobs the files of a batch are of: those of each burst are of one job."""
    return workload.jobs * (1 - math.pow(1 - 1 / workload.jobs, max(bursts, 1.0)))


def _shares(load: float, hit: Sequence[float]) -> tuple[float, ...]:
    """Return the share of the calls that each process gets, the first free one being called.

    Ordered hunting: the n-th process gets what the first n - 1 refuse and n do not, by Erlang's
    loss formula (Cooper, Introduction to Queueing Theory, 1981, section 3.3). Calls that come at
    once take the ones behind it.

    Args:
        load: Calls that run at the same time, on average.
        hit: Probability that 1, 2, ... calls or more come at once.
    """
    refused, first_free = 1.0, []
    for number in range(1, POLLERS + 1):
        after = load * refused / (number + load * refused)
        first_free.append(refused - after)
        refused = after
    shares = [sum(first_free[j] * hit[n - j] for j in range(n + 1)) for n in range(POLLERS)]
    return tuple(share / sum(shares) for share in shares)
