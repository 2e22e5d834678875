"""Names in files and events never lead to an object outside of the trial that has them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.client import BaseClient
from hypothesis import given
from hypothesis import strategies as st

from hook_layer.format.errors import FormatError, PathError
from hook_layer.format.index import parse_index
from hook_layer.format.paths import index_key, split_object_key
from hook_layer.storage.memory import MemoryStore
from tests.lambdas.conftest import BUCKET, ROOT, Pipeline, index_bytes, s3_event, sqs_record

JOB_FOLDER = "mnist-7/"
ESCAPES = [
    "../../another-job/events/000000000000/000000000000_worker_0.tfevents",
    "/etc/passwd",
    "s3://another/events/000000000000/000000000000_worker_0.tfevents",
    "events/../../x/000000000000/000000000000_worker_0.tfevents",
    "events/000000000000/../../../000000000000_worker_0.tfevents",
    "events\\000000000000\\000000000000_worker_0.tfevents",
    "job.json",
]
PARTS = st.sampled_from(["..", ".", "", "index", "events", "000000000", "000000000000_w.json", "x"])


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys and prefixes that S3 was asked for."""
    found: list[str] = []
    make_api_call = BaseClient._make_api_call  # type: ignore[attr-defined]

    def noted(self: Any, operation_name: str, api_params: dict[str, Any]) -> Any:
        if "Bucket" in api_params:
            assert api_params["Bucket"] == BUCKET
            found.append(api_params.get("Key", api_params.get("Prefix", "")))
        return make_api_call(self, operation_name, api_params)

    monkeypatch.setattr(BaseClient, "_make_api_call", noted)
    return found


@pytest.mark.parametrize("name", ESCAPES)
def test_an_index_names_no_event_file_elsewhere(
    pipeline: Pipeline, keys: list[str], name: str
) -> None:
    document = {**json.loads(index_bytes(0)), "meta": {**json.loads(index_bytes(0))["meta"]}}
    document["meta"]["event_file_name"] = name
    with pytest.raises(FormatError, match="event_file_name"):
        parse_index(json.dumps(document).encode(), file="index.json")
    pipeline.put_job()
    pipeline.put(index_key(0, "worker_0"), json.dumps(document).encode())
    pipeline.put_step(1, sequence=2, num_nan=1)
    keys.clear()
    pipeline.deliver()
    assert pipeline.statuses()[-1] == "IssuesFound"
    assert keys
    assert [key for key in keys if not key.startswith(JOB_FOLDER)] == []


@given(st.lists(PARTS, min_size=1, max_size=8).map("/".join))
def test_an_objects_key_is_taken_apart_and_never_resolved(key: str) -> None:
    try:
        root, relative = split_object_key(key)
    except PathError:
        return
    assert root + relative == key, "S3 knows no '..': a key is what it says"
    assert ".." not in relative.split("/")


@pytest.mark.parametrize(
    "key",
    [
        "mnist-7/debug-output/../another/index/000000000/000000000000_worker_0.json",
        "mnist-7//index/000000000/000000000000_worker_0.json",
    ],
)
def test_an_event_about_a_key_with_dots_reaches_no_other_job(
    pipeline: Pipeline, keys: list[str], key: str
) -> None:
    pipeline.put("index/000000000/000000000000_worker_0.json", index_bytes(0), "another/")
    keys.clear()
    failed = pipeline.invoke([sqs_record(s3_event(key), "m")])
    assert failed == []
    assert not [asked for asked in keys if asked.startswith("another/")]


@pytest.mark.parametrize("key", ["../x", "a/../../x", "/x", "a\\..\\x", "", "a\x00b"])
def test_no_store_takes_such_a_key(key: str) -> None:
    store = MemoryStore()
    for call in (store.get, store.exists, store.size, store.delete):
        with pytest.raises(ValueError, match="key"):
            call(key)
    with pytest.raises(ValueError, match="key"):
        store.put(key, b"")


@pytest.mark.parametrize("bucket", ["another", "tensors-2", "tensors/x"])
def test_an_event_about_another_bucket_reads_nothing(
    pipeline: Pipeline, keys: list[str], bucket: str
) -> None:
    event = s3_event(ROOT + index_key(0, "worker_0"), bucket)
    assert pipeline.invoke([sqs_record(event, "m")]) == []
    assert keys == []
