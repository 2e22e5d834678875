"""The checkpoint is as large after a million steps as after ten."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from hook_layer.format.index import IndexFile
from hook_layer.format.modes import ModeKeys
from hook_layer.format.paths import index_key
from hook_layer.storage.memory import MemoryStore
from rule_runtime.engine.outcome import Outcome, Passed
from rule_runtime.engine.progress import MAX_PENDING, Patience, Progress
from rule_runtime.engine.reconciler import Reconciler
from rule_runtime.engine.rule import Memory, Rule
from rule_runtime.engine.state import EvaluationState
from rule_runtime.trial.step_index import StepFile
from rule_runtime.trial.step_view import StepView

NUM_STEPS = 1_000_000
WORKERS = ("worker_0", "worker_1")


class Nothing(Rule):
    """Looks at nothing, so that only the following of the run is measured."""

    def check(self, step: StepView, memory: Memory) -> Outcome:
        memory["step"] = step.step
        return Passed()


def followed(
    num_steps: int,
    *,
    is_written: Callable[[int, int], bool] = lambda *_: True,
    workers: Sequence[str] = WORKERS,
    at_once: int = 500,
) -> Iterator[Progress]:
    """Yield what is kept after each part of a run."""
    progress = Progress(num_workers=len(workers))
    patience = Patience(seconds=60.0, steps=20)
    for begin in range(0, num_steps, at_once):
        for at, worker in enumerate(workers):
            for step in range(begin, min(begin + at_once, num_steps)):
                if is_written(step, at):
                    progress.note(worker, step, step + 1)
        progress.settle()
        feed(progress)
        now = 100.0 * begin
        progress.note_waiting(now)
        while progress.is_overdue(now + 60.0, patience):
            progress.give_up()
            feed(progress)
            progress.note_waiting(now)
        yield progress.copy()
        progress = Progress.from_json(progress.copy().to_json())


def feed(progress: Progress) -> None:
    for step in progress.ready_steps():
        progress.mark_fed(step)


def size_of(progress: Progress) -> int:
    return len(json.dumps(progress.to_json()))


def test_a_million_steps_of_which_none_is_missing() -> None:
    sizes = [size_of(kept) for kept in followed(NUM_STEPS, workers=("worker_0",))]
    (short,) = [size_of(kept) for kept in followed(10, workers=("worker_0",))]
    numbers = 3  # last sequence, step passed, step fed
    assert sizes[-1] <= short + numbers * (len(str(NUM_STEPS)) - 1)


def test_a_worker_that_stopped_long_ago_costs_nothing_more() -> None:
    kept = list(followed(200_000, is_written=lambda step, worker: worker == 0 or step < 10))
    assert kept[-1].fed_step == 199_999
    assert size_of(kept[-1]) <= size_of(kept[1]) + 30


def test_holes_that_nothing_fills_are_bounded() -> None:
    random = np.random.default_rng(0)
    missing = random.random((100_000, len(WORKERS))) < 0.02
    kept = list(followed(100_000, is_written=lambda step, worker: not missing[step, worker]))
    assert kept[-1].fed_step >= 99_000
    sizes = [size_of(progress) for progress in kept]
    assert max(sizes[150:]) <= 1.1 * max(sizes[120:150])
    for worker in kept[-1].workers.values():
        assert len(worker.seen) <= MAX_PENDING
        assert worker.lost > 500


@pytest.mark.parametrize("first", [0, NUM_STEPS])
def test_the_whole_state_is_of_one_size_wherever_the_run_is(first: int) -> None:
    store, rule = MemoryStore(), Nothing()
    data = EvaluationState.initial().to_json()
    if first:
        data["progress"]["workers"] = {
            name: {"seen": [[1, first]], "step": first - 1} for name in WORKERS
        }
        data["progress"] |= {"num_workers": 2, "fed_step": first - 1}
    state = EvaluationState.from_json(data)
    for begin in range(first, first + 2000, 100):
        files = [file(step, worker) for step in range(begin, begin + 100) for worker in WORKERS]
        state = Reconciler(store, rule, "run").advance(state, files, now=float(begin))
    assert state.progress.fed_step == first + 1999
    assert len(json.dumps(state.to_json())) < 900


def file(step: int, worker: str) -> StepFile:
    index = IndexFile(
        mode=ModeKeys.TRAIN,
        mode_step=step,
        event_file_name=None,
        locations=(),
        shapes=(),
        statistics=None,
        run="run",
        workers=len(WORKERS),
        sequence=step + 1,
    )
    return StepFile(index_key(step, worker), step, worker, index, num_bytes=100)
