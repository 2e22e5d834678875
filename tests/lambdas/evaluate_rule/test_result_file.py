"""The verdict as a file, for whoever looks into the bucket and not at events."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hook_layer.storage.base import check_key
from lambdas.shared import clients
from rule_runtime.engine.result_file import result_place
from tests.lambdas.conftest import Pipeline, refusal

RULE = "ExplodingTensor"


def results(pipeline: Pipeline) -> dict[str, Any]:
    s3 = pipeline.aws("s3")
    keys = [found["Key"] for found in s3.list_objects_v2(Bucket="tensors")["Contents"]]
    return {
        key: json.loads(s3.get_object(Bucket="tensors", Key=key)["Body"].read())
        for key in keys
        if "rule-output/" in key
    }


@pytest.mark.parametrize("root", ["mnist-7/debug-output/", "mnist-7/"])
def test_lies_where_the_original_puts_a_rules_output(pipeline: Pipeline, root: str) -> None:
    pipeline.put_job(root=root)
    pipeline.put_step(0, root=root)
    pipeline.deliver()
    assert results(pipeline) == {}, "there is no verdict yet"
    pipeline.put_step(1, root=root, num_nan=1)
    pipeline.deliver()
    _, finding = pipeline.announced()
    assert results(pipeline) == {f"mnist-7/rule-output/{RULE}/status.json": finding}


def test_the_next_run_writes_its_own_over_it(pipeline: Pipeline) -> None:
    for run in ("01JD0000000000000000000001", "01JD0000000000000000000002"):
        pipeline.put_job(run)
        pipeline.put_step(0, run=run)
        pipeline.put_marker(run)
        pipeline.deliver()
    (found,) = results(pipeline).values()
    assert found["RunId"].endswith("2")
    assert found["DebugRuleEvaluationStatuses"][0]["RuleEvaluationStatus"] == "NoIssuesFound"


def test_a_role_that_may_not_write_announces_all_the_same(pipeline: Pipeline) -> None:
    pipeline.put_job()
    pipeline.put_step(0, num_nan=1)
    with pipeline.patch.context() as refusing:
        refusing.setattr(clients.s3(), "put_object", refusal("AccessDenied"))
        pipeline.deliver()
    assert pipeline.statuses() == ["InProgress", "IssuesFound"]
    assert pipeline.state_item()["announced_transition"] == {"N": "2"}


@pytest.mark.parametrize(
    ("root", "rule", "folder", "key"),
    [
        ("s3://b/debug-output/", "A", "s3://b/", "rule-output/A/status.json"),
        ("s3://b/x-debug-output/", "A", "s3://b/x-debug-output/", "rule-output/A/status.json"),
        ("s3://b/", "A b", "s3://b/", "rule-output/A b/status.json"),
        ("s3://b/j/", "a/../b", "s3://b/j/", "rule-output/a%2F..%2Fb/status.json"),
        ("s3://b/j/", "ü\\", "s3://b/j/", "rule-output/%C3%BC%5C/status.json"),
    ],
)
def test_the_place(root: str, rule: str, folder: str, key: str) -> None:
    assert result_place(root, rule) == (folder, key)
    assert check_key(key) == key


@pytest.mark.parametrize("rule", [".", ".."])
def test_a_name_that_leads_elsewhere_is_no_key(rule: str) -> None:
    with pytest.raises(ValueError, match="not a key"):
        check_key(result_place("s3://b/j/", rule)[1])
