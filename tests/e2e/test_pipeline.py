"""The deployed pipeline: the synthesised template in the emulator, with its real functions."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from moto.dynamodb.models import DynamoDBBackend
from moto.events.models import EventsBackend
from moto.sqs.models import SQSBackend
from typing_extensions import Self

from hook_layer.format.job_file import JobFile
from hook_layer.format.paths import END_MARKER, JOB_FILE, STOP_FILE
from hook_layer.storage.s3 import S3Store
from infra.local import LocalTarget
from lambdas.contracts.events import JOB_RULES, STATE_SORT_KEY
from lambdas.shared.run_states import RunStates
from rule_runtime.engine.outcome import RuleStatus
from rule_runtime.engine.state import EvaluationState
from rule_runtime.testing.trial_builder import TrialBuilder
from tests.tables import table

RULES = {"VanishingGradient": {}, "ExplodingTensor": {}}
NUM_STEPS = 60
VANISHED_AT = 41
WAIT_S = 240


@pytest.fixture(scope="module", params=["per_rule", "grouped"])
def target(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalTarget]:
    """The deployment; what a killed poller had taken comes back to its queue soon."""
    context = {
        "stepwatch:evaluators": request.param,
        "stepwatch:rules": RULES,
        "stepwatch:stop_rules": [],
        "stepwatch:stop_policy": "watched",
    }
    with LocalTarget(context, workdir=tmp_path_factory.mktemp("local")) as local_target:
        for url in evaluator_queues(local_target):
            local_target.client("sqs").set_queue_attributes(
                QueueUrl=url, Attributes={"VisibilityTimeout": "3"}
            )
        # A receive that waits already still hides what it gets as long as before.
        local_target.poller.stop()
        local_target.poller.start()
        yield local_target


@pytest.fixture(scope="module")
def subscriber(target: LocalTarget) -> Callable[[], list[dict[str, Any]]]:
    """Somebody else who listens to status events; returns those that came since the last call."""
    sqs, events = target.client("sqs"), target.client("events")
    url = sqs.create_queue(QueueName="somebody-elses-queue")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]
    pattern = {
        "source": ["stepwatch.debugger"],
        "detail-type": ["SageMaker Training Job State Change"],
    }
    events.put_rule(Name="somebody-else", EventPattern=json.dumps(pattern))
    events.put_targets(Rule="somebody-else", Targets=[{"Id": "queue", "Arn": arn["QueueArn"]}])

    def received() -> list[dict[str, Any]]:
        details = []
        while messages := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
            for message in messages:
                details.append(json.loads(message["Body"])["detail"])
                sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return details

    return received


class WatchedJob:
    """A job whose files are written by the test instead of a training process."""

    def __init__(self, target: LocalTarget, name: str, run: str = "run-1") -> None:
        self.name, self.run = name, run
        self.uri = f"s3://{target.tensor_bucket}/{name}/debug-output/"
        self.store = S3Store(self.uri, client=target.client("s3"))
        self.builder = TrialBuilder(self.store, run=run)

    def begin(self, arn: str | None = None) -> None:
        self.store.delete(END_MARKER)
        job = JobFile(
            self.name, self.run, "sagemaker" if arn else "local", "2026-11-20T10:00:00Z", arn
        )
        self.store.put(JOB_FILE, job.encode())

    def write_steps(self, first: int, last: int, *, vanished_at: int = VANISHED_AT) -> None:
        """Write steps whose gradients vanish in the second layer from one step on."""
        generator = np.random.default_rng(first)
        for step in range(first, last):
            scale = 1e-12 if step >= vanished_at else 1.0
            tensors = {
                "gradient/Net_fc1.weight": generator.standard_normal(50).astype("f4"),
                "gradient/Net_fc2.weight": (scale * generator.standard_normal(50)).astype("f4"),
            }
            self.builder.step(step, tensors, save_values=False)

    def end(self) -> None:
        self.builder.end()


def states_of(target: LocalTarget, job: WatchedJob) -> dict[str, EvaluationState]:
    """Return the states of a job's run by rule."""
    table = target.outputs["StateTableName"]
    states = RunStates(target.client("dynamodb"), table)
    return states.load(job.uri, job.run)


def statuses_of(events: list[dict[str, Any]], job: WatchedJob) -> list[tuple[str, str, int | None]]:
    """Return (rule, status, step of the evidence) of a job's events."""
    return sorted(
        (
            event["DebugRuleEvaluationStatuses"][0]["RuleConfigurationName"],
            event["DebugRuleEvaluationStatuses"][0]["RuleEvaluationStatus"],
            (event.get("Evidence") or {}).get("step"),
        )
        for event in events
        if event["TrainingJobName"] == job.name and event["RunId"] == job.run
    )


VERDICTS = [
    ("ExplodingTensor", "InProgress", None),
    ("ExplodingTensor", "NoIssuesFound", None),
    ("VanishingGradient", "InProgress", None),
    ("VanishingGradient", "IssuesFound", VANISHED_AT),
]


def test_every_transition_is_announced_to_whoever_subscribes(
    target: LocalTarget, subscriber: Callable[[], list[dict[str, Any]]]
) -> None:
    job = WatchedJob(target, "undisturbed")
    job.begin()
    job.write_steps(0, NUM_STEPS)
    job.end()
    target.wait_idle(WAIT_S)
    assert statuses_of(subscriber(), job) == VERDICTS
    stop = json.loads(job.store.get(STOP_FILE))
    assert stop["RunId"] == "run-1"
    assert stop["Evidence"]["tensor"] == "gradient/Net_fc2.weight"
    assert stop["Evidence"]["value"] < stop["Evidence"]["threshold"] == 1e-7


@dataclass(frozen=True)
class Moment:
    """When a poller dies.

    Attributes:
        backend: The emulator's service.
        methods: Its methods for the request.
        is_meant: Returns whether a call with these arguments is a request of an evaluator.
        is_carried_out: Whether the request is carried out.
    """

    backend: type
    methods: tuple[str, ...]
    is_meant: Callable[..., bool]
    is_carried_out: bool


class KillAt:
    """Kills the poller, with its functions, when one of them sends a certain request.

    The emulator runs in this process, so that the moment is exact: after the request was carried
    out and before its sender gets to know, or when it arrives and before it is carried out.
    """

    def __init__(self, target: LocalTarget, moment: Moment) -> None:
        self.killed = threading.Event()
        self._target, self._moment = target, moment
        self._patches = pytest.MonkeyPatch()
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        for name in self._moment.methods:
            method = getattr(self._moment.backend, name)
            self._patches.setattr(self._moment.backend, name, self._killing(method))
        return self

    def __exit__(self, *_: object) -> None:
        self._patches.undo()

    def _killing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        moment = self._moment

        def request(backend: Any, *arguments: Any, **keywords: Any) -> Any:
            answer = None
            with self._lock:
                is_first = not self.killed.is_set() and moment.is_meant(*arguments)
                if moment.is_carried_out or not is_first:
                    answer = original(backend, *arguments, **keywords)
                if is_first:
                    self._target.poller.kill()
                    self.killed.set()
            if is_first and not moment.is_carried_out:
                raise ConnectionAbortedError("the sender is dead")
            return answer

        return request


def is_state(_: str, item: dict[str, Any], *__: Any) -> bool:
    """Return whether an item, or its key, is that of an evaluator."""
    return item[STATE_SORT_KEY]["S"] in {*RULES, JOB_RULES}


def is_status(events: list[dict[str, Any]], *_: Any) -> bool:
    """Return whether these are status events, no summaries or events of the emulator's bucket."""
    sources = {event.get("Source") for event in events}
    kinds = {event.get("DetailType") for event in events}
    return "stepwatch.debugger" in sources and "Stepwatch Job Summary" not in kinds


@table(
    "moment",
    {
        "state-saved": Moment(DynamoDBBackend, ("put_item", "update_item"), is_state, True),
        "not-announced": Moment(EventsBackend, ("put_events",), is_status, False),
        "announced-and-not-noted": Moment(EventsBackend, ("put_events",), is_status, True),
        "not-acknowledged": Moment(SQSBackend, ("delete_message_batch",), lambda *_: True, False),
    },
)
def test_a_poller_killed_in_the_middle_of_a_batch_changes_no_verdict(
    target: LocalTarget, subscriber: Callable[[], list[dict[str, Any]]], moment: Moment
) -> None:
    name = f"killed-{moment.methods[0]}-{moment.is_carried_out}".replace("_", "-")
    job = WatchedJob(target, name)
    with KillAt(target, moment) as kill:
        job.begin()
        job.write_steps(0, NUM_STEPS)
        job.end()
        assert kill.killed.wait(WAIT_S), f"no function called {moment.methods}"
    assert undelivered(target) > 0
    target.poller.start()
    target.wait_idle(WAIT_S)
    assert sorted(set(statuses_of(subscriber(), job))) == VERDICTS
    states = states_of(target, job)
    assert all(states[rule].is_announced for rule in RULES)


def test_a_second_run_in_the_same_folder_is_judged_afresh(
    target: LocalTarget, subscriber: Callable[[], list[dict[str, Any]]]
) -> None:
    first = WatchedJob(target, "twice", run="run-1")
    first.begin()
    first.write_steps(0, 50)
    first.end()
    target.wait_idle(WAIT_S)
    assert ("VanishingGradient", "IssuesFound", VANISHED_AT) in statuses_of(subscriber(), first)

    second = WatchedJob(target, "twice", run="run-2")
    second.begin()
    second.write_steps(0, 30, vanished_at=10**9)
    second.end()
    target.wait_idle(WAIT_S)
    events = subscriber()
    assert [status for _, status, _ in statuses_of(events, second)] == [
        "InProgress",
        "NoIssuesFound",
    ] * 2
    assert statuses_of(events, first) == []
    assert json.loads(second.store.get(STOP_FILE))["RunId"] == "run-1"


def test_a_finding_stops_the_training_job(target: LocalTarget) -> None:
    job = WatchedJob(target, "sagemaker-job")
    arn = target.start_training_job(job.name, job.uri)
    job.begin(arn)
    described = target.client("sagemaker").describe_training_job(TrainingJobName=job.name)
    assert (described["TrainingJobStatus"], described["SecondaryStatus"]) == (
        "InProgress",
        "Training",
    )
    job.write_steps(0, NUM_STEPS)
    target.wait_idle(WAIT_S)
    described = target.client("sagemaker").describe_training_job(TrainingJobName=job.name)
    assert described["TrainingJobStatus"] == "Stopping"
    found = {status["RuleConfigurationName"]: status for status in target.rule_statuses(job.name)}
    assert found["VanishingGradient"]["RuleEvaluationStatus"] == "IssuesFound"
    sentence, evidence, *_ = found["VanishingGradient"]["StatusDetails"].splitlines()
    assert sentence == (
        "RuleEvaluationConditionMet: Evaluation of the rule VanishingGradient at step "
        f"{VANISHED_AT} resulted in the condition being met"
    )
    assert "gradient/Net_fc2.weight" in evidence
    assert job.store.exists(STOP_FILE)
    assert target.finish_training_job(job.name, 0) == "Stopped"


def test_a_foreign_file_in_the_bucket_blocks_nobody(target: LocalTarget) -> None:
    hostile = S3Store(f"s3://{target.tensor_bucket}/hostile", client=target.client("s3"))
    hostile.put("index/000000000/000000000000_worker_0.json", b"[" * 50_000)
    hostile.put("index/not-an-index.json", b"{}")
    job = WatchedJob(target, "beside-the-hostile-one")
    job.begin()
    job.write_steps(0, 5)
    job.end()
    target.wait_idle(WAIT_S)
    state = states_of(target, job)["VanishingGradient"]
    assert state.status is RuleStatus.NO_ISSUES_FOUND
    assert dead_letters(target) == []


def dead_letters(target: LocalTarget) -> list[str]:
    """Return the queues of the deployment, other than those that feed functions, with messages."""
    sqs = target.client("sqs")
    return [
        url
        for url in sqs.list_queues()["QueueUrls"]
        if "Letters" in url and sqs.receive_message(QueueUrl=url).get("Messages")
    ]


def undelivered(target: LocalTarget) -> int:
    """Return how many messages the evaluators' queues hold, in flight or not."""
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    sqs = target.client("sqs")
    counts = (
        sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"].values()
        for url in evaluator_queues(target)
    )
    return sum(int(count) for each in counts for count in each)


def evaluator_queues(target: LocalTarget) -> list[str]:
    sqs = target.client("sqs")
    mappings = target.client("lambda").list_event_source_mappings()["EventSourceMappings"]
    names = [mapping["EventSourceArn"].rpartition(":")[2] for mapping in mappings]
    return [sqs.get_queue_url(QueueName=name)["QueueUrl"] for name in names]
