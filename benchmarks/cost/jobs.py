"""The files of simulated jobs, and the events about them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np

from benchmarks.cost.functions import REGION, now_text, object_created
from benchmarks.cost.workload import Workload
from hook_layer.format.job_file import JobFile
from hook_layer.format.paths import END_MARKER, JOB_FILE
from hook_layer.storage.memory import MemoryStore
from lambdas.contracts.events import NATIVE_SOURCE, STATUS_DETAIL_TYPE
from rule_runtime.testing import TrialBuilder

__all__ = ["LOSS", "Jobs"]

LOSS: Final = "CrossEntropyLoss_output_0"
_RUN: Final = "01JD0000000000000000000001"
_SPREAD_S: Final = 0.02
"""Time in which the workers of a job write the same step."""
_JITTER: Final = 0.1
"""Share of the time between two saved steps by which each may be late."""


@dataclass(frozen=True)
class Jobs:
    """Healthy jobs, each with the same tensors.

    Attributes:
        workload: How many jobs, steps and workers.
        tensors: Tensors of a step, the loss among them.
        seed: Chooses when steps come.
    """

    workload: Workload
    tensors: int
    seed: int = 0
    _generator: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        self._generator.seed(self.seed)

    def objects(self) -> Iterator[tuple[str, bytes]]:
        """Yield key and content of everything that the hooks write, but for the end markers."""
        for job in range(self.workload.jobs):
            for key, content in self._files.items():
                if key != END_MARKER:
                    yield _key(job, key), content
            yield _key(job, JOB_FILE), _job_file(job)

    def end_markers(self) -> Iterator[tuple[str, bytes]]:
        """Yield key and content of the end markers."""
        for job in range(self.workload.jobs):
            yield _key(job, END_MARKER), self._files[END_MARKER]

    def steps(self) -> list[tuple[float, tuple[int, str]]]:
        """Return when each index file is there: seconds, its job, and the body of the message."""
        found = []
        for job, starts in enumerate(self._starts):
            for number, keys in enumerate(self._index_keys):
                every_s = self.workload.saved_every_s
                at = starts + (number + self._generator.uniform(0, _JITTER)) * every_s
                for key in keys:
                    late = self._generator.uniform(0, _SPREAD_S)
                    found.append((at + late, (job, object_created(_key(job, key)))))
        return sorted(found)

    def ends(self) -> list[tuple[float, tuple[int, str]]]:
        """Return when each job's end marker is there, likewise."""
        found = [
            (starts, (job, object_created(_key(job, END_MARKER))))
            for job, starts in enumerate(self._starts)
        ]
        return sorted(found)

    def completions(self) -> Iterator[dict[str, Any]]:
        """Yield SageMaker's event that each job has ended."""
        for job in range(self.workload.jobs):
            detail = {"TrainingJobName": _name(job), "TrainingJobStatus": "Completed"}
            yield {
                "source": NATIVE_SOURCE,
                "detail-type": STATUS_DETAIL_TYPE,
                "account": "123456789012",
                "region": REGION,
                "time": now_text(),
                "detail": detail,
            }

    @cached_property
    def _starts(self) -> list[float]:
        every_s = self.workload.saved_every_s
        return [self._generator.uniform(0, every_s) for _ in range(self.workload.jobs)]

    @cached_property
    def _index_keys(self) -> list[list[str]]:
        """The keys of each step's index files."""
        keys = sorted(key for key in self._files if key.startswith("index/"))
        workers = self.workload.workers
        return [keys[first : first + workers] for first in range(0, len(keys), workers)]

    @cached_property
    def _files(self) -> dict[str, bytes]:
        """What one job writes; its values repeat after some steps."""
        store = MemoryStore()
        builder = TrialBuilder(store, run=_RUN, num_workers=self.workload.workers)
        generator = np.random.default_rng(self.seed)
        names = [f"gradient/layer{n}.weight" for n in range((self.tensors - 1) // 2)]
        names += [f"layer{n}.weight" for n in range(self.tensors - 1 - len(names))]
        workers = [f"worker_{n}" for n in range(self.workload.workers)]
        for worker in workers:
            builder.collections(
                worker=worker, gradients=("^gradient",), losses=(LOSS,), weights=("^layer",)
            )
        for step in range(self.workload.steps):
            loss = np.float32(2.3 * 0.9**step + 0.01 * generator.standard_normal())
            values = {n: generator.standard_normal(16).astype(np.float32) for n in names}
            for worker in workers:
                builder.step(step, {LOSS: loss} | values, worker=worker, mode_step=step)
        builder.end()
        return {key: store.get(key) for key in store.list()}


def _name(job: int) -> str:
    return f"job-{job:05d}"


def _key(job: int, key: str) -> str:
    return f"{_name(job)}/debug-output/{key}"


def _job_file(job: int) -> bytes:
    arn = f"arn:aws:sagemaker:{REGION}:123456789012:training-job/{_name(job)}"
    return JobFile(_name(job), _RUN, "sagemaker", now_text(), training_job_arn=arn).encode()
