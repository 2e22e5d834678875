"""The sweep over AWS in moto: whom it wakes, why, and what comes of it."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from botocore.exceptions import ClientError

from hook_layer.format.paths import index_key
from lambdas.contracts import environment
from lambdas.shared import clients
from lambdas.shared.registration import Heartbeat, RegistrationTable
from lambdas.shared.wake import Wake, WakeReason
from lambdas.sweep.service import SweepIncompleteError
from tests.lambdas.conftest import LambdaContext, Pipeline, index_bytes

RUN = "01JD0000000000000000000001"
RULE = "ExplodingTensor"
ROOT = "mnist-7/debug-output/"
ROOT_URI = f"s3://tensors/{ROOT}"
DAY_S = 24 * 3600.0


@pytest.fixture
def running(pipeline: Pipeline) -> Pipeline:
    """A job that has saved two steps."""
    pipeline.put_job()
    pipeline.put_step(0)
    pipeline.put_step(1)
    pipeline.deliver()
    assert pipeline.statuses() == ["InProgress"]
    return pipeline


def wakes(pipeline: Pipeline) -> list[Wake]:
    """Return the wakes in the evaluator's queue, and leave them there."""
    return [Wake.of_event(json.loads(record["body"]), {"tensors"}) for record in pipeline.receive()]


def metrics(capsys: pytest.CaptureFixture[str]) -> dict[str, float]:
    """Return the last values of all metrics that went out."""
    found: dict[str, float] = {}
    for line in capsys.readouterr().out.splitlines():
        content: dict[str, Any] = json.loads(line)
        for group in content.get("_aws", {}).get("CloudWatchMetrics", []):
            for metric in group["Metrics"]:
                value = content[metric["Name"]]
                found[metric["Name"]] = value[-1] if isinstance(value, list) else value
    return found


class TestWhoIsWoken:
    def test_nobody_who_is_busy(self, running: Pipeline) -> None:
        running.grow_quiet(50)
        assert running.sweep() == 0
        assert wakes(running) == []

    def test_who_is_quiet_with_the_length_of_the_silence(self, running: Pipeline) -> None:
        running.grow_quiet(90)
        assert running.sweep() == 1
        (wake,) = wakes(running)
        assert (wake.root_uri, wake.run_id, wake.reason) == (ROOT_URI, RUN, WakeReason.SWEEP)
        assert wake.silent_s == pytest.approx(90, abs=10)
        assert wake.hop == 0

    def test_nobody_who_is_done_with(self, running: Pipeline) -> None:
        running.put_marker()
        running.deliver()
        running.grow_quiet(DAY_S * 3)
        assert running.sweep() == 0

    def test_who_was_not_announced(
        self, running: Pipeline, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        running.put_step(2, num_nan=1)
        running.put_marker()
        records = running.receive()
        with monkeypatch.context() as broken:
            broken.setattr(clients.eventbridge(), "put_events", None)
            assert running.invoke(records)
        running.aws("sqs").purge_queue(QueueUrl=running.queue_url)
        running.grow_quiet(70)
        assert running.sweep() == 1
        assert wakes(running)[0].silent_s == 0
        running.deliver()
        assert running.statuses() == ["IssuesFound"]
        assert "active" not in running.state_item()
        assert running.sweep() == 0

    def test_who_is_only_left_in_the_index_goes_out_of_it(self, running: Pipeline) -> None:
        running.put_marker()
        running.deliver()
        running.statuses()
        running.aws("dynamodb").update_item(
            TableName="states",
            Key={"run": {"S": f"{ROOT_URI}#{RUN}"}, "rule": {"S": RULE}},
            UpdateExpression="SET active = :active",
            ExpressionAttributeValues={":active": {"S": "1"}},
        )
        running.grow_quiet(70)
        assert running.sweep() == 1
        running.deliver()
        assert "active" not in running.state_item()
        assert running.statuses() == [], "it was announced before"

    def test_one_message_for_each_of_many(self, running: Pipeline) -> None:
        for number in range(23):
            root = f"job-{number}/"
            running.put_step(0, root=root)
            running.deliver()
            running.grow_quiet(100 + number, root=root)
        assert running.sweep() == 23
        found = []
        while records := running.receive():
            for record in records:
                found.append(Wake.of_event(json.loads(record["body"]), {"tensors"}).root_uri)
                running.aws("sqs").delete_message(
                    QueueUrl=running.queue_url, ReceiptHandle=record["handle"]
                )
        assert sorted(found) == sorted(f"s3://tensors/job-{number}/" for number in range(23))


class TestWhatComesOfIt:
    def test_files_that_no_event_told_of_are_found(self, running: Pipeline) -> None:
        running.put_step(2, num_nan=1)
        running.aws("sqs").purge_queue(QueueUrl=running.queue_url)
        running.grow_quiet(90)
        running.sweep()
        running.deliver()
        assert running.statuses() == ["IssuesFound"]
        assert time.time() - int(running.state_item()["updated_at"]["N"]) / 1000 < 60

    def test_an_end_that_no_event_told_of_is_found(self, running: Pipeline) -> None:
        running.put_marker()
        running.aws("sqs").purge_queue(QueueUrl=running.queue_url)
        running.grow_quiet(90)
        running.sweep()
        running.deliver()
        assert running.statuses() == ["NoIssuesFound"]

    def test_a_worker_that_does_not_go_on_is_given_up(self, pipeline: Pipeline) -> None:
        pipeline.patch.setenv(environment.WORKER_WAIT_S, "0.001")
        pipeline.patch.setenv(environment.WORKER_WAIT_STEPS, "3")
        pipeline.forget()
        pipeline.put_job()
        for worker in ("worker_0", "worker_1"):
            pipeline.put_step(0, worker=worker, workers=2)
        for step in range(1, 8):
            pipeline.put_step(step, worker="worker_0", workers=2, num_nan=step == 3)
        records = []
        while batch := pipeline.receive():
            records += batch
            for record in batch:
                pipeline.aws("sqs").delete_message(
                    QueueUrl=pipeline.queue_url, ReceiptHandle=record["handle"]
                )
        assert not pipeline.invoke(records)
        pipeline.grow_quiet(90)
        pipeline.sweep()
        pipeline.deliver()
        assert json.loads(pipeline.state_item()["counts"]["S"])["given_up"] == 1
        assert pipeline.statuses() == ["InProgress", "IssuesFound"]

    def test_a_quiet_run_that_nothing_is_wrong_with_is_not_written(self, running: Pipeline) -> None:
        version = running.state_item()["version"]
        running.grow_quiet(90)
        running.sweep()
        running.deliver()
        assert running.state_item()["version"] == version
        assert running.statuses() == []

    def test_a_run_that_is_gone_is_no_matter(self, running: Pipeline) -> None:
        running.grow_quiet(90)
        running.sweep()
        key = {"run": {"S": f"{ROOT_URI}#{RUN}"}, "rule": {"S": RULE}}
        running.aws("dynamodb").delete_item(TableName="states", Key=key)
        running.deliver()
        assert running.statuses() == []


class TestSilence:
    def test_that_lasts_too_long_ends_the_run_and_is_reported(self, running: Pipeline) -> None:
        running.grow_quiet(DAY_S + 30)
        assert running.sweep() == 1
        assert wakes(running)[0].reason is WakeReason.SILENT
        running.deliver()
        (detail,) = running.announced()
        status = detail["DebugRuleEvaluationStatuses"][0]
        assert status["RuleEvaluationStatus"] == "NoIssuesFound"
        assert status["StatusDetails"].startswith("2 steps evaluated")
        assert "no output for 864" in status["StatusDetails"]
        assert running.state_item()["ended"] == {"BOOL": True}
        running.grow_quiet(DAY_S + 90)
        assert running.sweep() == 0

    def test_can_be_shorter(self, running: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(environment.MAX_SILENCE_S, "120")
        running.forget()
        running.grow_quiet(150)
        running.sweep()
        assert wakes(running)[0].reason is WakeReason.SILENT

    def test_that_was_broken_in_between_ends_nothing(self, running: Pipeline) -> None:
        running.grow_quiet(DAY_S + 30)
        running.sweep()
        (record,) = running.receive()
        running.put_step(2)
        running.deliver()
        assert running.invoke([record]) == []
        assert running.state_item()["ended"] == {"BOOL": False}
        assert running.statuses() == []

    def test_of_a_run_whose_parameters_make_no_rule_ends_it_for_good(
        self, running: Pipeline, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        wrong = json.dumps({"rule_to_invoke": RULE, "only_nann": "true"})
        monkeypatch.setenv(environment.RULE_PARAMETERS, wrong)
        running.forget()
        running.grow_quiet(DAY_S + 30)
        running.sweep()
        running.deliver()
        assert running.statuses() == ["Error"]
        assert "active" not in running.state_item()

    def test_is_none_while_files_come_that_nobody_can_judge(
        self, running: Pipeline, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        wrong = json.dumps({"rule_to_invoke": RULE, "only_nann": "true"})
        monkeypatch.setenv(environment.RULE_PARAMETERS, wrong)
        running.forget()
        running.put_step(2)
        running.deliver()
        assert running.statuses() == ["Error"]
        running.grow_quiet(DAY_S + 30)
        running.put_step(3)
        running.deliver()
        assert running.sweep() == 0
        assert time.time() - int(running.state_item()["updated_at"]["N"]) / 1000 < 60

    def test_is_judged_by_a_rule_that_can(self, pipeline: Pipeline) -> None:
        parameters = {"rule_to_invoke": "StalledTrainingRule", "threshold": "1800"}
        pipeline.patch.setenv(environment.RULE_PARAMETERS, json.dumps(parameters))
        pipeline.forget()
        pipeline.put_job()
        for step in (0, 7):
            pipeline.put(index_key(step, "worker_0"), index_bytes(step))
        pipeline.deliver()
        pipeline.grow_quiet(1700)
        pipeline.sweep()
        pipeline.deliver()
        assert pipeline.statuses() == ["InProgress"]
        pipeline.grow_quiet(1830)
        pipeline.sweep()
        pipeline.deliver()
        (detail,) = pipeline.announced()
        assert detail["DebugRuleEvaluationStatuses"][0]["RuleEvaluationStatus"] == "IssuesFound"
        assert detail["Evidence"]["measure"] == "seconds_without_output"
        assert detail["Evidence"]["step"] == 7
        assert running_again(pipeline) == [], "told once"


def running_again(pipeline: Pipeline) -> list[str]:
    pipeline.grow_quiet(4000)
    pipeline.sweep()
    pipeline.deliver()
    return pipeline.statuses()


class TestInterruptedJobs:
    @pytest.fixture
    def note(self) -> Any:
        table = RegistrationTable(clients.dynamodb(), "states")

        def noted(seconds_ago: float, *, is_interrupted: bool) -> None:
            sign = Heartbeat(time.time() - seconds_ago, is_interrupted)
            table.record_heartbeat("mnist-7", sign)

        return noted

    def test_are_not_silent(self, running: Pipeline, note: Any) -> None:
        running.grow_quiet(DAY_S * 2)
        note(DAY_S * 2 - 60, is_interrupted=True)
        for silence in (90.0, DAY_S + 30, DAY_S * 2):
            running.grow_quiet(silence)
            note(silence - 60, is_interrupted=True)
            running.sweep()
        assert {(wake.reason, wake.silent_s) for wake in wakes(running)} == {
            (WakeReason.SWEEP, 0.0)
        }

    def test_that_were_resumed_count_from_there(self, running: Pipeline, note: Any) -> None:
        running.grow_quiet(DAY_S * 2)
        note(DAY_S, is_interrupted=True)
        note(120, is_interrupted=False)
        running.grow_quiet(630)
        running.sweep()
        (wake,) = wakes(running)
        assert wake.reason is WakeReason.SWEEP
        assert wake.silent_s == pytest.approx(120, abs=10)

    def test_whose_files_came_long_after_go_on(self, running: Pipeline, note: Any) -> None:
        note(DAY_S * 3, is_interrupted=True)
        running.grow_quiet(DAY_S + 30)
        running.sweep()
        assert wakes(running)[0].reason is WakeReason.SILENT

    def test_an_older_word_does_not_count(self, note: Any) -> None:
        note(60, is_interrupted=False)
        note(120, is_interrupted=True)
        sign = RegistrationTable(clients.dynamodb(), "states").heartbeat("mnist-7")
        assert sign is not None
        assert not sign.is_interrupted

    @pytest.fixture(autouse=True)
    def account(self, pipeline: Pipeline) -> None:
        """The table is there before anything is noted."""


class TestTheFunctionItself:
    def test_tells_what_it_saw(self, running: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
        running.put_step(0, root="other/")
        running.deliver()
        running.grow_quiet(300)
        capsys.readouterr()
        running.sweep()
        found = metrics(capsys)
        assert (found["ActiveEvaluations"], found["Wakes"]) == (2, 1)
        assert found["OldestQuietSeconds"] == pytest.approx(300, abs=10)

    @pytest.mark.parametrize(
        "broken",
        [
            {"transition": {"S": "two"}},
            {"announced_transition": None},
            {"ended": None},
            {"run": {"S": "s3:no-run"}},
        ],
    )
    def test_skips_items_that_are_broken(
        self, running: Pipeline, broken: dict[str, Any], capsys: pytest.CaptureFixture[str]
    ) -> None:
        item: dict[str, Any] = {**running.state_item(), "rule": {"S": "Broken"}, **broken}
        item = {name: value for name, value in item.items() if value is not None}
        item["updated_at"] = {"N": "1000"}
        running.aws("dynamodb").put_item(TableName="states", Item=item)
        running.grow_quiet(90)
        assert running.sweep() == 1
        if "run" not in broken:
            assert metrics(capsys)["ItemsBroken"] == 1

    def test_leaves_items_of_others_alone(
        self, running: Pipeline, capsys: pytest.CaptureFixture[str]
    ) -> None:
        item: dict[str, Any] = {
            "run": {"S": "stop#mnist-7"},
            "rule": {"S": f"{ROOT_URI}#{RUN}"},
            "active": {"S": "1"},
            "updated_at": {"N": "1000"},
        }
        running.aws("dynamodb").put_item(TableName="states", Item=item)
        assert running.sweep() == 0
        found = metrics(capsys)
        assert found["ActiveEvaluations"] == 1
        assert "ItemsBroken" not in found

    def test_does_not_wake_rules_that_are_deployed_no_more(
        self, running: Pipeline, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(environment.RULE_QUEUE_URLS, "{}")
        running.forget()
        running.grow_quiet(90)
        assert running.sweep() == 0

    def test_ends_in_time_with_the_longest_silent_first(
        self, running: Pipeline, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for number in range(4):
            root = f"job-{number}/"
            running.put_step(0, root=root)
            running.deliver()
            running.grow_quiet(100 + number, root=root)
        running.grow_quiet(500)
        context = LambdaContext([40_000, 40_000, 20_000, 9_999])
        assert running.sweep_module.lambda_handler({}, context) == {"woken": 2}
        assert {wake.root_uri for wake in wakes(running)} == {ROOT_URI, "s3://tensors/job-3/"}
        assert metrics(capsys)["SweepsCutShort"] == 1

    def test_reads_page_after_page(
        self, running: Pipeline, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for number in range(4):
            root = f"job-{number}/"
            running.put_step(0, root=root)
            running.deliver()
            running.grow_quiet(100, root=root)
        query = clients.dynamodb().query
        monkeypatch.setattr(
            clients.dynamodb(), "query", lambda **arguments: query(**arguments, Limit=2)
        )
        assert running.sweep() == 4

    def test_serves_the_others_when_a_queue_fails(
        self, running: Pipeline, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        urls = {"Broken": "https://sqs.eu-west-1.amazonaws.com/123456789012/none"}
        urls[RULE] = running.queue_url
        monkeypatch.setenv(environment.RULE_QUEUE_URLS, json.dumps(urls))
        running.forget()
        item: dict[str, Any] = {**running.state_item(), "rule": {"S": "Broken"}}
        item["updated_at"] = {"N": str(round(time.time() - 100) * 1000)}
        running.aws("dynamodb").put_item(TableName="states", Item=item)
        running.grow_quiet(90)
        with pytest.raises(SweepIncompleteError, match="Broken"):
            running.sweep()
        assert len(wakes(running)) == 1

    def test_serves_the_others_when_the_word_of_sagemaker_cannot_be_read(
        self, running: Pipeline, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        item: dict[str, Any] = {
            **running.state_item(),
            "run": {"S": f"s3://tensors/other-7/debug-output/#{RUN}"},
        }
        item["updated_at"] = {"N": str(round(time.time() - 100) * 1000)}
        running.aws("dynamodb").put_item(TableName="states", Item=item)
        running.grow_quiet(90)
        get_item = clients.dynamodb().get_item

        def failing(**arguments: Any) -> Any:
            if "other-7" in json.dumps(arguments["Key"]):
                raise ClientError({"Error": {"Code": "InternalServerError"}}, "GetItem")
            return get_item(**arguments)

        monkeypatch.setattr(clients.dynamodb(), "get_item", failing)
        with pytest.raises(SweepIncompleteError, match="other-7"):
            running.sweep()
        (wake,) = wakes(running)
        assert wake.root_uri == ROOT_URI
