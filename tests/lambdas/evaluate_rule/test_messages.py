"""What messages are taken, and why the others are dropped."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambdas.evaluate_rule.messages import IgnoredMessageError, TensorObject, parse_message
from lambdas.shared.wake import Wake, WakeReason

INDEX = "index/000000000/000000000012_worker_0.json"
BUCKETS = frozenset({"tensors"})


def body(key: object = f"mnist-7/{INDEX}", bucket: object = "tensors", **changes: Any) -> str:
    event = {
        "detail-type": "Object Created",
        "source": "aws.s3",
        "time": "2026-11-20T10:00:00Z",
        "detail": {"bucket": {"name": bucket}, "object": {"key": key, "etag": "b57f9512"}},
    }
    return json.dumps(event | changes)


@pytest.mark.parametrize(
    ("key", "root", "relative"),
    [
        (f"mnist-7/{INDEX}", "mnist-7/", INDEX),
        (f"a/b/debug-output/{INDEX}", "a/b/debug-output/", INDEX),
        (INDEX, "", INDEX),
        (f"a/index/b/{INDEX}", "a/index/b/", INDEX),
        ("mnist-7/training_job_end.ts", "mnist-7/", "training_job_end.ts"),
        # Keys in events are not URL-encoded: these are names, not escapes.
        (f"run+1 a%20b#c?d/{INDEX}", "run+1 a%20b#c?d/", INDEX),
        (f"läufe/{INDEX}", "läufe/", INDEX),
    ],
)
def test_index_files_and_end_markers_are_taken(key: str, root: str, relative: str) -> None:
    expected = TensorObject(f"s3://tensors/{root}", relative, 1795168800.0)
    assert parse_message(body(key), BUCKETS) == expected


def test_the_shape_of_moto_is_taken_too() -> None:
    event = json.loads(body())
    event["detail"]["object"]["eTag"] = event["detail"]["object"].pop("etag")
    event["detail"]["reason"] = "ObjectCreated"
    assert parse_message(json.dumps(event), BUCKETS).root_uri == "s3://tensors/mnist-7/"


@pytest.mark.parametrize("time", [None, 5, "yesterday", "9999999-01-01T00:00:00Z"])
def test_a_time_that_cannot_be_read_is_no_matter(time: object) -> None:
    assert parse_message(body(time=time), BUCKETS).created_at is None


@pytest.mark.parametrize(
    ("text", "reason", "is_expected"),
    [
        (body(**{"detail-type": "Object Tags Added"}), "Object Tags Added", True),
        (body(**{"detail-type": "Object Deleted"}), "Object Deleted", True),
        (body("mnist-7/job.json"), "job.json", True),
        ("", "not JSON", False),
        ("{", "not JSON", False),
        ("[" * 100_000, "not JSON", False),
        ("9" * 10_000, "not JSON", False),
        ("[]", "not an event", False),
        ("null", "not an event", False),
        ("{}", "type None", True),
        (body(detail=None), "bucket.name", False),
        (body(detail=[]), "bucket.name", False),
        (body(bucket=5), "bucket.name", False),
        (body(bucket="somebody-elses"), "not watched", False),
        (body(key=None), "object.key", False),
        (body(key=""), "object.key", False),
        (body(key="mnist-7/index/x.json"), "index/x.json", False),
        (body(key="mnist-7/index/000000000/../000000000012_worker_0.json"), "not an", False),
        (body(key=f"../{INDEX}"), "plain relative path", False),
        (body(key=f"a//b/{INDEX}"), "plain relative path", False),
        (body(key=f"/{INDEX}"), "plain relative path", False),
        (body(key=f"a\nb/{INDEX}"), "plain relative path", False),
        (body(key=f"a\\b/{INDEX}"), "plain relative path", False),
        (body(key="a/index/000000000/000000000012_w\ud800.json"), "not an index file", False),
        (body(key=f"a/index/000000000/000000000012_{'😀' * 255}.json"), "plain relative", False),
        (body(key=f"{'ä' * 460}/{INDEX}"), "longer than 900", False),
    ],
)
def test_what_can_never_be_evaluated_is_dropped(text: str, reason: str, is_expected: bool) -> None:
    with pytest.raises(IgnoredMessageError, match=reason) as caught:
        parse_message(text, BUCKETS)
    assert caught.value.is_expected is is_expected
    assert len(str(caught.value)) < 1000


@given(st.text() | st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda children: st.lists(children) | st.dictionaries(
        st.sampled_from(["detail", "detail-type", "bucket", "name", "object", "key"]), children
    ),
).map(json.dumps))  # fmt: skip
def test_no_body_raises_anything_else(text: str) -> None:
    with pytest.raises(IgnoredMessageError):
        parse_message(text, BUCKETS)


def test_wakes_are_taken() -> None:
    wake = Wake("s3://tensors/mnist-7/", "01JD", WakeReason.ENDED)
    assert parse_message(wake.to_body(), BUCKETS) == wake


def test_wakes_of_what_is_not_watched_are_not() -> None:
    wake = Wake("s3://other/mnist-7/", "01JD", WakeReason.ENDED)
    with pytest.raises(IgnoredMessageError, match="not watched") as caught:
        parse_message(wake.to_body(), BUCKETS)
    assert not caught.value.is_expected


def test_a_wake_with_the_source_of_a_bucket_is_none() -> None:
    event = json.loads(Wake("s3://tensors/a/", "", WakeReason.SILENT).to_body())
    with pytest.raises(IgnoredMessageError, match="not an event that wakes"):
        parse_message(json.dumps(event | {"source": "aws.s3"}), BUCKETS)
