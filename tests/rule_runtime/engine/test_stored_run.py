"""Several rules over one stored run: it is read once for all, and judged as by each alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hook_layer.format.modes import ModeKeys
from hook_layer.storage.base import ObjectNotFoundError, StorageError
from hook_layer.storage.memory import MemoryStore
from rule_runtime.configuration.packs import find_pack
from rule_runtime.engine.outcome import Outcome, Passed
from rule_runtime.engine.progress import Progress
from rule_runtime.engine.reconciler import Reconciler
from rule_runtime.engine.rule import Memory, Rule
from rule_runtime.engine.state import EvaluationState
from rule_runtime.engine.stored_run import evaluate_stored_run
from rule_runtime.testing import TrialBuilder
from rule_runtime.trial.run_files import current_run, last_sequences
from rule_runtime.trial.shared_reads import SharedReads
from rule_runtime.trial.step_view import StepView
from tests.rule_runtime.counting_store import CountingStore


class Store(CountingStore):
    """A store whose listing fails once."""

    fails_after: int | None = None

    def list(self, prefix: str = "", after: str | None = None) -> Iterator[str]:
        for number, key in enumerate(super().list(prefix, after)):
            if number == self.fails_after:
                self.fails_after = None
                raise StorageError("the storage is away")
            yield key

    @property
    def counts(self) -> Counter[str]:
        """Number of calls by kind and folder."""
        return Counter(call.split("/", maxsplit=1)[0] for call in self.calls)


class Diary(Rule):
    """Keeps what it saw, so that another order, or another file, leaves another memory."""

    reads: str = ""

    def check(self, step: StepView, memory: Memory) -> Outcome:
        seen = [step.step, step.mode.name, *step.workers, step.is_complete]
        if self.reads:
            seen.append(float(step.value(self.reads).sum()))
        memory["seen"] = [*memory.get("seen", []), str(seen)]
        return Passed()


class FailsAtStep3(Rule):
    def check(self, step: StepView, memory: Memory) -> Outcome:  # noqa: ARG002 - as every rule
        if step.step == 3:
            raise KeyError("loss")
        return Passed()


def sick_run(
    store: Store, num_steps: int, *, run: str | None = "run-1", workers: int = 1
) -> TrialBuilder:
    builder = TrialBuilder(store, run=run, num_workers=workers)
    builder.collections(gradients=("^gradient",), weights=("^fc.weight",), losses=("Loss",))
    for step in range(num_steps):
        for worker in range(workers):
            size = 10.0 ** -min(step, 12)
            tensors = {
                "fc.weight": np.full(8, 1.0 + step, np.float32),
                "gradient/fc.weight": np.full(8, size, np.float32),
                "Loss_output_0": np.ones(1, np.float32),
            }
            builder.step(step, tensors, worker=f"worker_{worker}")
    builder.end()
    store.reset()
    return builder


def message(states: Mapping[str, EvaluationState]) -> dict[str, EvaluationState]:
    """Leave out which files were recorded after the step at which a rule failed."""
    return {name: replace(state, progress=Progress()) for name, state in states.items()}


def alone(store: MemoryStore, rules: list[tuple[str, Rule]]) -> dict[str, EvaluationState]:
    run = current_run(store)
    last = last_sequences(store, run)
    initial = EvaluationState.initial()
    return {
        name: Reconciler(store, rule, run).advance(initial, (), ended=True, last_sequences=last)
        for name, rule in rules
    }


PACK = list(find_pack("recommended").rules().items())


def test_a_pack_reads_every_index_file_once() -> None:
    store = Store()
    sick_run(store, 60)
    states = evaluate_stored_run(store, PACK)
    assert len(states) == len(PACK) > 20
    assert states["NonFinite"].counts.evaluated == 60
    assert store.counts["GET index"] == 60
    assert len(store.listed) <= 3
    assert store.counts["GET collections"] <= 2
    assert len(store.calls) - store.counts["GET events"] <= 70


def test_values_are_read_once_for_the_rules_that_ask_for_the_same() -> None:
    store = Store()
    sick_run(store, 60)
    states = evaluate_stored_run(
        store, [(f"diary-{n}", Diary(reads="gradient/fc.weight")) for n in range(5)]
    )
    assert store.counts["GET events"] == 60
    assert len({str(state.memory) for state in states.values()}) == 1
    assert states["diary-0"].counts.evaluated == 60


def test_files_of_the_original_client_cost_their_values_once() -> None:
    store = Store()
    sick_run(store, 20, run=None)
    before = alone(store, PACK)
    events = store.counts["GET events"]
    store.reset()
    assert evaluate_stored_run(store, PACK) == before
    assert store.counts["GET index"] == 20
    assert store.counts["GET events"] < events / 4


# 300 steps are more files than are read together.
@pytest.mark.parametrize(
    ("num_steps", "rules"), [(0, PACK), (1, PACK), (40, PACK), (300, PACK[:3])]
)
def test_verdicts_are_those_of_each_rule_alone(
    num_steps: int, rules: list[tuple[str, Rule]]
) -> None:
    store = Store()
    sick_run(store, num_steps, workers=2 if num_steps < 300 else 1)
    rules = [*rules, ("Diary", Diary()), ("FailsAtStep3", FailsAtStep3())]
    assert evaluate_stored_run(store, rules) == alone(store, rules)


_RUNS = st.lists(
    st.tuples(st.integers(1, 3), st.booleans(), st.sampled_from([ModeKeys.TRAIN, ModeKeys.EVAL])),
    min_size=1,
    max_size=12,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=_RUNS, run=st.sampled_from(["run-1", None]), has_ended=st.booleans(), lost=st.data())
def test_any_run_leaves_the_memories_of_each_rule_alone(
    steps: list[tuple[int, bool, ModeKeys]], run: str | None, has_ended: bool, lost: st.DataObject
) -> None:
    store = Store()
    builder = TrialBuilder(store, run=run, num_workers=3)
    for step, (num_workers, has_value, mode) in enumerate(steps):
        for worker in range(num_workers):
            tensors = {"a": np.array([step, worker], np.float32)}
            name = f"worker_{worker}"
            builder.step(step, tensors, worker=name, mode=mode, save_values=has_value)
    if has_ended:
        builder.end()
    for key in lost.draw(st.lists(st.sampled_from(builder.keys), max_size=2, unique=True)):
        store.delete(key)
    rules: list[tuple[str, Rule]] = [
        ("Diary", Diary()), ("Reads", Diary(reads="a")), ("Fails", FailsAtStep3()),
    ]  # fmt: skip
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("rule_runtime.engine.stored_run._STEPS_AT_ONCE", 3)
        patched.setattr("rule_runtime.engine.stored_run._BYTES_AT_ONCE", 600)
        assert message(evaluate_stored_run(store, rules)) == message(alone(store, rules))


def test_memory_is_bounded_and_what_was_forgotten_is_read_again() -> None:
    store = Store()
    sick_run(store, 40)
    expected = alone(store, PACK)
    store.reset()
    shared = SharedReads(store, kept_bytes=4 << 10)
    assert evaluate_stored_run(shared, PACK) == expected
    assert shared.num_bytes_kept <= 8 << 10
    assert store.counts["GET index"] > 40


def test_progress_is_reported_step_by_step() -> None:
    store = Store()
    sick_run(store, 300)
    reported: list[str] = []
    totals: list[int] = []
    evaluate_stored_run(
        store,
        [("a", Diary()), ("b", FailsAtStep3())],
        on_start=totals.append,
        on_evaluated=reported.append,
    )
    assert totals == [300]
    assert reported[:2] == ["1 of the steps evaluated", "2 of the steps evaluated"]
    assert len(reported) == 300


def test_a_shared_store_asks_once_for_what_is_not_there() -> None:
    store = Store()
    shared = SharedReads(store)
    for _ in range(3):
        with pytest.raises(ObjectNotFoundError):
            shared.get("job.json")
    assert store.counts == {"GET job.json": 1}
    with pytest.raises(TypeError, match="only read"):
        shared.put("a", b"")
    with pytest.raises(TypeError, match="only read"):
        shared.delete("a")


def test_a_listing_that_failed_continues_where_it_was() -> None:
    store = Store()
    builder = sick_run(store, 6)
    shared = SharedReads(store)
    store.fails_after = 3
    with pytest.raises(StorageError):
        list(shared.list("index/"))
    assert list(shared.list("index/")) == sorted(builder.keys)
    assert list(shared.list("index/", after=sorted(builder.keys)[3])) == sorted(builder.keys)[4:]
