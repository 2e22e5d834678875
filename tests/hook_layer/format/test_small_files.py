"""Collections files, job files, stop files and end markers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hook_layer.format.collections_file import (
    MAX_COLLECTIONS_BYTES,
    CollectionEntry,
    CollectionsFile,
    parse_collections,
)
from hook_layer.format.end_marker import MAX_END_MARKER_BYTES, EndMarker, parse_end_marker
from hook_layer.format.errors import (
    CollectionsFileError,
    FormatError,
    JobFileError,
)
from hook_layer.format.job_file import (
    MAX_JOB_FILE_BYTES,
    JobFile,
    StopFile,
    new_run_id,
    parse_job_file,
    parse_stop_file,
)


def test_a_collections_file_comes_back() -> None:
    entry = CollectionEntry("gradients", ("^gradient",), ("b", "a"), {"save_raw_tensor": True})
    back = parse_collections(CollectionsFile({"gradients": entry}, 2).encode(), file="f")
    assert back.num_workers == 2
    assert back.collections["gradients"] == CollectionEntry(
        "gradients", ("^gradient",), ("a", "b"), {"save_raw_tensor": True}
    )


def test_gradient_stops_come_back() -> None:
    stops = {"`detach` at net.py:3, after Net_a": ("Net_a.weight", "Net_a.bias")}
    back = parse_collections(CollectionsFile({}, gradient_stops=stops).encode(), file="f")
    assert {text: tuple(names) for text, names in back.gradient_stops.items()} == stops


def test_lines_of_the_script_come_back() -> None:
    lines = {"layers": {"fc": "net.py:3"}, "optimizers": {"SGD_0": "train.py:20"}}
    back = parse_collections(CollectionsFile({}, script_lines=lines).encode(), file="f")
    assert back.script_lines == lines


@pytest.mark.parametrize("lines", ['["a"]', '{"layers": "b"}', '{"layers": {"fc": 1}}'])
def test_lines_of_another_form_are_refused(lines: str) -> None:
    data = f'{{"collections": {{}}, "_meta": {{"script_lines": {lines}}}}}'.encode()
    with pytest.raises(CollectionsFileError, match="script_lines"):
        parse_collections(data, file="f")


@pytest.mark.parametrize("stops", ['["a"]', '{"a": "b"}', '{"a": [1]}', '{"a": null}'])
def test_gradient_stops_of_another_form_are_refused(stops: str) -> None:
    data = f'{{"collections": {{}}, "_meta": {{"gradient_stops": {stops}}}}}'.encode()
    with pytest.raises(CollectionsFileError, match="gradient_stops"):
        parse_collections(data, file="f")


def test_the_originals_collections_file_is_read_and_written() -> None:
    data = (
        b'{"collections": {"default": {"name": "default", "include_regex": [], '
        b'"tensor_names": [], "reduction_config": null, "save_config": null, '
        b'"save_histogram": true}}, "_meta": {"num_workers": 1}}'
    )
    assert parse_collections(data, file="f").encode() == data


def test_an_unknown_key_of_a_collections_file_is_refused() -> None:
    with pytest.raises(CollectionsFileError, match="'other'"):
        parse_collections(b'{"collections": {}, "other": 1}', file="f")


def test_job_and_stop_files_come_back() -> None:
    job = JobFile("mnist-7", new_run_id(), "sagemaker", "2026-11-20T10:00:00Z", "arn:x", ({},))
    assert parse_job_file(job.encode(), file="f") == job
    stop = StopFile("loss is NaN", "2026-11-20T10:00:00Z", job.run_id, "R", {"step": 3})
    assert parse_stop_file(stop.encode(), file="f") == stop
    assert parse_stop_file(b'{"Reason": "by hand"}', file="f").run_id is None


def test_end_markers_come_back_and_the_originals_is_empty() -> None:
    marker = EndMarker("01JD", {"worker_0": 41, "worker_1": 0})
    assert parse_end_marker(marker.encode(), file="f") == marker
    watched = EndMarker("01JD", {"worker_0": 41}, exit_status=137)
    assert parse_end_marker(watched.encode(), file="f") == watched
    assert EndMarker().encode() == b""
    assert parse_end_marker(b" \n", file="f") == EndMarker()
    for data in (b"01JD", b"[]", b'{"RunId": 1}', b'{"RunId": "x", "Sequences": {"w": -1}}'):
        with pytest.raises(JobFileError, match="the file"):
            parse_end_marker(data, file="the file")


def test_a_job_file_without_a_run_is_refused() -> None:
    with pytest.raises(JobFileError, match="RunId"):
        parse_job_file(b'{"TrainingJobName": "x"}', file="f")


def test_run_ids_differ_and_sort_by_time() -> None:
    ids = [new_run_id() for _ in range(50)]
    assert len(set(ids)) == 50
    assert {len(run) for run in ids} == {26}
    assert ids[0][:8] <= ids[-1][:8]


def test_each_kind_of_file_has_its_own_limit() -> None:
    limits: list[tuple[Callable[..., object], int]] = [
        (parse_collections, MAX_COLLECTIONS_BYTES),
        (parse_job_file, MAX_JOB_FILE_BYTES),
        (parse_stop_file, MAX_JOB_FILE_BYTES),
        (parse_end_marker, MAX_END_MARKER_BYTES),
    ]
    for parse, limit in limits:
        with pytest.raises(FormatError, match=f"f: longer than the {limit} bytes allowed"):
            parse(b"[" * (limit + 1), file="f")
