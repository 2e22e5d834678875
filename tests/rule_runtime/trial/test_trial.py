from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import boto3
import numpy as np
import pytest
from moto import mock_aws

from hook_layer.format.modes import ModeKeys
from hook_layer.format.paths import END_MARKER, event_key, index_key
from hook_layer.storage.base import Store, open_store
from hook_layer.storage.memory import MemoryStore
from rule_runtime import create_trial
from rule_runtime.testing import TrialBuilder
from rule_runtime.trial.errors import (
    InvalidWorker,
    NoMoreData,
    ShapeUnavailableForStep,
    SMDebugValueError,
    StepNotYetAvailable,
    StepUnavailable,
    TensorUnavailable,
    TensorUnavailableForStep,
    TrialError,
)
from rule_runtime.trial.tensor_steps import StepState
from rule_runtime.trial.trial import Trial
from tests.rule_runtime.counting_store import CountingStore
from tests.rule_runtime.outcomes import make_run

GLOBAL, TRAIN, EVAL = ModeKeys.GLOBAL, ModeKeys.TRAIN, ModeKeys.EVAL


@pytest.fixture(params=["folder", "s3", "memory"])
def uri(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    if request.param == "folder":
        yield str(tmp_path / "job-1" / "debug-output")
    elif request.param == "memory":
        yield f"memory://{tmp_path.name}"
    else:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "testing")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        with mock_aws():
            boto3.client("s3").create_bucket(Bucket="tensors")
            yield "s3://tensors/job-1/debug-output"


def open_trial(store: Store, **kwargs: object) -> Trial:
    return Trial(store, name="t", **kwargs)


def write_two_modes(builder: TrialBuilder) -> None:
    builder.collections(weights=("weight$",), losses=("[Ll]oss",), custom=("^x$",))
    for step in range(6):
        mode = TRAIN if step % 3 else EVAL
        builder.step(
            step, {"fc.weight": np.full((2, 3), step), "loss": np.float32(step)}, mode=mode
        )


@pytest.mark.parametrize("run", ["run-1", None])
def test_an_ended_trial_is_read_whole(uri: str, run: str | None) -> None:
    builder = TrialBuilder(open_store(uri), run=run)
    write_two_modes(builder)
    builder.end()
    trial = create_trial(uri)
    assert trial.loaded_all_steps
    assert trial.tensor_names() == ["fc.weight", "loss"]
    assert trial.tensor_names(collection="losses") == ["loss"]
    with pytest.raises(ValueError, match="Only one of `regex` or `collection` can be passed"):
        trial.tensor_names(regex="weight", collection="losses")
    assert trial.tensor_names(collection="custom") == []
    assert trial.steps() == [0, 1, 2, 3, 4, 5]
    assert trial.steps(mode=EVAL) == [0, 1]
    assert trial.steps(TRAIN) == [0, 1, 2, 3]
    assert trial.steps(ModeKeys.PREDICT) == []
    assert trial.modes() == [TRAIN, EVAL]
    assert (trial.mode(3), trial.mode_step(3)) == (EVAL, 1)
    assert trial.global_step(TRAIN, 2) == 4
    assert (trial.mode(99), trial.mode_step(99), trial.global_step(TRAIN, 99)) == (None,) * 3
    assert trial.workers() == ["worker_0"]
    assert set(trial.collections()) == {"weights", "biases", "gradients", "losses", "custom"}
    assert trial.collection("weights").include_regex == ["weight$"]

    tensor = trial.tensor("fc.weight")
    assert tensor.steps(TRAIN) == [0, 1, 2, 3]
    assert tensor.prev_steps(4, 2) == [3, 4]
    np.testing.assert_array_equal(tensor.value(step_num=1, mode=EVAL), np.full((2, 3), 3))
    values = tensor.values(mode=TRAIN)
    assert {step: int(value[0, 0]) for step, value in values.items()} == {0: 1, 1: 2, 2: 4, 3: 5}
    assert tensor.shape(step_num=2) == (2, 3)
    assert tensor.workers(2) == ["worker_0"]
    assert tensor.reduction_value(2, "mean") == 2
    assert tensor.reduction_values(2) == {}


def test_what_cannot_be_answered_raises_one_family(uri: str) -> None:
    builder = TrialBuilder(open_store(uri))
    builder.step(0, {"a": [1.0], "b": [2.0]})
    builder.step(5, {"a": [1.0]})
    builder.step(9, {"b": [1.0]}, save_values=False)
    builder.end()
    trial = create_trial(uri)
    tensor = trial.tensor("a")
    with pytest.raises(TensorUnavailable, match=r"Tensor c was not saved\."):
        trial.tensor("c")
    with pytest.raises(StepUnavailable, match="Step 3 of mode GLOBAL is not available as it was"):
        tensor.value(3)
    with pytest.raises(TensorUnavailableForStep):
        tensor.value(9)
    with pytest.raises(StepUnavailable):
        tensor.value(20)
    with pytest.raises(NoMoreData, match="Max step available is 9"):
        trial.wait_for_steps([20])
    with pytest.raises(InvalidWorker, match="Invalid Worker: worker_7"):
        tensor.value(0, worker="worker_7")
    with pytest.raises(TensorUnavailableForStep, match="Value for tensor b is not available for"):
        trial.tensor("b").value(9)
    assert trial.tensor("b").shape(9) == (1,)
    assert trial.tensor("b").reduction_value(9, "l2") == 1.0
    with pytest.raises(SMDebugValueError, match=r"^Invalid reduction type mode\b.* valid are l1"):
        tensor.reduction_value(0, "mode")
    with pytest.raises(StepUnavailable):  # the step is looked at first, as the original does
        tensor.reduction_value(3, "mode")
    assert issubclass(SMDebugValueError, ValueError)
    for error in (TensorUnavailable, StepUnavailable, NoMoreData, InvalidWorker, SMDebugValueError):
        assert issubclass(error, TrialError)
    assert issubclass(StepUnavailable, LookupError)


def test_a_live_trial_grows_while_it_is_read(uri: str) -> None:
    trial = create_trial(uri, name="mine")
    assert (trial.name, trial.steps(), trial.tensor_names()) == ("mine", [], [])
    builder = TrialBuilder(open_store(uri))
    builder.step(0, {"a": [1.0]})
    assert trial.steps() == [0]
    assert trial.has_tensor("a")
    assert not trial.has_tensor("b")
    builder.step(4, {"b": [1.0]})
    assert trial.has_tensor("b")
    with pytest.raises(StepNotYetAvailable):
        trial.tensor("b").value(8)
    builder.end()
    assert trial.steps() == [0, 4]
    assert trial.loaded_all_steps


def test_stored_reductions_belong_to_their_tensor() -> None:
    builder = TrialBuilder(MemoryStore(), run=None)
    builder.step(
        0,
        {
            "smdebug/reductions/mean/w": np.float32([0.5]),
            "smdebug/reductions/abs_l2/w": np.float32([2.0]),
            "v": [1.0],
        },
    )
    trial = open_trial(builder.store)
    assert trial.tensor_names() == ["v", "w"]
    tensor = trial.tensor("w")
    assert {k: float(v[0]) for k, v in tensor.reduction_values(0).items()} == {
        ("mean", False): 0.5,
        ("l2", True): 2.0,
    }
    assert tensor.reduction_value(0, "l2", abs=True) == 2.0
    with pytest.raises(TensorUnavailableForStep, match="This tensor has reductions saved"):
        tensor.value(0)
    with pytest.raises(ShapeUnavailableForStep):
        tensor.shape(0)
    unsaved = "^Value for tensor w is not available for step 0 .* not saved. Neither was its {}"
    with pytest.raises(TensorUnavailableForStep, match=unsaved.format(r"median\.$")) as raised:
        tensor.reduction_value(0, "median")
    assert raised.value.tname == "w"
    with pytest.raises(TensorUnavailableForStep, match=unsaved.format(r"abs_mean\.$")):
        tensor.reduction_value(0, "mean", abs=True)


def test_a_step_is_complete_when_every_worker_has_passed_it() -> None:
    builder = TrialBuilder(MemoryStore(), num_workers=2)
    trial = open_trial(builder.store)
    builder.step(0, {"a": [1.0]}, worker="worker_0")
    builder.step(2, {"a": [1.0]}, worker="worker_0")
    assert trial.steps() == []
    assert trial.steps(show_incomplete_steps=True) == [0, 2]
    assert trial.has_passed_step(0) is StepState.NOT_YET_AVAILABLE
    builder.step(0, {"a": [2.0]}, worker="worker_1")
    assert trial.steps() == [0]
    assert trial.has_passed_step(1) is StepState.NOT_YET_AVAILABLE
    builder.step(4, {"a": [2.0]}, worker="worker_1")
    assert trial.steps() == [0, 2]  # worker_1 went on without step 2
    assert trial.has_passed_step(1) is StepState.UNAVAILABLE
    assert trial.has_passed_step(4) is StepState.NOT_YET_AVAILABLE
    builder.end()
    assert trial.steps() == [0, 2, 4]
    assert trial.has_passed_step(9) is StepState.UNAVAILABLE
    assert float(trial.tensor("a").value(0)[0]) == 1.0
    assert float(trial.tensor("a").value(0, worker="worker_1")[0]) == 2.0


@pytest.mark.parametrize("run", ["run-1", None])
def test_a_late_file_is_never_lost(run: str | None) -> None:
    builder = TrialBuilder(MemoryStore(), run=run)
    keys = [builder.step(step, {"a": [float(step)]}) for step in range(4)]
    late = builder.store.get(keys[1])
    builder.store.delete(keys[1])
    trial = open_trial(builder.store)
    assert trial.steps(show_incomplete_steps=True) == [0, 2, 3]
    builder.store.put(keys[1], late)
    assert trial.steps() == [0, 1, 2, 3]


def test_a_refresh_lists_only_what_may_be_new_and_reads_no_file_twice() -> None:
    store = CountingStore()
    builder = TrialBuilder(store)
    builder.collections()
    for step in range(10):
        builder.step(step, {"a": [1.0]})
    trial = open_trial(store)
    trial.steps()
    store.reset()
    builder.step(10, {"a": [1.0]})
    assert trial.steps()[-1] == 10
    assert store.listed == [("index/", index_key(9, "!"))]
    assert store.gets() == [END_MARKER, index_key(10, "worker_0")]
    store.reset()
    trial.dynamic_refresh = False
    trial.tensor("a").values()
    assert len(store.gets()) == 11
    assert not store.listed


def test_neighbouring_values_are_read_by_one_request() -> None:
    store = CountingStore()
    builder = TrialBuilder(store)
    builder.step(0, {name: np.arange(3.0) for name in "abcd"})
    (view,) = builder.views()
    store.reset()
    values = view.values("abd", "worker_0")
    assert sorted(values) == ["a", "b", "d"]
    assert store.gets() == [event_key(0, "worker_0")]


def test_another_run_in_the_folder_is_not_mixed_in() -> None:
    store = MemoryStore()
    old = TrialBuilder(store, run="01")
    for step in range(4):
        old.step(step, {"old": [1.0]})
    old.end()
    new = TrialBuilder(store, run="02")
    store.delete(END_MARKER)
    new.step(0, {"new": [1.0]})
    trial = open_trial(store)
    assert trial.tensor_names() == ["new"]
    new.step(1, {"new": [1.0]})  # overwrites a file of the old run
    new.step(3, {"new": [1.0]})
    assert trial.steps() == [0, 1, 3]
    assert not trial.loaded_all_steps


def test_range_steps_and_wrong_arguments(uri: str) -> None:
    builder = TrialBuilder(open_store(uri))
    for step in range(0, 50, 10):
        builder.step(step, {"a": [1.0]})
    builder.end()
    assert create_trial(uri, range_steps=(10, 30)).steps() == [10, 20]
    assert create_trial(uri, range_steps=(None, 10)).steps() == [0]
    assert create_trial(uri, range_steps=(30, None)).steps() == [30, 40]
    with pytest.raises(ValueError, match="0 <= begin < end"):
        create_trial(uri, range_steps=(30, 30))
    with pytest.raises(ValueError, match="profiler"):
        create_trial(uri, profiler=True)


def test_hostile_and_damaged_files_are_reported_and_do_no_harm() -> None:
    builder = TrialBuilder(MemoryStore())
    builder.step(0, {"a": [1.0]})
    key = builder.step(1, {"a": [1.0]})
    builder.store.put(key, b'{"meta": ' + b"[" * 100_000)
    builder.store.put("index/evil.json", b"{}")
    builder.store.put("index/000000009/000000000001_worker_0.json", b"{}")
    builder.store.put("collections/000000000/worker_0_collections.json", b"nonsense")
    trial = open_trial(builder.store)
    assert trial.steps() == [0]
    assert list(trial.problems) == [key]
    assert trial.collections() == {}


def test_wait_for_steps() -> None:
    builder = TrialBuilder(MemoryStore())
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        builder.step(len(waits) * 5, {"a": [1.0]})
        if len(waits) == 3:
            builder.end()

    builder.step(0, {"a": [1.0]})
    trial = open_trial(builder.store, sleep=sleep)
    trial.wait_for_steps([0, 10])
    assert waits == [2.0, 2.0]
    with pytest.raises(StepUnavailable):
        trial.wait_for_steps([7])
    with pytest.raises(NoMoreData):
        trial.wait_for_steps([99])
    assert len(waits) == 3


def test_cached_values_are_read_once() -> None:
    store = CountingStore()
    builder = TrialBuilder(store)
    builder.step(0, {"a": [1.0]})
    builder.end()
    for cache, reads in ((True, 1), (False, 2)):
        tensor = open_trial(store, cache=cache).tensor("a")
        store.reset()
        tensor.value(0)
        tensor.value(0)
        assert len(store.gets()) == reads


def test_what_each_step_has_is_reported_by_step() -> None:
    builder = make_run(*({f"t{step % 2}": [1.0]} for step in range(6)))
    steps = Trial(builder.store, name="t").global_step_to_tensors_map
    assert list(steps.items()) == [(step, {f"t{step % 2}"}) for step in range(6)]
