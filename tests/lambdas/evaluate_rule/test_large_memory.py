"""A rule that keeps much between steps, over AWS in moto."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from lambdas.shared import clients
from tests.lambdas.conftest import Pipeline

# Hashes do not compress: 2,000 of 32 bytes, in hexadecimal, are about 72 KB compressed.
RULE_FILE = '''
import hashlib
from rule_runtime.engine.outcome import Evidence, IssueFound, Passed
from rule_runtime.engine.rule import Rule


class Hoarder(Rule):
    """Keeps much, and finds an issue at step 3 if it was shown the steps before."""

    def check(self, step, memory):
        memory.setdefault("steps", []).append(step.step)
        texts = (f"{step.step} {number}".encode() for number in range(2000))
        memory["noise"] = [hashlib.sha256(text).hexdigest() for text in texts]
        if memory["steps"] != [0, 1, 2, 3]:
            return Passed()
        return IssueFound(
            Evidence(step=step.step, mode="TRAIN", worker="worker_0", tensor="", measure="steps",
                     value=4.0, threshold=3.0, sentence="all steps were kept", remedy="none")
        )
'''


@pytest.fixture
def hoarding(pipeline: Pipeline, custom_rules: Callable[..., Any]) -> Pipeline:
    """A job of three steps, judged by a rule with a large memory."""
    configure = custom_rules({"hoarder.py": RULE_FILE})
    pipeline.put_job(debug_rule_configurations=[configure("hoarder.py", rule_to_invoke="Hoarder")])
    for step in range(3):
        pipeline.put_step(step)
    pipeline.deliver()
    assert pipeline.statuses() == ["InProgress"]
    return pipeline


def memories(pipeline: Pipeline) -> list[str]:
    listed: Any = pipeline.aws("s3").list_objects_v2(Bucket="tensors")
    return [found["Key"] for found in listed["Contents"] if "_stepwatch/" in found["Key"]]


def test_is_kept_beside_the_tensors_and_goes_on_from_there(hoarding: Pipeline) -> None:
    (name,) = memories(hoarding)
    assert name == f"mnist-7/debug-output/{hoarding.state_item()['memory_object']['S']}"
    hoarding.forget()
    hoarding.put_step(3)
    hoarding.deliver()
    assert hoarding.statuses() == ["IssuesFound"]
    (last,) = memories(hoarding)
    assert last != name


def test_costs_one_request_to_read_and_two_to_write(
    hoarding: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = []
    for operation in ("get_object", "put_object", "delete_object"):
        original = getattr(clients.s3(), operation)

        def noted(original: Any = original, operation: str = operation, **arguments: Any) -> Any:
            if "_stepwatch/" in arguments["Key"]:
                requests.append(operation)
            return original(**arguments)

        monkeypatch.setattr(clients.s3(), operation, noted)
    hoarding.put_step(3)
    hoarding.deliver()
    assert requests == ["get_object", "put_object", "delete_object"]


@pytest.mark.parametrize("content", [None, b"", b"x" * 100])
def test_that_somebody_removed_or_changed_is_made_again_from_the_files(
    hoarding: Pipeline, content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    (name,) = memories(hoarding)
    if content is None:
        hoarding.aws("s3").delete_object(Bucket="tensors", Key=name)
    else:
        hoarding.aws("s3").put_object(Bucket="tensors", Key=name, Body=content)
    hoarding.put_step(3)
    hoarding.deliver()
    assert hoarding.statuses() == ["IssuesFound"]
    assert json.loads(hoarding.state_item()["counts"]["S"])["evaluated"] == 4
    assert any("from its beginning" in record.message for record in caplog.records)


def test_that_was_lost_does_not_withdraw_a_finding(hoarding: Pipeline) -> None:
    hoarding.put_step(3)
    hoarding.deliver()
    assert hoarding.statuses() == ["IssuesFound"]
    (name,) = memories(hoarding)
    hoarding.aws("s3").delete_object(Bucket="tensors", Key=name)
    hoarding.put_step(4)
    hoarding.put_marker()
    hoarding.deliver()
    assert hoarding.statuses() == []
    assert hoarding.state_item()["status"] == {"S": "IssuesFound"}
    assert hoarding.state_item()["ended"] == {"BOOL": True}
