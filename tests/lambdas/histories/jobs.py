"""Generated training jobs: what each worker writes, what comes late, and the right verdict."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from zlib import crc32

import numpy as np

from hook_layer.format.collections_file import CollectionsFile
from hook_layer.format.end_marker import EndMarker
from hook_layer.format.index import IndexFile, TensorShape
from hook_layer.format.modes import ModeKeys
from hook_layer.format.paths import collections_key, index_key
from hook_layer.format.statistics_block import STATISTICS_COLUMNS, Statistics
from hook_layer.storage.memory import MemoryStore
from rule_runtime.engine.evaluator import Evaluation
from rule_runtime.engine.outcome import Evidence, IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import Memory, Rule
from rule_runtime.trial.step_index import load_step_files
from rule_runtime.trial.step_view import StepReader, StepView
from tests.lambdas.histories.tape import Tape

FIRST_RUN = "01JD0000000000000000000001"
SECOND_RUN = "01JD0000000000000000000002"
_NAN = STATISTICS_COLUMNS.index("nan")


class Witness(Rule):
    """Finds steps with NaN, and keeps a sum over all that it saw: other steps, another sum."""

    def check(self, step: StepView, memory: Memory) -> Outcome:
        rows = step.tensors()
        numbers = rows.column("nan")
        seen = (step.step, step.mode.name, step.mode_step, step.is_complete, rows.workers)
        memory["sum"] = crc32(repr((*seen, numbers.tolist())).encode(), memory.get("sum", 0))
        if step.step % 5 == 4:
            return NotEvaluated(f"step {step.step} is not looked at")
        sick = np.flatnonzero(numbers)
        if not len(sick):
            return Passed()
        return IssueFound(
            Evidence(
                step=step.step,
                mode=step.mode.name,
                worker=rows.workers[sick[0]],
                tensor="t",
                measure="nan",
                value=float(numbers[sick[0]]),
                threshold=0.0,
                sentence="t: has NaN",
                remedy="none",
            )
        )


@dataclass(frozen=True)
class SavedFile:
    """An index file on its way into the store."""

    key: str
    content: bytes
    step: int
    worker: int


@dataclass
class Job:
    """A job.

    Attributes:
        run: RunId of the run that ends; None for files of the original client.
        num_workers: How many workers write.
        earlier: Files of an interrupted run before it, in the order of their uploads.
        uploads: Files of each worker, in the order of their uploads.
        late: Files that come after all that wait for them have waited long enough.
        after_end: Files that come after the end marker.
        marker: Content of the end marker.
    """

    run: str | None
    num_workers: int
    earlier: list[SavedFile] = field(default_factory=list)
    uploads: list[list[SavedFile]] = field(default_factory=list)
    late: list[SavedFile] = field(default_factory=list)
    after_end: list[SavedFile] = field(default_factory=list)
    marker: bytes = b""

    @property
    def files(self) -> list[SavedFile]:
        """All files of the run that ends."""
        return [*(f for of_worker in self.uploads for f in of_worker), *self.late, *self.after_end]

    def expected(self) -> Evaluation:
        """Return what the rule says to all steps in order."""
        store = MemoryStore("expected")
        put_collections(store, self)
        for file in self.files:
            store.put(file.key, file.content)
        by_step: dict[int, list[object]] = {}
        for loaded in load_step_files(store, [file.key for file in self.files]):
            by_step.setdefault(loaded.step, []).append(loaded)
        evaluation, reader = Evaluation.fresh(Witness()), StepReader(store)
        for step, files in sorted(by_step.items()):
            evaluation.feed(reader.view(step, files, num_workers=self.num_workers))
        return evaluation


def put_collections(store: MemoryStore, job: Job) -> None:
    """Write the files that tell how many workers there are."""
    for worker in range(job.num_workers):
        data = CollectionsFile({}, num_workers=job.num_workers).encode()
        store.put(collections_key(f"worker_{worker}"), data)


def drawn_job(tape: Tape) -> Job:
    """Return a job."""
    kind = tape.below(4)
    job = Job(None if kind == 2 else FIRST_RUN, 1 + tape.below(3))
    steps = _steps(tape, first=0)
    if kind == 3:
        before = [file for of_worker in _written(tape, job, steps)[0] for file in of_worker]
        job.earlier = sorted(before, key=lambda file: file.step)
        job.run = SECOND_RUN
        steps = _steps(tape, first=steps[tape.below(len(steps))])
    written, last_numbers = _written(tape, job, steps)
    _mute(tape, written)
    lagging = tape.below(len(written)) if len(written) > 1 and tape.once_in(6) else None
    for worker, files in enumerate(written):
        on_time = [file for file in files if not (worker == lagging or tape.once_in(16))]
        late = [file for file in files if file not in on_time]
        job.uploads.append(on_time)
        split = len(late) if tape.below(4) else tape.below(len(late) + 1)
        job.late += late[:split]
        job.after_end += late[split:]
    named = tape.below(3)
    if job.run is not None:
        last = {f"worker_{w}": n for w, n in enumerate(last_numbers[: (0, 1, 9)[named]])}
        job.marker = EndMarker(job.run, last).encode()
    return job


def _steps(tape: Tape, *, first: int) -> list[int]:
    steps = [first]
    for _ in range(tape.below(7)):
        steps.append(steps[-1] + 1 + tape.below(3))
    return steps


def _written(tape: Tape, job: Job, steps: list[int]) -> tuple[list[list[SavedFile]], list[int]]:
    """Return the files of each worker, and the number of the last one that each was to write."""
    modes = [tape.once_in(4) for _ in steps]
    written: list[list[SavedFile]] = []
    last_numbers = []
    for worker in range(job.num_workers):
        files = []
        number = skipped = 0
        for at, (step, is_eval) in enumerate(zip(steps, modes, strict=True)):
            if tape.once_in(6):
                continue  # this worker saves nothing at this step
            number += 1
            if job.run is not None and tape.once_in(24):
                skipped += 1  # it could not be stored
                continue
            num_nan = tape.below(3) if tape.once_in(8) else 0
            content = index_bytes(
                job.run,
                job.num_workers,
                number=number,
                skipped=skipped,
                mode_step=at,
                is_eval=is_eval,
                num_nan=num_nan,
            )
            key = index_key(step, f"worker_{worker}")
            files.append(SavedFile(key, content, step, worker))
            skipped = 0
        written.append(files)
        last_numbers.append(number)
    return written, last_numbers


def _mute(tape: Tape, written: list[list[SavedFile]]) -> None:
    """Let a worker end in the middle, or before it wrote anything."""
    if len(written) > 1 and tape.once_in(4):
        files = written[tape.below(len(written))]
        del files[tape.below(len(files) + 1) :]


@cache
def index_bytes(
    run: str | None,
    num_workers: int,
    *,
    number: int,
    skipped: int,
    mode_step: int,
    is_eval: bool,
    num_nan: int,
) -> bytes:
    """Return an index file with the statistics of one tensor."""
    values = np.ones((1, len(STATISTICS_COLUMNS)))
    values[0, _NAN] = num_nan
    return IndexFile(
        mode=ModeKeys.EVAL if is_eval else ModeKeys.TRAIN,
        mode_step=mode_step,
        event_file_name=None,
        locations=(),
        shapes=(TensorShape("t", "t", (4,)),),
        statistics=Statistics(
            columns=STATISTICS_COLUMNS,
            tensors=("t",),
            dtypes=("float32",),
            shapes=((4,),),
            values=values,
            crc32c=(None,),
        ),
        run=run,
        workers=None if run is None else num_workers,
        sequence=None if run is None else number,
        skipped=skipped or None if run is not None else None,
    ).encode()
