"""A training whose steps say which they are, here or as a process of its own.

python -m tests.hook_layer.faults.training '{"out_dir": ..., "num_steps": ...}'
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hook_layer.storage.base import open_store
from hook_layer.storage.memory import MemoryStore
from hook_layer.testing.written_trial import WrittenTrial
from rule_runtime import create_trial
from tests.hook_layer.tiny_hook import TinyHook, make_hook

_copies = itertools.count()


@dataclass
class Outcome:
    """What a training got of it: its longest step, its report, and what it logged."""

    longest_step_s: float
    close_s: float
    report: dict[str, Any]
    log: list[str] = field(default_factory=list)


def logged() -> list[str]:
    """Return a list that fills with what is logged from now on."""
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("stepwatch").addHandler(handler)
    return messages


def values_of(step: int, num_bytes: int) -> np.ndarray:
    return np.full(num_bytes // 4, step, dtype="f4")


def train(
    hook: TinyHook,
    num_steps: int,
    sizes: list[int],
    *,
    before_step: Callable[[int], None] = lambda _: None,
    end: Callable[[], None] = lambda: None,
) -> Outcome:
    """Train; step by step the tensor has one of the sizes, in bytes."""
    longest = 0.0
    for step in range(num_steps):
        before_step(step)
        start = time.perf_counter()
        hook.train({"w": values_of(step, sizes[step % len(sizes)])})
        longest = max(longest, time.perf_counter() - start)
    end()
    start = time.perf_counter()
    hook.close()
    close_s = time.perf_counter() - start
    return Outcome(longest, close_s, asdict(hook.report().writer))


def stored_steps(uri: str) -> list[int]:
    """Return the steps that a reader finds, each of them whole."""
    found = local_copy(uri)
    trial = create_trial(found.uri)
    steps: list[int] = trial.steps()
    for step in steps:
        value = trial.tensor("w").value(step)
        assert (value == step).all(), step
        assert value.size > 0
        found.records(step)  # verifies the checksums
    return steps


def local_copy(uri: str) -> WrittenTrial:
    """Return a trial as it is now, where it is quick to look at."""
    store = open_store(uri)
    copy = MemoryStore.from_uri(f"memory://copy-{next(_copies)}")
    for key in store.list():
        copy.put(key, store.get(key))
    return WrittenTrial(copy.uri)


def _die_in_the_middle(at: str, file_number: int) -> None:
    """Kill this process while it writes a file of that kind for the `file_number`th time."""
    from hook_layer.storage import local

    seen = 0
    write_all, replace = local.write_all, os.replace  # type: ignore[attr-defined]

    def kill() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def dying_write(descriptor: int, data: Any) -> None:
        nonlocal seen
        path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        seen += at.split()[1] in path
        if at.startswith("in ") and at.split()[1] in path and seen == file_number:
            content = data if isinstance(data, bytes) else b"".join(data)
            os.write(descriptor, content[: len(content) // 2])
            kill()
        write_all(descriptor, data)

    def dying_replace(source: str, target: str) -> None:
        if at.startswith("before ") and at.split()[1] in target and seen == file_number:
            kill()
        replace(source, target)
        if at.startswith("behind ") and at.split()[1] in target and seen == file_number:
            kill()

    local.write_all, os.replace = dying_write, dying_replace  # type: ignore[attr-defined, assignment]


def main(
    *,
    out_dir: str,
    num_steps: int,
    sizes: list[int],
    options: dict[str, Any],
    max_file_bytes: int | None = None,
    die: tuple[str, int] | None = None,
) -> None:
    messages = logged()
    if max_file_bytes is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (max_file_bytes, max_file_bytes))
    if die is not None:
        _die_in_the_middle(*die)
    hook = make_hook(WrittenTrial(out_dir), **options)
    outcome = train(hook, num_steps, sizes)
    outcome.log = messages
    print(json.dumps(asdict(outcome)))


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
