"""Names of the files of a trial."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hook_layer.format import paths
from hook_layer.format.errors import PathError
from hook_layer.format.reductions import (
    REDUCTION_NAMES,
    reduction_tensor_name,
    split_reduction_name,
)
from hook_layer.storage.base import check_key


def test_keys_are_the_originals() -> None:
    assert paths.event_key(12, "worker_0") == ("events/000000000012/000000000012_worker_0.tfevents")
    assert paths.index_key(12345, "worker_0") == "index/000000012/000000012345_worker_0.json"
    assert paths.collections_key("worker_0") == "collections/000000000/worker_0_collections.json"


@given(st.integers(0, 10**15), st.sampled_from(["worker_0", "algo-1", "a_b__c", "ünïcode"]))
def test_an_index_key_comes_back(step: int, worker: str) -> None:
    key = paths.index_key(step, worker)
    assert paths.parse_index_key(key) == paths.IndexName(step, worker)
    assert paths.split_object_key(f"jobs/mnist-7/debug-output/{key}") == (
        "jobs/mnist-7/debug-output/",
        key,
    )
    assert paths.is_event_key(paths.event_key(step, worker))


def test_device_names_of_tensorflow_are_workers() -> None:
    worker = "/job:worker/replica:0/task:1/device:GPU:0"
    key = paths.index_key(499, worker)
    assert key.endswith("_job-worker_replica-0_task-1_device-GPU-0.json")
    assert paths.parse_index_key(key).worker == worker


@pytest.mark.parametrize(
    ("key", "root", "relative"),
    [
        ("mnist-7/training_job_end.ts", "mnist-7/", "training_job_end.ts"),
        ("a/index/b/job.json", "a/index/b/", "job.json"),
        (
            "a/index/index/000000000/000000000001_w.json",
            "a/index/",
            "index/000000000/000000000001_w.json",
        ),
        ("index/000000000/000000000001_w.json", "", "index/000000000/000000000001_w.json"),
    ],
)
def test_object_keys_are_split_at_the_trials_root(key: str, root: str, relative: str) -> None:
    assert paths.split_object_key(key) == (root, relative)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "mnist/index/x.json",
        "mnist/index/000000000/000000000001.json",
        "mnist/index/000000000/000000000001_w.json.tmp",
        "mnist/index/000000000/000000000001_a/b.json",
        "mnist/index/000000000/\u0661\u0661\u0661\u0661\u0661\u0661\u0661\u0661\u0661\u0661\u0661\u0661_w.json",
        "mnist/events/000000000000/000000000000_worker_0.tfevents",
        "mnist/xtraining_job_end.ts",
    ],
)
def test_other_objects_are_refused_by_name(key: str) -> None:
    with pytest.raises(PathError):
        paths.split_object_key(key)


@given(st.text())
def test_every_event_key_is_a_key_of_every_store(worker: str) -> None:
    key = f"events/{0:012d}/{0:012d}_{worker}.tfevents"
    if paths.is_event_key(key):
        assert check_key(key) == key


@pytest.mark.parametrize("worker", ["", "a\x7f", "a/b", "a\\b", "a\nb", "x" * 300])
def test_a_worker_that_cannot_be_a_file_name_is_refused(worker: str) -> None:
    with pytest.raises(PathError):
        paths.index_key(0, worker)


@pytest.mark.parametrize(
    ("root", "name"),
    [
        ("s3://bucket/mnist-7/debug-output/", "mnist-7"),
        ("s3://bucket/mnist-7", "mnist-7"),
        ("/opt/ml/output/tensors/", "tensors"),
        ("debug-output", "debug-output"),
        ("", ""),
    ],
)
def test_the_job_is_named_by_its_root(root: str, name: str) -> None:
    assert paths.job_name_of(root) == name


@given(st.sampled_from(REDUCTION_NAMES), st.booleans(), st.text(min_size=1))
def test_reduction_names_come_back(reduction: str, absolute: bool, base: str) -> None:
    name = reduction_tensor_name(base, reduction, absolute=absolute)
    assert split_reduction_name(name) == (base, reduction, absolute)


def test_other_names_are_no_reductions() -> None:
    assert reduction_tensor_name("conv", "l2", absolute=True) == "smdebug/reductions/abs_l2/conv"
    for name in ("conv", "smdebug/reductions/mode/conv", "smdebug/reductions/mean/"):
        assert split_reduction_name(name) is None
