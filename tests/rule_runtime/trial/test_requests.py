"""How many requests reading costs, counted at the client of a real S3 interface."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import boto3
import numpy as np
import pytest
from moto import mock_aws
from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends

from hook_layer.format.modes import ModeKeys
from hook_layer.format.paths import collections_key, event_key
from hook_layer.storage.memory import MemoryStore
from hook_layer.storage.s3 import S3Store
from rule_runtime.custom_rules.trial_at_step import TrialAtStep
from rule_runtime.engine.outcome import RuleStatus
from rule_runtime.engine.reconciler import Reconciler
from rule_runtime.engine.state import EvaluationState
from rule_runtime.rules.vanishing_gradient import VanishingGradient
from rule_runtime.testing import TrialBuilder
from rule_runtime.trial.refreshing import no_refresh
from rule_runtime.trial.step_index import load_step_files
from rule_runtime.trial.trial import Trial

BUCKET = "tensors"


class Requests:
    """The requests of a client, by operation and the first part of the key or prefix."""

    def __init__(self, client: Any) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.ranges: list[str] = []
        self.under_way = self.most_at_once = 0
        self._lock = threading.Lock()
        client.meta.events.register("provide-client-params.s3.*", self._begin)
        client.meta.events.register("after-call.s3.*", self._end)
        client.meta.events.register("after-call-error.s3.*", self._end)

    def _begin(self, params: dict[str, Any], model: Any, **_: Any) -> None:
        place = (params.get("Key") or params.get("Prefix") or "").removeprefix("job/")
        with self._lock:
            self.counts[model.name, place.split("/")[0]] += 1
            self.ranges.append(params.get("Range", ""))
            self.under_way += 1
            self.most_at_once = max(self.most_at_once, self.under_way)

    def _end(self, **_: Any) -> None:
        with self._lock:
            self.under_way -= 1

    def take(self) -> dict[tuple[str, str], int]:
        """Return the requests since the last call."""
        counts, self.counts = dict(self.counts), Counter()
        return counts


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Store]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket=BUCKET)
        yield S3Store(f"s3://{BUCKET}/job", client)


def copied(builder: TrialBuilder, store: S3Store) -> Requests:
    """Bring a trial to S3, and count from then on."""
    backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]  # not by requests, for they take seconds
    for key in builder.store.list():
        backend.put_object(BUCKET, f"{store.prefix}{key}", builder.store.get(key))
    return Requests(store._client)


def run_of(num_steps: int, *, run: str | None = "run-1", save_values: bool = True) -> TrialBuilder:
    builder = TrialBuilder(MemoryStore(), run=run)
    builder.collections(gradients=("^gradient",))
    for step in range(num_steps):
        tensors = {"gradient/a": np.float32([step, 1]), "loss": np.float32([2.0])}
        builder.step(step, tensors, save_values=save_values)
    return builder


GET, LIST = "GetObject", "ListObjectsV2"


def test_all_values_of_a_run_list_nothing(store: S3Store) -> None:
    builder = run_of(300)
    builder.end()
    requests = copied(builder, store)
    trial = Trial(store, name="t")
    opened = requests.take()
    assert opened == {
        (GET, "training_job_end.ts"): 1,
        (GET, "job.json"): 1,
        (LIST, "collections"): 1,
        (LIST, "index"): 1,
        (GET, "index"): 300,
    }
    requests.ranges.clear()
    values = trial.tensor("gradient/a").values(ModeKeys.TRAIN)
    assert [value[0] for value in values.values()] == list(range(300))
    assert requests.take() == {(GET, "events"): 300}  # a file each, and nothing else
    assert all(text.startswith("bytes=") for text in requests.ranges)
    assert 1 < requests.most_at_once <= 10
    trial.tensor("gradient/a").steps()
    trial.tensor_names()
    trial.workers()
    assert requests.take() == {}  # all is known


def test_a_query_of_a_live_trial_lists_once(store: S3Store) -> None:
    builder = run_of(30)
    requests = copied(builder, store)
    trial = Trial(store, name="t")
    requests.take()
    for query in (trial.steps, trial.tensor_names, trial.workers, trial.modes):
        query()
        assert requests.take() == {(LIST, "index"): 1, (GET, "training_job_end.ts"): 1}
    trial.to_dataframe()
    assert requests.take() == {(LIST, "index"): 1, (GET, "training_job_end.ts"): 1}
    trial.tensor_names(collection="gradients")
    assert requests.take() == {
        (LIST, "index"): 1,
        (GET, "training_job_end.ts"): 1,
        (GET, "collections"): 1,
    }
    trial.to_dataframe(collection="gradients")
    assert requests.take() == {(LIST, "index"): 1, (GET, "training_job_end.ts"): 1}
    store.put(
        builder.step(30, {"loss": [1.0]}, save_values=False), builder.store.get(builder.keys[-1])
    )
    requests.take()
    assert trial.steps()[-1] == 30
    assert requests.take() == {
        (LIST, "index"): 1,
        (GET, "training_job_end.ts"): 1,
        (GET, "index"): 1,
    }
    trial.tensor("loss").value(3)
    trial.tensor("loss").workers(3)
    assert requests.take() == {(GET, "events"): 1}
    trial.tensor("gradient/a").reduction_value(3, "mean", abs=True)
    trial.tensor("gradient/a").shape(3)
    assert requests.take() == {}  # the index told it


def test_collections_of_a_live_trial_are_read_again_when_files_have_come(store: S3Store) -> None:
    builder = run_of(3)
    requests = copied(builder, store)
    trial = Trial(store, name="t")
    requests.take()
    with no_refresh(trial):
        for _ in range(5):
            trial.tensor_names(collection="gradients")
        trial.collections()
        assert requests.take() == {(GET, "collections"): 1}
    for _ in range(5):
        trial.tensor_names(collection="gradients")
    assert (GET, "collections") not in requests.take()
    key = builder.step(3, {"mine": [1.0]}, save_values=False)
    store.put(key, builder.store.get(key))
    builder.collections(late=("^mine",))
    key = collections_key("worker_0")
    store.put(key, builder.store.get(key))
    requests.take()
    assert trial.tensor_names(collection="late") == ["mine"]
    assert requests.take()[GET, "collections"] == 1


def test_a_step_that_is_judged_costs_its_collections_once(store: S3Store) -> None:
    builder = run_of(3)  # the file tells no collection of the loss, so one may come
    requests = copied(builder, store)
    first, *later = TrialBuilder.views(_moved(builder, store))
    trial = TrialAtStep(first)
    requests.take()
    for view in later:
        trial.go_to(view, is_next=True)
        for _ in range(5):
            assert trial.tensor_names(collection="gradients") == ["gradient/a"]
        assert requests.take()[GET, "collections"] == 1


@pytest.mark.parametrize("run", ["run-1", None])
def test_a_rule_that_needs_statistics_gets_one_object_a_step(
    run: str | None, store: S3Store
) -> None:
    builder = run_of(8, run=run)
    requests = copied(builder, store)
    rule = VanishingGradient()
    state = EvaluationState.initial()
    reconciler = Reconciler(store, rule, run)
    if run is None:  # files of the original carry no statistics: their event files are read
        state = reconciler.advance(state, load_step_files(store, builder.keys), ended=True)
        assert requests.take()[GET, "events"] == 8
    else:
        for at, key in enumerate(builder.keys):
            state = reconciler.advance(state, load_step_files(store, [key]))
            spent = requests.take()
            if at == 0:  # once for the rule, not for a step
                assert spent.pop((GET, "collections")) == 1
            assert spent == {(GET, "index"): 1}
    assert state.counts.evaluated == 8
    assert state.status is not RuleStatus.ERROR


def test_neighbouring_tensors_cost_one_request_and_far_ones_two(store: S3Store) -> None:
    builder = TrialBuilder(MemoryStore())
    builder.step(
        0, {"a": np.zeros(9), "b": np.zeros(9), "large": np.zeros(1 << 16), "c": np.zeros(9)}
    )
    requests = copied(builder, store)
    (view,) = TrialBuilder.views(_moved(builder, store))
    requests.take()
    assert sorted(view.values(("a", "b"), "worker_0")) == ["a", "b"]
    assert requests.take() == {(GET, "events"): 1}
    assert sorted(view.values(("a", "c"), "worker_0")) == ["a", "c"]
    assert requests.take() == {(GET, "events"): 2}
    assert event_key(0, "worker_0") in set(store.list())


def _moved(builder: TrialBuilder, store: S3Store) -> TrialBuilder:
    """Return a builder whose files lie in another store."""
    moved = TrialBuilder(store)
    moved.keys = builder.keys
    return moved
