"""The evaluator over AWS in moto: what a job's events lead to."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from lambdas.shared import clients
from tests.lambdas.conftest import Pipeline, job_bytes

RUN = "01JD0000000000000000000001"
NEXT_RUN = "01JD0000000000000000000002"
RULE = "ExplodingTensor"
ROOT = "mnist-7/debug-output/"


def refusal(operation: str, code: str = "InternalException") -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "try again"}}, operation)


def test_a_healthy_job_ends_without_issues(pipeline: Pipeline) -> None:
    pipeline.put_job()
    for step in range(3):
        pipeline.put_step(step)
    pipeline.deliver()
    assert pipeline.statuses() == ["InProgress"]
    assert pipeline.state_item()["active"] == {"S": "1"}

    pipeline.put_marker()
    pipeline.deliver()
    assert pipeline.statuses() == ["NoIssuesFound"]
    item = pipeline.state_item()
    assert json.loads(item["counts"]["S"])["evaluated"] == 3
    assert "active" not in item
    assert item["transition"] == item["announced_transition"] == {"N": "2"}
    assert int(item["expires_at"]["N"]) > 0


def test_a_finding_names_tensor_value_and_step(pipeline: Pipeline) -> None:
    pipeline.put_job()
    pipeline.put_step(0)
    pipeline.put_step(1, num_nan=3)
    pipeline.put_step(2, num_nan=4)
    pipeline.deliver()
    first, finding = pipeline.announced()
    assert first["DebugRuleEvaluationStatuses"][0]["RuleEvaluationStatus"] == "InProgress"
    (status,) = finding["DebugRuleEvaluationStatuses"]
    assert status["RuleEvaluationStatus"] == "IssuesFound"
    assert status["StatusDetails"] == (
        "RuleEvaluationConditionMet: Evaluation of the rule ExplodingTensor at step 1 resulted in "
        "the condition being met\ngradient/conv.weight: 3 of 4 elements are NaN (worker_0, TRAIN)"
    )
    assert finding["Evidence"]["value"] == 3.0
    assert finding["Evidence"]["count"] == 2

    pipeline.put_marker()
    pipeline.deliver()
    assert pipeline.statuses() == [], "a verdict stays, and is told once"


def test_a_job_without_any_step_ends_as_error_with_the_reason(pipeline: Pipeline) -> None:
    pipeline.put_job()
    pipeline.put_marker()
    pipeline.deliver()
    status = pipeline.verdict()
    assert status["RuleEvaluationStatus"] == "Error"
    assert "no step of this run was saved" in status["StatusDetails"]


def test_every_duplicate_and_reordered_record_changes_nothing(pipeline: Pipeline) -> None:
    pipeline.put_job()
    for step in range(4):
        pipeline.put_step(step)
    records = pipeline.receive()
    assert pipeline.invoke(records[::-1]) == []
    version = pipeline.state_item()["version"]
    assert pipeline.statuses() == ["InProgress"]
    assert pipeline.invoke(records * 2) == []
    assert pipeline.invoke(records[2:] + records[:2]) == []
    item = pipeline.state_item()
    assert item["version"] == version, "nothing new, nothing written"
    assert json.loads(item["counts"]["S"])["evaluated"] == 4
    assert pipeline.statuses() == []


def test_a_poison_record_is_dropped_and_the_others_are_evaluated(pipeline: Pipeline) -> None:
    pipeline.put_job()
    pipeline.put_step(0)
    records = pipeline.receive()
    poison = {**records[0], "messageId": "poison", "body": "{no json"}
    assert pipeline.invoke([poison, *records]) == []
    assert json.loads(pipeline.state_item()["counts"]["S"])["evaluated"] == 1


def test_an_unreadable_index_file_does_not_stop_the_others(pipeline: Pipeline) -> None:
    pipeline.put_job()
    pipeline.put("index/000000000/000000000000_worker_0.json", b"{truncated")
    pipeline.put_step(1, sequence=2)
    pipeline.put_marker()
    pipeline.deliver()
    status = pipeline.verdict()
    assert status["RuleEvaluationStatus"] == "NoIssuesFound"
    assert "1 file unreadable" in status["StatusDetails"]


def test_one_job_that_fails_does_not_fail_the_others(pipeline: Pipeline) -> None:
    for root in ("a/", "b/"):
        pipeline.put_job(root=root, training_job_name=root[:-1])
        pipeline.put_step(0, root=root)
    records = pipeline.receive()
    get_object = clients.s3().get_object

    def slow_down(**arguments: Any) -> Any:
        if arguments["Key"].startswith("a/"):
            raise refusal("GetObject", "SlowDown")
        return get_object(**arguments)

    pipeline.patch.setattr(clients.s3(), "get_object", slow_down)
    failed = pipeline.invoke(records)
    assert [r["messageId"] for r in records if '"a/' in r["body"]] == failed
    assert pipeline.state_item(root="b/")["version"]["N"] == "2"


def test_a_crash_between_state_and_event_is_announced_on_retry(pipeline: Pipeline) -> None:
    pipeline.put_job()
    pipeline.put_step(0)
    pipeline.deliver()
    assert pipeline.statuses() == ["InProgress"]

    pipeline.put_step(1, num_nan=1)
    records = pipeline.receive()
    with pipeline.patch.context() as broken:

        def put_events(**_: Any) -> Any:
            raise refusal("PutEvents")

        broken.setattr(clients.eventbridge(), "put_events", put_events)
        assert pipeline.invoke(records) == [record["messageId"] for record in records]
    item = pipeline.state_item()
    assert item["status"] == {"S": "IssuesFound"}
    assert (item["transition"]["N"], item["announced_transition"]["N"]) == ("2", "1")
    assert pipeline.statuses() == []

    version = item["version"]
    assert pipeline.invoke(records) == []
    assert pipeline.statuses() == ["IssuesFound"]
    assert pipeline.state_item()["version"] == version, "there was nothing new to evaluate"
    assert pipeline.invoke(records) == []
    assert pipeline.statuses() == []


def test_an_event_that_the_bus_refuses_is_not_taken_for_announced(pipeline: Pipeline) -> None:
    pipeline.put_job()
    pipeline.put_step(0)
    records = pipeline.receive()
    with pipeline.patch.context() as broken:
        refused = {"FailedEntryCount": 1, "Entries": [{"ErrorCode": "ThrottlingException"}]}
        broken.setattr(clients.eventbridge(), "put_events", lambda **_: refused)
        assert pipeline.invoke(records) == [record["messageId"] for record in records]
    assert pipeline.invoke(records) == []
    assert pipeline.statuses() == ["InProgress"]


def test_a_crash_after_the_event_announces_once_more(pipeline: Pipeline) -> None:
    pipeline.put_job()
    pipeline.put_step(0, num_nan=1)
    records = pipeline.receive()
    update_item = clients.dynamodb().update_item
    num_calls = 0

    def crash_after_second_event(**arguments: Any) -> Any:
        nonlocal num_calls
        num_calls += arguments["UpdateExpression"].startswith("SET announced_transition")
        if num_calls == 2:
            raise refusal("UpdateItem", "ServiceUnavailable")
        return update_item(**arguments)

    with pipeline.patch.context() as broken:
        broken.setattr(clients.dynamodb(), "update_item", crash_after_second_event)
        assert pipeline.invoke(records) == [record["messageId"] for record in records]
    assert pipeline.statuses() == ["InProgress", "IssuesFound"]
    assert pipeline.invoke(records) == []
    assert pipeline.statuses() == ["IssuesFound"]
    assert pipeline.invoke(records) == []
    assert pipeline.statuses() == []


def test_two_evaluators_at_once_leave_the_state_of_one(pipeline: Pipeline) -> None:
    pipeline.put_job()
    pipeline.put_step(0)
    pipeline.deliver()
    pipeline.put_step(1)
    pipeline.put_step(2, num_nan=1)
    records = pipeline.receive()
    pipeline.statuses()
    update_item = clients.dynamodb().update_item
    has_met = False

    def meet_another(**arguments: Any) -> Any:
        nonlocal has_met
        if not has_met:
            has_met = True  # the other one takes the same records and is quicker
            assert pipeline.invoke(records) == []
        return update_item(**arguments)

    pipeline.patch.setattr(clients.dynamodb(), "update_item", meet_another)
    assert pipeline.invoke(records) == []
    item = pipeline.state_item()
    assert json.loads(item["counts"]["S"])["evaluated"] == 3
    assert item["version"]["N"] == "3", "first sight, step 0, steps 1 and 2"
    assert pipeline.statuses() == ["IssuesFound"]


def test_evaluators_with_different_records_both_count(pipeline: Pipeline) -> None:
    pipeline.put_job()
    pipeline.put_step(0)
    first = pipeline.receive()
    pipeline.put_step(1)
    second = [r for r in pipeline.receive() if "000000000001_" in r["body"]]
    update_item = clients.dynamodb().update_item
    has_met = False

    def meet_another(**arguments: Any) -> Any:
        nonlocal has_met
        if not has_met:
            has_met = True
            assert pipeline.invoke(second) == []
        return update_item(**arguments)

    pipeline.patch.setattr(clients.dynamodb(), "update_item", meet_another)
    assert pipeline.invoke(first) == []
    assert json.loads(pipeline.state_item()["counts"]["S"])["evaluated"] == 2
    assert pipeline.statuses() == ["InProgress"]


def test_a_second_run_in_the_same_folder_is_judged_afresh(pipeline: Pipeline) -> None:
    pipeline.put_job()
    pipeline.put_step(0, num_nan=1)
    pipeline.put_marker()
    pipeline.deliver()
    assert pipeline.statuses() == ["InProgress", "IssuesFound"]

    pipeline.aws("s3").delete_object(Bucket="tensors", Key=ROOT + "training_job_end.ts")
    pipeline.put_job(NEXT_RUN)
    pipeline.put_step(0, run=NEXT_RUN)
    pipeline.put_marker(NEXT_RUN)
    pipeline.deliver()
    details = pipeline.announced()
    assert {detail["RunId"] for detail in details} == {NEXT_RUN}
    assert [d["DebugRuleEvaluationStatuses"][0]["RuleEvaluationStatus"] for d in details] == [
        "InProgress",
        "NoIssuesFound",
    ]
    assert pipeline.state_item(RUN)["status"] == {"S": "IssuesFound"}


def test_a_late_end_marker_does_not_end_the_next_run(pipeline: Pipeline) -> None:
    pipeline.put_job()
    pipeline.put_step(0)
    pipeline.put_marker()
    records = pipeline.receive()
    pipeline.aws("s3").delete_object(Bucket="tensors", Key=ROOT + "training_job_end.ts")
    pipeline.put_job(NEXT_RUN)
    pipeline.put_step(1, run=NEXT_RUN, sequence=1)
    assert pipeline.invoke(records) == []
    pipeline.deliver()
    assert pipeline.state_item(NEXT_RUN)["ended"] == {"BOOL": False}


def test_files_of_the_original_client_need_no_run(pipeline: Pipeline) -> None:
    for step in (0, 500):
        pipeline.put_step(step, run=None, sequence=None, workers=None)
    pipeline.put_marker(None)
    pipeline.deliver()
    details = pipeline.announced()
    assert [d["DebugRuleEvaluationStatuses"][0]["RuleEvaluationStatus"] for d in details] == [
        "InProgress",
        "NoIssuesFound",
    ]
    assert details[-1]["TrainingJobName"] == "mnist-7"
    assert "TrainingJobArn" not in details[-1]


def test_several_workers_wait_for_each_other(pipeline: Pipeline) -> None:
    pipeline.put_job()
    pipeline.put_step(0, worker="worker_0", workers=2, sequence=1)
    pipeline.deliver()
    assert json.loads(pipeline.state_item()["counts"]["S"])["evaluated"] == 0
    pipeline.put_step(0, worker="worker_1", workers=2, sequence=1, num_nan=2)
    pipeline.deliver()
    *_, finding = pipeline.announced()
    assert finding["Evidence"]["worker"] == "worker_1"


@pytest.mark.parametrize(
    "root", ["run+1 a%20b/", "a#b?c=d&e/", "läufe/ünï/debug-output/", "index/"]
)
def test_a_root_is_taken_as_it_is_written(pipeline: Pipeline, root: str) -> None:
    pipeline.put_job(root=root)
    pipeline.put_step(0, root=root, num_nan=1)
    pipeline.deliver()
    *_, finding = pipeline.announced()
    assert finding["DebugOutputUri"] == f"s3://tensors/{root}"
    assert finding["Evidence"]["tensor"] == "gradient/conv.weight"


def test_a_rule_that_the_job_did_not_ask_for_reads_no_index(pipeline: Pipeline) -> None:
    pipeline.put_job(debug_rule_configurations=({"RuleConfigurationName": "Other"},))
    for step in range(3):
        pipeline.put_step(step)
    keys: list[str] = []
    get_object = clients.s3().get_object

    def noted(**arguments: Any) -> Any:
        keys.append(arguments["Key"])
        return get_object(**arguments)

    pipeline.patch.setattr(clients.s3(), "get_object", noted)
    pipeline.deliver()
    assert set(keys) == {ROOT + "job.json"}
    keys.clear()
    pipeline.put_step(3)
    pipeline.deliver()
    assert keys == [], "what job.json says is remembered"
    assert pipeline.statuses() == []


def test_a_job_gives_the_rule_its_own_parameters(pipeline: Pipeline) -> None:
    pipeline.put_job(
        debug_rule_configurations=(
            {
                "RuleConfigurationName": RULE,
                "RuleParameters": {"rule_to_invoke": RULE, "tensor_regex": "^loss$"},
            },
        )
    )
    pipeline.put_step(0, num_nan=4)
    pipeline.put_marker()
    pipeline.deliver()
    status = pipeline.verdict()
    assert status["RuleEvaluationStatus"] == "Error"
    assert "none of the selected tensors was saved" in status["StatusDetails"]


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"rule_to_invoke": RULE, "tensor_regexp": "loss"}, "tensor_regexp"),
        ({"rule_to_invoke": RULE, "tensor_regex": "("}, "tensor_regex"),
        ({"rule_to_invoke": "LossNotDecreasing"}, "LossNotDecreasing"),
        ({"rule_to_invoke": {"not": "text"}}, "not"),
        ({"rule_to_invoke": RULE, "only_nan": [1]}, "only_nan"),
    ],
)
def test_parameters_that_make_no_rule_end_as_error(
    pipeline: Pipeline, parameters: dict[str, Any], words: str
) -> None:
    rule = {"RuleConfigurationName": RULE, "RuleParameters": parameters}
    pipeline.put_job(debug_rule_configurations=(rule,))
    pipeline.put_step(0, num_nan=4)
    pipeline.put_marker()
    pipeline.deliver()
    statuses = [detail["DebugRuleEvaluationStatuses"][0] for detail in pipeline.announced()]
    assert [status["RuleEvaluationStatus"] for status in statuses] == ["InProgress", "Error"]
    assert words in statuses[1]["StatusDetails"]


def test_more_rules_than_an_item_holds_are_evaluated_as_asked_for(pipeline: Pipeline) -> None:
    rules = [
        {"RuleConfigurationName": "ü" * 100 + str(number), "RuleParameters": {"a": "é" * 300}}
        for number in range(300)
    ]
    own = {"RuleConfigurationName": RULE, "RuleParameters": {"tensor_regex": "^loss$"}}
    job = json.loads(job_bytes())
    job["DebugRuleConfigurations"] = [*rules, own]
    pipeline.put("job.json", json.dumps(job, ensure_ascii=False).encode())
    pipeline.put_step(0, num_nan=1)
    pipeline.put_marker()
    pipeline.deliver()
    status = pipeline.verdict()
    assert "none of the selected tensors was saved" in status["StatusDetails"]


def test_names_as_long_as_an_item_do_not_lose_the_finding(pipeline: Pipeline) -> None:
    pipeline.put_job(platform="p" * 100_000, run_id="r" * 100_000)
    pipeline.put_step(0, num_nan=1, tensor="ünï" * 200_000)
    pipeline.deliver()
    assert pipeline.statuses() == ["InProgress", "IssuesFound"]
    pipeline.put_step(1)
    pipeline.deliver()
    assert pipeline.statuses() == []


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff", b'{"RunId": 5}', b"[" * 100_000])
def test_a_job_file_that_is_no_job_file_does_not_keep_a_job_from_being_judged(
    pipeline: Pipeline, content: bytes
) -> None:
    pipeline.put("job.json", content)
    pipeline.put_step(0, num_nan=1)
    pipeline.deliver()
    assert pipeline.statuses() == ["InProgress", "IssuesFound"]


def test_records_are_put_off_when_the_time_is_nearly_over(pipeline: Pipeline) -> None:
    for root in ("a/", "b/", "c/"):
        pipeline.put_job(root=root)
        pipeline.put_step(0, root=root)
    records = pipeline.receive()
    failed = pipeline.invoke(records, remaining_ms=[60_000, 50_000, 14_999])
    assert len(failed) == 2
    states = pipeline.aws("dynamodb").scan(TableName="states")["Items"]
    assert sum("version" in item for item in states) == 1
    assert pipeline.invoke([r for r in records if r["messageId"] in failed]) == []
    states = pipeline.aws("dynamodb").scan(TableName="states")["Items"]
    assert sum("version" in item for item in states) == 3


def test_what_one_call_has_no_time_for_goes_through_the_functions_own_queue(
    pipeline: Pipeline,
) -> None:
    pipeline.put_job()
    for step in range(6):
        pipeline.put_step(step, num_nan=step == 5)
    pipeline.put_marker()
    records = [record for record in pipeline.receive() if "training_job_end" in record["body"]]
    pipeline.aws("sqs").purge_queue(QueueUrl=pipeline.queue_url)
    assert pipeline.invoke(records, remaining_ms=[60_000] * 4 + [14_999]) == []
    assert pipeline.statuses() == ["InProgress"]
    (wake,) = pipeline.receive()
    detail = json.loads(wake["body"])["detail"]
    assert (detail["Reason"], detail["Hop"]) == ("continue", 1)
    assert detail["Version"] == int(pipeline.state_item()["version"]["N"])
    assert detail["Rule"] == "ExplodingTensor"
    num_calls = 0
    while records := pipeline.receive():
        num_calls += 1
        assert pipeline.invoke(records, remaining_ms=[60_000] * 4 + [14_999]) == []
        for record in records:
            pipeline.aws("sqs").delete_message(
                QueueUrl=pipeline.queue_url, ReceiptHandle=record["handle"]
            )
    assert num_calls >= 1
    assert pipeline.statuses() == ["IssuesFound"]
    assert pipeline.state_item()["ended"] == {"BOOL": True}
    assert json.loads(pipeline.state_item()["counts"]["S"])["evaluated"] == 6


def test_an_unusable_environment_is_reported_at_once(pipeline: Pipeline) -> None:
    pipeline.patch.delenv("STEPWATCH_STATE_TABLE_NAME")
    pipeline.patch.setenv("STEPWATCH_RULE_PARAMETERS", "[]")
    with pytest.raises(ValueError, match=r"RULE_PARAMETERS.*STATE_TABLE_NAME is not set"):
        pipeline.invoke([])


@pytest.mark.parametrize(
    "damage",
    [
        {"version": {"S": "1"}},
        {"transition": {"S": "1"}},
        {"announced_transition": {"BOOL": True}},
        {"status": {"S": "Fine"}},
        {"counts": {"S": "[" * 10_000}},
        {"progress": {"B": b"nothing"}},
        {"memory": {"B": b"nothing"}},
        {"updated_at": {"NULL": True}},
        {},
    ],
)
def test_a_damaged_item_becomes_an_error_with_the_reason_once(
    pipeline: Pipeline, damage: dict[str, Any]
) -> None:
    pipeline.put_job()
    pipeline.put_step(0)
    pipeline.deliver()
    item = {**pipeline.state_item(), **damage}
    kept = item if damage else {name: item[name] for name in ("run", "rule")}
    index = {"updated_at", "active"} if "updated_at" in damage else set()
    kept = {name: value for name, value in kept.items() if name not in index}
    pipeline.aws("dynamodb").put_item(TableName="states", Item=kept)
    pipeline.announced()
    pipeline.put_step(1, num_nan=1)
    pipeline.put_step(2, num_nan=1)
    pipeline.deliver()
    (announced,) = pipeline.announced()
    (status,) = announced["DebugRuleEvaluationStatuses"]
    assert status["RuleEvaluationStatus"] == "Error"
    assert "its stored state is damaged" in status["StatusDetails"]
    pipeline.put_marker()
    pipeline.deliver()
    assert pipeline.announced() == []
    assert pipeline.state_item()["ended"] == {"BOOL": True}
