"""Any order, doubling and loss of events, and crashes, end in the state of one ordered pass."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hook_layer.format.modes import ModeKeys
from hook_layer.storage.memory import MemoryStore
from rule_runtime.engine.evaluator import Evaluation
from rule_runtime.engine.outcome import (
    Evidence,
    IssueFound,
    NotEvaluated,
    Outcome,
    Passed,
    RuleStatus,
)
from rule_runtime.engine.reconciler import Reconciler
from rule_runtime.engine.rule import Memory, Rule
from rule_runtime.engine.state import EvaluationState
from rule_runtime.testing import TrialBuilder
from rule_runtime.trial.step_index import load_step_files
from rule_runtime.trial.step_view import StepView
from tests.rule_runtime.counting_store import CountingStore


class OrderWitness(Rule):
    """Remembers a chain over all that it saw, so that another order gives another memory."""

    fire_at: int = 7

    def check(self, step: StepView, memory: Memory) -> Outcome:
        rows = step.tensors()
        seen = (step.step, step.mode.name, step.mode_step, step.workers, step.is_complete)
        numbers = [round(float(x), 6) for x in rows.column("abs_mean")]
        chain = f"{memory.get('chain', '')}|{seen}{rows.names}{rows.workers}{numbers}"
        memory["chain"] = str(hash(chain)) if len(chain) > 4000 else chain
        if step.step % 5 == 4:
            return NotEvaluated(f"step {step.step} is not looked at")
        if step.step % self.fire_at == self.fire_at - 1:
            return IssueFound(
                Evidence(
                    step=step.step,
                    mode=step.mode.name,
                    worker=step.workers[0],
                    tensor="t",
                    measure="m",
                    value=1.0,
                    threshold=0.0,
                    sentence="t: 1 > 0",
                    remedy="none",
                )
            )
        return Passed()


@dataclass
class Job:
    """A generated job: which worker writes which steps, in which interleaving the files appear."""

    num_workers: int
    writes: dict[int, set[int]]
    modes: dict[int, ModeKeys]
    uploads: list[tuple[int, int]] = field(default_factory=list)


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    num_workers = draw(st.integers(1, 3))
    steps = sorted(draw(st.sets(st.integers(0, 30), min_size=1, max_size=9)))
    writes = {
        step: draw(st.sets(st.integers(0, num_workers - 1), min_size=1, max_size=num_workers))
        for step in steps
    }
    modes = {step: draw(st.sampled_from([ModeKeys.TRAIN, ModeKeys.EVAL])) for step in steps}
    queues = {w: [s for s in steps if w in writes[s]] for w in range(num_workers)}
    uploads = []
    while any(queues.values()):
        worker = draw(st.sampled_from([w for w in queues if queues[w]]))
        uploads.append((queues[worker].pop(0), worker))
    return Job(num_workers, writes, modes, uploads)


def build(job: Job, *, run: str | None) -> TrialBuilder:
    builder = TrialBuilder(run=run, num_workers=job.num_workers)
    mode_steps: dict[ModeKeys, int] = {}
    for step in sorted(job.writes):
        mode = job.modes[step]
        mode_steps[mode] = mode_steps.get(mode, -1) + 1
        for worker in sorted(job.writes[step]):
            builder.step(
                step,
                {"t": np.array([step + 0.5, worker]), "u": np.float32(worker)},
                mode=mode,
                mode_step=mode_steps[mode],
                worker=f"worker_{worker}",
            )
    for worker in range(job.num_workers):
        builder.collections(worker=f"worker_{worker}", losses=("loss",))
    return builder


def ordered_pass(builder: TrialBuilder, rule: Rule) -> Evaluation:
    evaluation = Evaluation.fresh(rule)
    for view in builder.views():
        evaluation.feed(view)
    return evaluation


def assert_same(state: EvaluationState, oracle: Evaluation) -> None:
    assert state.memory == oracle.memory
    assert state.evidence == oracle.evidence
    assert state.counts == oracle.counts
    if oracle.evidence is not None:
        assert state.status is RuleStatus.ISSUES_FOUND
    elif oracle.counts.evaluated:
        assert state.status is RuleStatus.NO_ISSUES_FOUND
    else:
        assert state.status is RuleStatus.ERROR
    assert state.transition == 2
    assert state.ended


def through_json(state: EvaluationState) -> EvaluationState:
    return EvaluationState.from_json(json.loads(json.dumps(state.to_json())))


def copy(key: str, source: TrialBuilder, target: MemoryStore) -> None:
    target.put(key, source.store.get(key))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(job=jobs(), data=st.data(), is_original=st.booleans())
def test_any_delivery_of_events_gives_the_state_of_one_ordered_pass(
    job: Job, data: st.DataObject, is_original: bool
) -> None:
    run = None if is_original else "run-1"
    built = build(job, run=run)
    live = MemoryStore("live")
    for key in built.store.list("events/"):
        copy(key, built, live)
    rule = OrderWitness()
    state = EvaluationState.initial()
    undelivered: list[str] = []
    delivered: list[str] = []
    keys = {(s, w): k for s, w, k in _names(built)}
    for at, upload in enumerate(job.uploads):
        copy(keys[upload], built, live)
        if at == data.draw(st.integers(0, len(job.uploads)), label="collections after"):
            for key in built.store.list("collections/"):
                copy(key, built, live)
        undelivered.append(keys[upload])
        if data.draw(st.booleans(), label="events arrive"):
            batch = data.draw(st.lists(st.sampled_from(undelivered), max_size=4), label="batch")
            batch += (
                data.draw(st.lists(st.sampled_from(delivered), max_size=2)) if delivered else []
            )
            files = load_step_files(live, batch)
            advanced = Reconciler(live, rule, run).advance(state, files)
            if data.draw(st.integers(0, 3), label="crash") == 0:
                continue  # the state was not saved; the events are delivered again, or never
            state = through_json(advanced)
            delivered += batch
            undelivered = [key for key in undelivered if key not in batch]
    for key in built.store.list("collections/"):
        copy(key, built, live)
    lost = data.draw(st.sets(st.sampled_from([*undelivered, "none"])), label="lost")
    rest = data.draw(st.permutations([key for key in undelivered if key not in lost]))
    final = Reconciler(live, rule, run).advance(state, load_step_files(live, rest), ended=True)
    assert_same(final, ordered_pass(built, rule))
    assert final.progress.late == 0

    again = Reconciler(live, rule, run).advance(
        through_json(final), load_step_files(live, delivered), ended=True
    )
    assert again == final


@settings(max_examples=80, deadline=None)
@given(job=jobs(), data=st.data(), is_original=st.booleans())
def test_files_that_come_after_the_end_are_judged_by_a_replay(
    job: Job, data: st.DataObject, is_original: bool
) -> None:
    run = None if is_original else "run-1"
    built = build(job, run=run)
    names = list(_names(built))
    late = data.draw(st.lists(st.sampled_from(names), unique=True, max_size=3))
    live = MemoryStore("live")
    for key in built.store.list():
        if key not in [name[2] for name in late]:
            copy(key, built, live)
    rule = OrderWitness()
    state = Reconciler(live, rule, run).advance(EvaluationState.initial(), (), ended=True)
    before = state.status
    for *_, key in late:
        copy(key, built, live)
    state = Reconciler(live, rule, run).advance(
        through_json(state), load_step_files(live, [name[2] for name in late]), ended=True
    )
    oracle = ordered_pass(built, rule)
    assert state.memory == oracle.memory
    if oracle.evidence is not None:
        assert state.status is RuleStatus.ISSUES_FOUND
        assert state.evidence == oracle.evidence
    else:
        assert state.status in (before, RuleStatus.NO_ISSUES_FOUND)


@settings(max_examples=30, deadline=None)
@given(job=jobs())
def test_steps_are_fed_while_the_job_runs_without_any_listing(job: Job) -> None:
    built = build(job, run="run-1")
    live = CountingStore()
    for key in built.store.list("events/"):
        copy(key, built, live)
    keys = {(s, w): k for s, w, k in _names(built)}
    state = EvaluationState.initial()
    seen: dict[int, int] = {}
    for step, worker in job.uploads:
        copy(keys[step, worker], built, live)
        before = len(live.listed)
        workers_were_known = len(seen) == job.num_workers
        state = Reconciler(live, OrderWitness(), "run-1").advance(
            state, load_step_files(live, [keys[step, worker]])
        )
        seen[worker] = step
        if len(seen) == job.num_workers:
            frontier = min(seen.values())
            fed = [s for s in job.writes if s <= frontier]
            assert state.progress.fed_step == max(fed, default=-1)
            assert len(live.listed) == before or not workers_were_known


def _names(builder: TrialBuilder) -> list[tuple[int, int, str]]:
    files = load_step_files(builder.store, builder.keys)
    return [(f.step, int(f.worker.rsplit("_", 1)[1]), f.key) for f in files]


def test_state_survives_json() -> None:
    built = build(Job(1, {3: {0}}, {3: ModeKeys.TRAIN}), run="run-1")
    state = built.evaluate(OrderWitness(fire_at=4))
    assert through_json(state) == replace(state)
