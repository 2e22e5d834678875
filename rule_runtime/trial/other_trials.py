"""Opens other trials for comparison and finds matching steps in them.

A job's configuration can name the other trial, so anyone who may start a job could choose it. So
only trials in the same folder can be read.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from hook_layer.format.modes import ModeKeys
from hook_layer.format.paths import index_key
from hook_layer.storage.base import Store, open_store
from rule_runtime.trial.run_files import current_run
from rule_runtime.trial.step_index import StepFile, list_index_files, load_step_files

__all__ = ["OtherTrial", "OtherTrialError", "open_other_trial"]

_OUTPUT_FOLDER: Final = "debug-output"
_MAX_PROBES: Final = 256
"""Index files of the other trial that are read at most to find one step of a mode."""

_Place = tuple[ModeKeys, int]
"""Mode and step within the mode."""


class OtherTrialError(ValueError):
    """The other trial does not exist, or must not be read."""


def open_other_trial(root: str, *, beside: str) -> OtherTrial:
    """Return another trial for comparison.

    Args:
        root: Its path or URI, or the name of a job that writes to the same folder.
        beside: Root of the evaluated trial.

    Raises:
        OtherTrialError: If it is the evaluated trial, must not be read, or holds no step.
        StorageError: If the storage fails, except for a missing object.
    """
    text = root.strip()
    uri = _beside(text, beside) if "/" not in text else text
    try:
        store = open_store(uri)
    except ValueError as error:
        raise OtherTrialError(f"other trial {text!r}: {error}") from error
    if store.uri == beside:
        raise OtherTrialError(f"other trial {text!r} is the evaluated trial itself")
    folder = _folder_of_jobs(beside)[0]
    if folder is None or not store.uri.startswith(folder):
        raise OtherTrialError(
            f"other trial {text!r}: {store.uri} may not be read; give the name of a job, or "
            f"the root of a trial, in the same folder as {beside}"
        )
    if next(list_index_files(store), None) is None:
        raise OtherTrialError(f"other trial {text!r}: no step is stored at {store.uri}")
    return OtherTrial(store, current_run(store))


class OtherTrial:
    """The steps of another trial."""

    def __init__(self, store: Store, run: str | None) -> None:
        self.store = store
        self._run = run
        self._steps: list[int] | None = None
        self._places: dict[int, _Place | None] = {}

    def files(self, mode: ModeKeys, mode_step: int, step: int) -> list[StepFile]:
        """Return the index files of the same step, of all workers; empty if it has no such step.

        Steps match by mode and mode step. They match by global step if one of the runs does not
        distinguish modes.
        """
        files = self._files_of(step)
        place = _place(files)
        if place is not None and (
            place == (mode, mode_step) or ModeKeys.GLOBAL in (mode, place[0])
        ):
            return files
        found = None if mode is ModeKeys.GLOBAL else self._search(mode, mode_step)
        return [] if found is None else self._files_of(found)

    def _files_of(self, step: int) -> list[StepFile]:
        prefix = index_key(step, "worker").rpartition("_")[0] + "_"
        files = load_step_files(self.store, list(self.store.list(prefix)))
        return [file for file in files if file.index is not None and file.index.run == self._run]

    def _search(self, mode: ModeKeys, mode_step: int) -> int | None:
        """Return the global step of a mode step, by bisection: both grow together."""
        if self._steps is None:
            self._steps = sorted({name.step for _, name in list_index_files(self.store)})
        low, high, probes = 0, len(self._steps), _MAX_PROBES
        while low < high and probes > 0:
            middle = (low + high) // 2
            # Steps of other modes cannot be compared: use the next step of this mode.
            for at in range(middle, high):
                probes -= 1
                place = self._place_of(self._steps[at])
                if (place is not None and place[0] is mode) or not probes:
                    break
            else:
                high = middle
                continue
            if place is None or place[0] is not mode:
                break
            if place[1] == mode_step:
                return self._steps[at]
            low, high = (at + 1, high) if place[1] < mode_step else (low, middle)
        return None

    def _place_of(self, step: int) -> _Place | None:
        if step not in self._places:
            self._places[step] = _place(self._files_of(step))
        return self._places[step]


def _place(files: list[StepFile]) -> _Place | None:
    index = files[0].index if files else None
    return None if index is None else (index.mode, index.mode_step)


def _beside(name: str, uri: str) -> str:
    """Return the root of another job's trial, with the layout of the evaluated one."""
    folder, tail = _folder_of_jobs(uri)
    if folder is None or name in ("", ".", ".."):
        raise OtherTrialError(
            f"other trial {name!r} cannot be found by its name in the folder of {uri}; give its URI"
        )
    return f"{folder}{quote(name) if uri.startswith('file:') else name}/{tail}"


def _folder_of_jobs(uri: str) -> tuple[str | None, str]:
    """Return the folder that holds a trial's job, and the path after the job's name.

    None for a trial in the root of a bucket or file system, which has no siblings.
    """
    scheme, _, path = uri.partition("://")
    parts = path.strip("/").split("/")
    tail = ""
    if len(parts) > 1 and parts[-1] == _OUTPUT_FOLDER:
        tail = f"{parts.pop()}/"
    folders = parts[:-1]
    if not folders and scheme != "memory":
        return None, tail
    slash = "/" if path.startswith("/") else ""
    return f"{scheme}://{slash}{''.join(f'{folder}/' for folder in folders)}", tail
