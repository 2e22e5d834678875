"""What a workload and an idle month cost: the model's requests, and what AWS's own parts add."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.cost.deployment import HOURS_A_MONTH, Deployment
from benchmarks.cost.model import (
    ENTRY_BYTES,
    MESSAGES_A_REQUEST,
    Flow,
    index_moves,
    requests_of,
)
from benchmarks.cost.workload import FEWEST_POLLERS, POLLERS, Timing, Workload
from hook_layer.run.stop_signal import DEFAULT_STOP_POLL_S
from lambdas.contracts.prices import Prices
from lambdas.shared.state_item import RETENTION_S

__all__ = [
    "DAYS_A_MONTH",
    "Line",
    "custom_rules_of_the_original",
    "dollars",
    "hour_of_training",
    "idle_month",
    "log_bytes",
    "million_steps",
    "num_metrics",
    "written_units",
]

LONG_POLL_S: Final = 20.0
"""How long one request of Lambda's pollers waits for a message: the longest that SQS offers."""
EVALUATOR_METRICS: Final = 5
"""Metrics that an evaluator writes for healthy jobs."""
IDLE_EVALUATOR_METRICS: Final = 2
"""Metrics that an evaluator writes that jobs ask for nothing."""
SWEEP_METRICS: Final = 4
"""Metrics that each sweep writes, whether or not anything is active."""
CALL_LOG_BYTES: Final = 300
"""What a function writes in a call: its metrics."""
STATUS_LOG_BYTES: Final = 360
"""What it writes beside when a status is announced."""
LAMBDA_LOG_BYTES: Final = 440
"""Lambda's own lines of a call, with what CloudWatch counts for each line; an assumption."""
SCHEDULED_SECONDS: Final = 0.05
"""How long a function works that finds nothing to do; an assumption."""
INDEX_WRITES: Final = 2
"""An entry of an index whose sort key changes is removed and put anew."""
GROUP_BYTES: Final = 450
"""Length of an item of a group besides the states of rules, as simulated."""
GROUPED_RULE_BYTES: Final = 86
"""What each rule adds to it."""
_DATA_KEY_S: Final = 300
"""How long a queue uses a data key, for sending and for receiving."""
DAYS_A_MONTH: Final = 30.4
_MILLION: Final = 1e6
_GB: Final = 1e9
_UNIT_BYTES: Final = 1024
_READ_UNIT_BYTES: Final = 4096


@dataclass(frozen=True)
class Line:
    """One line of a bill.

    Attributes:
        what: What is paid for.
        count: How many of it.
        dollars: What they cost.
        is_hook: Whether it is for the training jobs' own requests.
    """

    what: str
    count: float
    dollars: float
    is_hook: bool = False


def dollars(lines: Iterable[Line]) -> float:
    """Return the sum of a bill."""
    return sum(line.dollars for line in lines)


def million_steps(
    deployment: Deployment, workload: Workload, timing: Timing, prices: Prices
) -> list[Line]:
    """Return what a million saved steps cost, beside what an idle deployment costs."""
    share = _MILLION / (workload.jobs * workload.steps)
    lines = [*_hook(workload, prices), *_functions(deployment, workload, timing, prices)]
    lines += [
        *_queues(deployment, workload, timing, prices),
        *_sweeps(deployment, workload, prices),
    ]
    lines += _kept(deployment, workload, lines, prices)
    return [
        Line(line.what, line.count * share, line.dollars * share, line.is_hook) for line in lines
    ]


def hour_of_training(
    deployment: Deployment, workload: Workload, timing: Timing, prices: Prices
) -> float:
    """Return what an hour of one job costs, in dollars, beside what an idle deployment costs.

    The job's own requests are in it, and its share of what is paid for all jobs together.
    """
    steps = 3600 / workload.saved_every_s
    return dollars(million_steps(deployment, workload, timing, prices)) * steps / _MILLION


def idle_month(deployment: Deployment, prices: Prices) -> list[Line]:
    """Return what a month costs in which nothing trains."""
    pollers = sum(
        POLLERS if evaluator.maximum_concurrency else FEWEST_POLLERS
        for evaluator in deployment.evaluators
    )
    polls = pollers * HOURS_A_MONTH * 3600 / LONG_POLL_S
    calls = sum(function.calls_a_month for function in deployment.scheduled)
    memory = sum(f.calls_a_month * f.memory_mb / 1024 for f in deployment.scheduled)
    alarms, pages = len(deployment.alarm_metrics), len(deployment.dashboards)
    work = memory * SCHEDULED_SECONDS * prices.gb_second(deployment.architecture)
    logs_gb = calls * (CALL_LOG_BYTES + LAMBDA_LOG_BYTES) / _GB
    return [
        Line("polls of the queues", polls, polls * prices.queue_request),
        Line("metrics of the alarms", alarms, alarms * prices.alarm_metric_month),
        Line("dashboard", pages, pages * prices.dashboard_month),
        Line("key", deployment.num_keys, deployment.num_keys * prices.key_month),
        Line("metrics of the sweep", SWEEP_METRICS, SWEEP_METRICS * prices.metric_month),
        Line("scheduled calls", calls, calls * prices.call + work),
        Line("reads of the table", calls / 2, calls / 2 * prices.table_read_unit),
        Line("GB of logs", logs_gb, logs_gb * prices.log_gb),
    ]


def item_bytes(deployment: Deployment, workload: Workload) -> float:
    """Return the length of an item with the state of a rule, or with those of a group."""
    in_group = max((len(evaluator.grouped) for evaluator in deployment.evaluators), default=0)
    return GROUP_BYTES + in_group * GROUPED_RULE_BYTES if in_group else workload.item_bytes


def written_units(
    deployment: Deployment, phases: Mapping[str, Mapping[str, float]], workload: Workload
) -> float:
    """Return the units that writes of the table and of its index take.

    In the index an entry that moves is removed, and put anew. A status changes an entry, and so
    does the note that it was announced; those of a group at once.
    """
    each = math.ceil(item_bytes(deployment, workload) / _UNIT_BYTES)
    updates = sum(found.get("dynamodb.UpdateItem", 0.0) for found in phases.values())
    puts = sum(found.get("dynamodb.PutItem", 0.0) for found in phases.values())
    is_grouped = deployment.num_items < len(deployment.rules)
    if is_grouped:  # the other puts are registrations of jobs, which are small and few
        updates, puts = puts, updates
    statuses = sum(found.get("events.PutEvents", 0.0) for found in phases.values())
    statuses *= deployment.num_items / max(len(deployment.rules), 1)
    moved = index_moves(deployment, workload)
    return updates * each + puts + moved * INDEX_WRITES + statuses * 2


def log_bytes(phases: Mapping[str, Mapping[str, float]]) -> float:
    """Return the length of what evaluators write to their logs."""
    calls = sum(found.get("lambda.Invoke", 0.0) for found in phases.values())
    statuses = sum(found.get("events.PutEvents", 0.0) for found in phases.values())
    return calls * CALL_LOG_BYTES + statuses * STATUS_LOG_BYTES


def num_metrics(deployment: Deployment) -> int:
    """Return how many metrics the evaluators of a deployment write."""
    return sum(
        EVALUATOR_METRICS if evaluator.rules else IDLE_EVALUATOR_METRICS
        for evaluator in deployment.evaluators
    )


def custom_rules_of_the_original(
    rules: int, workload: Workload, hour: float, steps: float = _MILLION
) -> float:
    """Return what the instances of the original's custom rules cost for some saved steps.

    Each rule has one from the beginning of a job to its end, whatever it saves; built-in rules are
    free of charge.

    Args:
        rules: Number of rules.
        workload: How often a job saves.
        hour: Price of an instance for an hour.
        steps: Saved steps.
    """
    return rules * hour * steps * workload.saved_every_s / 3600


def _hook(workload: Workload, prices: Prices) -> Iterator[Line]:
    """Yield what the training jobs themselves ask for, and the events that this leads to."""
    writes = float(workload.jobs * workload.steps * workload.workers * workload.puts_a_step)
    looks = workload.jobs * workload.steps * workload.saved_every_s / DEFAULT_STOP_POLL_S
    yield Line("objects that hooks write", writes, writes * prices.s3_write, is_hook=True)
    yield Line("looks for stop.json", looks, looks * prices.s3_read, is_hook=True)
    yield Line("events of the bucket", writes, writes * prices.event, is_hook=True)


def _functions(
    deployment: Deployment, workload: Workload, timing: Timing, prices: Prices
) -> Iterator[Line]:
    """Yield what the functions ask for, and their own time and lines."""
    found = requests_of(deployment, workload, timing)
    phases = {name: found[name] for name in ("steps", "end", "end reported by SageMaker")}

    def count(*operations: str) -> float:
        return sum(found.get(name, 0.0) for found in phases.values() for name in operations)

    reads, lists = count("s3.GetObject"), count("s3.PutObject", "s3.ListObjectsV2")
    yield Line("reads of objects", reads, reads * prices.s3_read)
    yield Line("results and listings", lists, lists * prices.s3_write)
    statuses = count("events.PutEvents")
    yield Line("status events", statuses, statuses * prices.event)
    units = math.ceil(item_bytes(deployment, workload) / _READ_UNIT_BYTES) * count(
        "dynamodb.GetItem"
    )
    units += count("dynamodb.Query")
    yield Line("units read from the table", units, units * prices.table_read_unit)
    units = written_units(deployment, phases, workload)
    yield Line("units written to the table", units, units * prices.table_write_unit)
    calls = count("lambda.Invoke")
    yield Line("calls of evaluators", calls, calls * prices.call)
    gb_seconds = sum(
        (
            flow.calls * flow.batches.seconds
            + 2 * workload.jobs / flow.ends.files * flow.ends.seconds
        )
        * evaluator.memory_mb
        / 1024
        for evaluator in deployment.evaluators
        if (flow := Flow.of(evaluator, workload, timing)).evaluator.hears_of_steps
    )
    price = prices.gb_second(deployment.architecture)
    yield Line("GB-seconds of evaluators", gb_seconds, gb_seconds * price)
    logs_gb = (log_bytes(phases) + calls * LAMBDA_LOG_BYTES) / _GB
    yield Line("GB of logs", logs_gb, logs_gb * prices.log_gb)


def _queues(
    deployment: Deployment, workload: Workload, timing: Timing, prices: Prices
) -> Iterator[Line]:
    """Yield the messages: sent by EventBridge, received and removed by Lambda's pollers.

    A poller asks again until the window closes, and gets what is there. So at worst each message is
    received with a request of its own.
    """
    requests = 0.0
    for evaluator in deployment.evaluators:
        flow = Flow.of(evaluator, workload, timing)
        if evaluator.hears_of_steps:
            removals = math.ceil(flow.batches.files / MESSAGES_A_REQUEST)
            requests += flow.files + flow.files + flow.calls * removals
        # The end marker and SageMaker's word.
        requests += 3 * workload.jobs * (1 + evaluator.hears_of_steps)
    yield Line("requests to the queues", requests, requests * prices.queue_request)


def _kept(
    deployment: Deployment, workload: Workload, lines: Sequence[Line], prices: Prices
) -> Iterator[Line]:
    """Yield what is paid for what was written as long as it is kept, and for the key."""
    months = deployment.expiration_days / DAYS_A_MONTH
    written = workload.jobs * workload.steps * workload.workers * workload.step_bytes / _GB
    stored = written * months
    yield Line("GB-months of objects", stored, stored * prices.s3_gb_month, is_hook=True)
    items = workload.jobs * deployment.num_items * item_bytes(deployment, workload) / _GB
    kept = items * RETENTION_S / 86400 / DAYS_A_MONTH
    recovery = prices.recovery_gb_month if deployment.has_recovery else 0.0
    yield Line("GB-months of the table", kept, kept * (prices.table_gb_month + recovery))
    logs = sum(line.count for line in lines if line.what == "GB of logs")
    logs *= deployment.retention_days / DAYS_A_MONTH
    yield Line("GB-months of logs", logs, logs * prices.log_gb_month)
    if deployment.encrypts_data:
        hours = workload.steps * workload.saved_every_s / 3600
        requests = 2 * len(deployment.evaluators) * hours * 3600 / _DATA_KEY_S
        yield Line("requests to the key", requests, requests * prices.key_request)


def _sweeps(deployment: Deployment, workload: Workload, prices: Prices) -> Iterator[Line]:
    """Yield what goes by the time that jobs run: reads of the index, and metrics."""
    hours = workload.steps * workload.saved_every_s / 3600
    size = workload.jobs * deployment.num_items * ENTRY_BYTES
    units = hours * 60 * math.ceil(size / _READ_UNIT_BYTES) / 2
    yield Line("units read by the sweep", units, units * prices.table_read_unit)
    months = hours / HOURS_A_MONTH * num_metrics(deployment)
    yield Line("months of evaluators' metrics", months, months * prices.metric_month)
