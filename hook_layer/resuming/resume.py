"""Finds out from the trial's folder which run a process continues."""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from hook_layer.configuration.job import JobEnvironment
from hook_layer.delivery.step_files import RunIdentity
from hook_layer.format.errors import FormatError
from hook_layer.format.index import parse_index
from hook_layer.format.job_file import MAX_JOB_FILE_BYTES, parse_job_file
from hook_layer.format.paths import JOB_FILE, index_key, parse_index_key
from hook_layer.process.time_limit import within
from hook_layer.resuming.checkpoint import RunStart
from hook_layer.resuming.checkpoint_state import SavedRun
from hook_layer.storage.base import ObjectNotFoundError, Store

__all__ = ["Numbering", "is_same_run", "numbering", "run_in"]

logger = logging.getLogger("stepwatch")

_TIMEOUT_S: Final = 20.0
_MAX_FILES_READ: Final = 20
_STEPS_PER_FOLDER: Final = 1000


class Numbering(NamedTuple):
    """How a worker continues numbering its index files.

    Attributes:
        last: Number of the last stored one.
        num_lost: Number of assigned numbers after it whose steps were never stored.
    """

    last: int
    num_lost: int = 0


def run_in(store: Store) -> str | None:
    """Return the RunId in the folder's `job.json`; None if it is missing or invalid.

    Raises:
        StorageError: The store is unreachable.
    """
    try:
        data = store.get(JOB_FILE, 0, MAX_JOB_FILE_BYTES + 1)
        return parse_job_file(data, file=f"{store.uri}{JOB_FILE}").run_id
    except (ObjectNotFoundError, FormatError):
        return None


def is_same_run(store: Store, job: JobEnvironment, run: SavedRun) -> bool:
    """Return whether an interrupted run continues in a folder.

    It does not if the folder contains another run or none, because readers of a run need its first
    steps, too. On SageMaker, a new machine's folder is empty while the files are in S3. There the
    job name decides.
    """
    if run.training_job_name != job.training_job_name:
        return False
    try:
        found = within(_TIMEOUT_S, lambda: run_in(store))
    except Exception as error:  # noqa: BLE001 - training starts after any error
        logger.warning(
            "%s counts as the folder of the interrupted run, because it cannot be read: %s",
            store.uri,
            error,
        )
        return True
    if found is None:
        return job.platform == "sagemaker" and store.uri.startswith("file:")
    return found == run.run_id


def numbering(store: Store, identity: RunIdentity, start: RunStart) -> Numbering:
    """Return how a worker continues numbering when its training continues.

    The chief's numbers are in the state that training continues from. Steps that were not stored
    when the process was killed count as lost. Other workers may have saved fewer steps than the
    chief, and continue after their last file.
    """
    if not start.sequence:
        return Numbering(0)
    try:
        last = within(_TIMEOUT_S, lambda: _last_stored(store, identity, start))
    except Exception as error:  # noqa: BLE001 - training starts after any error
        logger.warning("%s cannot be searched for the last steps: %s", store.uri, error)
        last = None
    if last is None:  # the folder of a new machine, or unknown
        return Numbering(start.sequence)
    if identity.worker != "worker_0":
        return Numbering(last)
    num_lost = max(start.sequence - last, 0)
    if num_lost:
        logger.warning(
            "%d of the last steps up to step %d were not stored before the interruption",
            num_lost,
            start.step,
        )
    return Numbering(start.sequence - num_lost, num_lost)


def _last_stored(store: Store, identity: RunIdentity, start: RunStart) -> int | None:
    """Return the number of a worker's last index file up to the step; None if there is none."""
    number = _number(store, index_key(max(start.saved_step, 0), identity.worker), identity)
    if number is not None:
        return number
    for step in (start.step, start.step - _STEPS_PER_FOLDER):
        if step < 0:
            break
        folder = index_key(step, identity.worker).rpartition("/")[0]
        keys = _own_keys(store, f"{folder}/", identity.worker, start.step)
        for key in reversed(keys[-_MAX_FILES_READ:]):
            number = _number(store, key, identity)
            if number is not None:
                return number
    return None


def _own_keys(store: Store, folder: str, worker: str, last_step: int) -> list[str]:
    keys = []
    for key in store.list(folder):
        try:
            name = parse_index_key(key)
        except FormatError:
            continue
        if name.worker == worker and name.step <= last_step:
            keys.append(key)
    return keys


def _number(store: Store, key: str, identity: RunIdentity) -> int | None:
    """Return the number of an index file; None if it does not belong to this run."""
    try:
        index = parse_index(store.get(key), file=key)
    except (ObjectNotFoundError, FormatError):
        return None
    return index.sequence if index.run == identity.run_id else None
