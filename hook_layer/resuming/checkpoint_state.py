"""The state file beside the checkpoints: the steps that a training can continue from.

It has the format of the original client's `metadata.json`: a list of states, one per checkpoint.
Stepwatch's keys are under `stepwatch`; the original ignores them, and does not write them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from hook_layer.format.errors import FormatError
from hook_layer.format.json_document import Document, load_json
from hook_layer.format.modes import ModeKeys

__all__ = [
    "MAX_STATE_FILE_BYTES",
    "STATE_FILE",
    "CheckpointStateError",
    "SavedRun",
    "SavedState",
    "encode_states",
    "parse_states",
]

STATE_FILE: Final = "metadata.json"
MAX_STATE_FILE_BYTES: Final = 1 << 20
"""Maximum size of a state file."""

_MAX_STEP: Final = (1 << 53) - 1
_RUN_ID: Final = re.compile(r"[0-9A-Za-z._-]{1,64}")
_OURS: Final = "stepwatch"


class CheckpointStateError(FormatError):
    """An invalid state file."""


@dataclass(frozen=True)
class SavedRun:
    """The run of a state, which the original's states lack.

    Attributes:
        run_id: Id of the run.
        training_job_name: Name of its job.
        started_at: Start, ISO 8601 in UTC.
        sequence: Number of the last index file at the state's step, of rank 0.
        has_ended: Whether training has ended since.
    """

    run_id: str
    training_job_name: str
    started_at: str
    sequence: int
    has_ended: bool = False


@dataclass(frozen=True)
class SavedState:
    """Progress of training when a checkpoint was saved.

    Attributes:
        step: Last global step whose training was complete.
        saved_step: Last global step that was saved by then; -1 before the first.
        mode_steps: Last step of each mode, by the mode's name.
        training_run: Number of times that training was resumed.
        run: The run; None in a state of the original client.
        files: Sizes of files of the checkpoint, by their path in the checkpoint directory.
    """

    step: int
    saved_step: int
    mode_steps: Mapping[str, int]
    training_run: int = 0
    run: SavedRun | None = None
    files: Mapping[str, int] = field(default_factory=dict)


def encode_states(states: Sequence[SavedState]) -> bytes:
    """Return the bytes of a state file."""
    return json.dumps([_to_json(state) for state in states]).encode()


def parse_states(data: bytes, *, file: str) -> list[SavedState]:
    """Parse a state file of Stepwatch or the original client.

    Returns:
        The states, in the order of the file.

    Raises:
        CheckpointStateError: It is not a state file.
    """
    content = load_json(data, file=file, error=CheckpointStateError, max_bytes=MAX_STATE_FILE_BYTES)
    document = Document(file, CheckpointStateError)
    items = document.items(content, "states")
    return [_from_json(item, f"[{i}]", document) for i, item in enumerate(items)]


def _to_json(state: SavedState) -> dict[str, Any]:
    content: dict[str, Any] = {
        "training-run": state.training_run,
        "latest-global-step-saved": state.saved_step,
        "latest-global-step-seen": state.step,
        "latest-mode-step": dict(state.mode_steps),
    }
    if state.run is not None:
        content[_OURS] = {
            "run-id": state.run.run_id,
            "training-job-name": state.run.training_job_name,
            "started-at": state.run.started_at,
            "sequence": state.run.sequence,
            "ended": state.run.has_ended,
            "files": dict(state.files),
        }
    return content


def _from_json(item: object, path: str, document: Document) -> SavedState:
    content = document.members(item, path)
    modes = document.members(content.get("latest-mode-step"), f"{path}.latest-mode-step")
    unknown = modes.keys() - ModeKeys.__members__.keys()
    if unknown:
        document.fail(f"{path}.latest-mode-step: {min(unknown)!r:.60} is not a mode")
    saved_step = content.get("latest-global-step-saved", -1)
    ours = content.get(_OURS)
    run, files = (None, {}) if ours is None else _run(ours, f"{path}.{_OURS}", document)
    return SavedState(
        step=_step(content.get("latest-global-step-seen"), f"{path}.seen", document),
        saved_step=-1 if saved_step is None else _step(saved_step, f"{path}.saved", document),
        mode_steps={
            name: _step(step, f"{path}.latest-mode-step.{name}", document)
            for name, step in modes.items()
        },
        training_run=document.count(content.get("training-run"), f"{path}.training-run"),
        run=run,
        files=files,
    )


def _run(item: object, path: str, document: Document) -> tuple[SavedRun, dict[str, int]]:
    content = document.members(item, path)
    run_id = document.text(content.get("run-id"), f"{path}.run-id")
    if not _RUN_ID.fullmatch(run_id):
        document.fail(f"{path}.run-id: {run_id[:80]!r} is not the id of a run")
    sequence = _step(content.get("sequence"), f"{path}.sequence", document)
    files = document.members(content.get("files", {}), f"{path}.files")
    run = SavedRun(
        run_id=run_id,
        training_job_name=document.text(content.get("training-job-name"), f"{path}.job"),
        started_at=document.text(content.get("started-at"), f"{path}.started-at"),
        sequence=max(sequence, 0),
        has_ended=document.flag(content.get("ended", False), f"{path}.ended"),
    )
    return run, {name: document.count(size, f"{path}.files") for name, size in files.items()}


def _step(value: object, path: str, document: Document) -> int:
    """Return a step: an integer, -1 before the first."""
    if type(value) is not int or not -1 <= value <= _MAX_STEP:
        document.fail(f"{path}: a step expected, {value!r:.60} found")
    return value
