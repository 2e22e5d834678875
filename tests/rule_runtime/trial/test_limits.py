"""Files that are too long, or claim to be, cost neither their length in memory nor the run."""

from __future__ import annotations

import threading
import tracemalloc

import numpy as np
import pytest

from hook_layer.format.index import MAX_INDEX_BYTES, IndexFile, TensorLocation
from hook_layer.format.job_file import MAX_JOB_FILE_BYTES
from hook_layer.format.modes import ModeKeys
from hook_layer.format.paths import END_MARKER, JOB_FILE, collections_key, event_key
from hook_layer.storage.memory import MemoryStore
from rule_runtime.engine.outcome import NotEvaluated, Outcome, Passed, RuleStatus
from rule_runtime.engine.rule import Memory, Rule
from rule_runtime.rules.non_finite import ExplodingTensor
from rule_runtime.testing import TrialBuilder
from rule_runtime.trial.event_reader import MAX_RECORD_BYTES
from rule_runtime.trial.missing_statistics import computed_statistics
from rule_runtime.trial.run_files import current_run, read_end_marker
from rule_runtime.trial.step_index import iter_step_files, load_step_files
from rule_runtime.trial.step_view import StepView
from rule_runtime.trial.trial import Trial
from tests.rule_runtime.outcomes import reason_of


class HugeObjectsStore(MemoryStore):
    """Objects of some keys have no end; whoever reads one whole fails."""

    def __init__(self, *huge: str) -> None:
        super().__init__("huge")
        self.huge = set(huge)
        self.most_bytes = 0

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        if key not in self.huge:
            return super().get(key, start, length)
        assert length is not None, f"{key} was read whole"
        self.most_bytes = max(self.most_bytes, length)
        return b"[" * length


class SlowStore(MemoryStore):
    """A remote store, by its URI, that counts what was read and not yet parsed."""

    def __init__(self) -> None:
        super().__init__("slow")
        self.uri = "s3://slow/"
        self.num_read = 0
        self._lock = threading.Lock()

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        with self._lock:
            self.num_read += 1
        return super().get(key, start, length)


def test_an_index_file_that_is_too_long_is_a_problem_and_is_not_read_whole() -> None:
    store = HugeObjectsStore()
    trial = TrialBuilder(store)
    keys = [trial.step(step, {"a": [1.0]}) for step in range(3)]
    store.huge.add(keys[1])
    good, bad, last = load_step_files(store, keys)
    assert bad.index is None
    assert bad.problem is not None
    assert f"longer than the {MAX_INDEX_BYTES} bytes" in bad.problem
    assert store.most_bytes == MAX_INDEX_BYTES + 1
    assert good.index is not None
    assert last.index is not None
    state = trial.evaluate(ExplodingTensor())
    assert state.status is RuleStatus.NO_ISSUES_FOUND
    assert (state.counts.evaluated, state.counts.unreadable) == (2, 1)


def test_small_files_have_small_limits() -> None:
    store = HugeObjectsStore(END_MARKER, JOB_FILE, collections_key("worker_0"))
    builder = TrialBuilder(store, run="02")
    builder.step(0, {"gradient/a": [1.0]})
    builder.collections(gradients=("nothing",))
    assert current_run(store) == "02"
    marker = read_end_marker(store)
    assert marker is not None
    assert marker.run_id is None
    trial = Trial(store, name="t")
    assert trial.loaded_all_steps
    assert trial.tensor_names(collection="gradients") == ["gradient/a"]
    assert store.most_bytes <= 8 * MAX_JOB_FILE_BYTES + 1


def test_files_are_read_a_few_ahead_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rule_runtime.trial.step_index._PARALLEL_GETS", 4)
    store = SlowStore()
    trial = TrialBuilder(store)
    keys = [trial.step(step, {"a": [1.0]}) for step in range(40)]
    ahead = []
    for at, file in enumerate(iter_step_files(store, reversed(keys))):
        assert (file.step, file.problem) == (at, None)
        ahead.append(store.num_read - at)
    assert max(ahead) <= 5
    store.delete(keys[7])
    assert [file.step for file in iter_step_files(store, keys)] == [
        step for step in range(40) if step != 7
    ]


def test_values_are_summarised_one_after_the_other() -> None:
    num_bytes = 20 << 20
    store = MemoryStore()
    builder = TrialBuilder(store, run=None)
    names = [f"t{at}" for at in range(6)]
    builder.step(0, dict.fromkeys(names, np.ones(num_bytes // 4, np.float32)))
    (file,) = load_step_files(store, builder.keys)
    assert file.index is not None
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        rows = computed_statistics(store, file.index, names)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [row[0] for row in rows.values()] == [num_bytes / 4] * 6
    assert peak - before < 2.5 * num_bytes  # one tensor, and parts of it in float64


class ReadsValues(Rule):
    """Reads every tensor."""

    def check(self, step: StepView, memory: Memory) -> Outcome:  # noqa: ARG002
        step.values(step.tensors().names, "worker_0")
        return Passed()


@pytest.mark.parametrize("rule", [ReadsValues(), ExplodingTensor()])
def test_a_record_of_an_impossible_length_is_not_asked_for(rule: Rule) -> None:
    store = HugeObjectsStore(event_key(0, "worker_0"))
    builder = TrialBuilder(store, run=None)
    key = builder.step(0, {"a": [1.0]})
    location = TensorLocation("a", 0, MAX_RECORD_BYTES + 1)
    store.put(key, IndexFile(ModeKeys.TRAIN, 0, event_key(0, "worker_0"), (location,)).encode())
    assert "is said to have 2147483649 bytes" in reason_of(*builder.outcomes(rule))
    assert store.most_bytes == 0


def test_a_user_may_read_what_a_rule_may_not() -> None:
    builder = TrialBuilder(MemoryStore(), run=None)
    key = builder.step(0, {"a": [1.0]})
    location = TensorLocation("a", 0, 1 << 40)
    index = IndexFile(ModeKeys.TRAIN, 0, event_key(0, "worker_0"), (location,))
    builder.store.put(key, index.encode())
    assert Trial(builder.store, name="t").tensor("a").value(0).tolist() == [1.0]
    (outcome,) = builder.outcomes(ReadsValues())
    assert isinstance(outcome, NotEvaluated)
