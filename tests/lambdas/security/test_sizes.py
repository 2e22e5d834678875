"""Files that are too large, too deep or say more than they hold: they cost no more than others."""

from __future__ import annotations

import base64
import json
import re
import tracemalloc
from typing import Any

import pytest
from botocore.client import BaseClient

from hook_layer.format.collections_file import MAX_COLLECTIONS_BYTES
from hook_layer.format.end_marker import MAX_END_MARKER_BYTES
from hook_layer.format.index import MAX_INDEX_BYTES
from hook_layer.format.job_file import MAX_JOB_FILE_BYTES
from hook_layer.format.paths import END_MARKER, JOB_FILE, STOP_FILE, collections_key, index_key
from lambdas.contracts import environment
from lambdas.contracts.stopping import WATCHED
from tests.lambdas.conftest import RUN, Pipeline, index_bytes, job_bytes
from tests.lambdas.stop_job.jobs import finding_of, own_event, stop_file

HUGE = 64 << 20
LIMITS = {
    "index": MAX_INDEX_BYTES,
    "job.json": MAX_JOB_FILE_BYTES,
    "stop.json": MAX_JOB_FILE_BYTES,
    "collections": MAX_COLLECTIONS_BYTES,
    "training_job_end.ts": MAX_END_MARKER_BYTES,
}


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int | None]]:
    """The objects that were read, each with the number of bytes that was asked for."""
    found: list[tuple[str, int | None]] = []
    make_api_call = BaseClient._make_api_call  # type: ignore[attr-defined]

    def noted(self: Any, operation_name: str, api_params: dict[str, Any]) -> Any:
        if operation_name == "GetObject":
            asked = re.fullmatch(r"bytes=(\d+)-(\d+)", api_params.get("Range", ""))
            length = int(asked[2]) - int(asked[1]) + 1 if asked else None
            found.append((api_params["Key"], length))
        return make_api_call(self, operation_name, api_params)

    monkeypatch.setattr(BaseClient, "_make_api_call", noted)
    return found


def test_no_small_file_is_read_beyond_its_limit(
    pipeline: Pipeline, reads: list[tuple[str, int | None]]
) -> None:
    huge = b"x" * (9 << 20)
    for key in (JOB_FILE, index_key(0, "worker_0"), collections_key("worker_0")):
        pipeline.put(key, huge)
    pipeline.put_step(1, sequence=2, num_nan=1)
    pipeline.put(END_MARKER, huge)
    pipeline.deliver()
    assert pipeline.verdict()["RuleEvaluationStatus"] == "IssuesFound"
    pipeline.put(STOP_FILE, huge)
    seen = set()
    for key, length in reads:
        kind = next(kind for kind in LIMITS if f"/{kind}" in key)
        seen.add(kind)
        assert length is not None, f"{key} is read whole"
        assert length <= LIMITS[kind] + 1
    assert {"index", "job.json", "training_job_end.ts"} <= seen


def test_stop_job_reads_no_file_beyond_its_limit(
    pipeline: Pipeline, reads: list[tuple[str, int | None]]
) -> None:
    pipeline.patch.setenv(environment.STOP_POLICY, WATCHED)
    detail = finding_of(pipeline, platform="local", training_job_arn=None)
    reads.clear()
    pipeline.put(JOB_FILE, b"x" * (2 << 20))
    pipeline.put(STOP_FILE, b"x" * (2 << 20))
    assert pipeline.stop(own_event(detail)) is None
    signal = stop_file(pipeline)
    assert signal is not None
    assert signal["RunId"] == RUN, "what was no stop signal is written over"
    bounded = {key.rpartition("/")[2]: length for key, length in reads if length is not None}
    assert bounded == {"job.json": MAX_JOB_FILE_BYTES + 1, "stop.json": MAX_JOB_FILE_BYTES + 1}


def changed(document: dict[str, Any], **changes: Any) -> bytes:
    return json.dumps({**document, **changes}).encode()


def bombs() -> dict[str, bytes]:
    """Return index files of few bytes that claim much, or whose parsing could take much."""
    document = json.loads(index_bytes(0))
    block = document["statistics"]
    many = 1 << 40
    return {
        "nested": b"[" * 1_000_000,
        "nested objects": b'{"a":' * 500_000,
        "a number of a million digits": b'{"workers": ' + b"9" * 1_000_000 + b"}",
        "more workers than there are": changed(document, workers=many),
        "a sequence beyond all numbers": changed(document, sequence=1 << 70),
        "a shape of many elements": changed(
            document, statistics={**block, "shapes": [[many, many, many]]}
        ),
        "values that are not there": changed(
            document, statistics={**block, "tensors": ["a"] * 100_000, "values": "AAAA"}
        ),
        "one value for a million names": changed(
            document,
            statistics={
                **block,
                "columns": ["size"] * 100_000,
                "values": base64.b64encode(b"\0" * 8).decode(),
            },
        ),
        "half a character": b'{"run": "\\ud800"}',
    }


@pytest.mark.parametrize("name", bombs())
def test_a_file_that_claims_much_takes_little_and_harms_no_other_step(
    pipeline: Pipeline, name: str
) -> None:
    bomb = bombs()[name]
    pipeline.put(JOB_FILE, job_bytes())
    pipeline.put(index_key(0, "worker_0"), bomb)
    pipeline.put_step(1, sequence=2, num_nan=1)
    tracemalloc.start()
    try:
        pipeline.deliver()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < HUGE
    pipeline.put_marker()
    pipeline.deliver()
    assert pipeline.verdict()["RuleEvaluationStatus"] == "IssuesFound"
