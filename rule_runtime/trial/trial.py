"""A trial: the tensors of one run, as they were saved or while they are being saved.

The methods and their keywords are those of the original client's `Trial`.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any, Final

from hook_layer.format.collections_file import CollectionEntry
from hook_layer.format.errors import FormatError
from hook_layer.format.job_file import parse_job_file
from hook_layer.format.modes import ModeKeys
from hook_layer.format.paths import END_MARKER, JOB_FILE
from hook_layer.format.reductions import split_reduction_name
from hook_layer.storage.base import ObjectNotFoundError, Store, open_store
from rule_runtime.trial.collection_reader import CollectionReader, membership
from rule_runtime.trial.errors import NoMoreData, StepUnavailable, TensorUnavailable
from rule_runtime.trial.step_index import StepFile, StepIndex, list_index_files, load_step_files
from rule_runtime.trial.tensor import StepState, Tensor

__all__ = ["StepState", "Trial", "create_trial", "current_run"]

_POLL_SECONDS: Final = 2.0
_RUN_ID_BYTES: Final = 256


def create_trial(
    path: str | os.PathLike[str],
    name: str | None = None,
    profiler: bool = False,
    output_dir: str = "/opt/ml/processing/outputs/",
    *,
    range_steps: tuple[int | None, int | None] | None = None,
    check: bool | str = False,
    index_mode: bool = True,
    cache: bool = False,
) -> Trial:
    """Open the trial at a folder or an `s3://` URI. It need not hold anything yet.

    Args:
        path: Folder or URI of the trial's root.
        name: Name of the trial; the last part of the path unless given.
        profiler: Not supported; must be False.
        output_dir: Taken for compatibility; trials are only read.
        range_steps: Global steps to look at, from the first to before the second; None for no
            limit.
        check: Taken for compatibility; checksums are verified wherever there are any.
        index_mode: Taken for compatibility; trials are read by their index always.
        cache: True to keep the values that were read in memory.

    Raises:
        ValueError: If `profiler` is asked for, or the range is empty or negative.
        StorageError: If the storage cannot be read.
    """
    del output_dir, check, index_mode
    if profiler:
        raise ValueError("create_trial: profiler trials are not supported; leave profiler False")
    _check_range(range_steps)
    text = os.fspath(path).strip()
    return Trial(
        open_store(text),
        name=name or PurePath(text.rstrip("/")).name,
        range_steps=range_steps,
        cache=cache,
    )


def current_run(store: Store) -> str | None:
    """Return the RunId of the run that a folder is about; None for files of the original client.

    It is the one that `job.json` names, else the newest among the index files.

    Args:
        store: The trial's root.
    """
    try:
        return parse_job_file(store.get(JOB_FILE), file=f"{store.uri}{JOB_FILE}").run_id
    except (ObjectNotFoundError, FormatError):
        pass
    files = load_step_files(store, [key for key, _ in list_index_files(store)])
    runs = [file.index.run for file in files if file.index is not None]
    return max((run for run in runs if run is not None), default=None)


class Trial:
    """The tensors of one run.

    Args:
        store: The trial's root.
        name: Name of the trial.
        range_steps: Global steps to look at.
        cache: True to keep the values that were read in memory.
        sleep: Waits a number of seconds.

    Attributes:
        name: Name of the trial.
        path: Where it is.
        store: The same, as a store.
        cache: True if values are kept in memory.
        loaded_all_steps: True once the training has ended and all of it was found.
        dynamic_refresh: False to keep queries from looking for new files.
    """

    def __init__(
        self,
        store: Store,
        *,
        name: str,
        range_steps: tuple[int | None, int | None] | None = None,
        cache: bool = False,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.name = name
        self.path = store.uri
        self.store = store
        self.cache = cache
        self.range_steps = range_steps
        self.loaded_all_steps = False
        self.dynamic_refresh = True
        self._sleep = sleep
        self._run: str | None = None
        self._index: StepIndex | None = None
        self._collection_reader = CollectionReader(store)
        self._tensors: dict[str, Tensor] = {}
        self._mode_to_global: dict[ModeKeys, dict[int, int]] = {}
        self.refresh()

    def __repr__(self) -> str:
        return f"<Trial {self.name!r} at {self.path}: {len(self._files)} steps>"

    # ------------------------------------------------------------------ finding files

    def refresh(self) -> None:
        """Look for files that have come since.

        Raises:
            StorageError: If the storage fails otherwise than by a missing object.
        """
        # The marker is written last: what is listed after it was seen is all.
        has_ended = self._has_ended()
        if self._index is None:
            self._run = current_run(self.store)
            self._index = StepIndex(self.store, self._run, self.range_steps)
        new = self._index.refresh()
        if not self._index.files and self._run is None:
            self._index = None  # nothing told yet which run this is
        for file in new:
            self._add(file)
        self.loaded_all_steps = self.loaded_all_steps or has_ended

    def refresh_data(self) -> None:
        """Look for files that have come since, under the original client's name."""
        self.refresh()

    def maybe_refresh(self, name: str | None = None) -> None:
        """Look for new files unless the training has ended or `dynamic_refresh` is off.

        Args:
            name: Taken for compatibility; all tensors are looked for.
        """
        del name
        if self.dynamic_refresh and not self.loaded_all_steps:
            self.refresh()

    def _has_ended(self) -> bool:
        try:
            body = self.store.get(END_MARKER, 0, _RUN_ID_BYTES)
        except ObjectNotFoundError:
            return False
        run = body.decode("utf-8", "replace").strip()
        return not run or self._run is None or run == self._run

    def _add(self, file: StepFile) -> None:
        assert file.index is not None  # noqa: S101 - StepIndex keeps parsed files only
        index = file.index
        self._mode_to_global.setdefault(index.mode, {}).setdefault(index.mode_step, file.step)
        for row in index.locations:
            self._tensor_of(row.name).add(file)
        for shape in index.shapes:
            self._tensor_of(shape.name).add(file, original_name=shape.original_name)
        block = index.statistics
        if block is not None and len(block.tensors) > len(index.locations) + len(index.shapes):
            for name in block.tensors:
                self._tensor_of(name).add(file)

    def _tensor_of(self, stored_name: str) -> Tensor:
        reduction = split_reduction_name(stored_name)
        name = stored_name if reduction is None else reduction[0]
        tensor = self._tensors.get(name)
        if tensor is None:
            tensor = self._tensors[name] = Tensor(name, self)
        return tensor

    @property
    def _files(self) -> dict[int, dict[str, StepFile]]:
        return {} if self._index is None else self._index.files

    # ------------------------------------------------------------------ workers

    @property
    def num_workers(self) -> int:
        """How many workers write; as many as were seen if nothing says so."""
        if self._index is not None and self._index.num_workers:
            return self._index.num_workers
        for worker in self._index.workers if self._index is not None else ():
            file = self._collection_reader.load(worker)
            if file is not None:
                return file.num_workers
        return max(len(self.workers_seen), 1)

    @property
    def workers_seen(self) -> list[str]:
        """The workers whose files were found so far, sorted."""
        return [] if self._index is None else self._index.workers

    @property
    def worker_set(self) -> set[str]:
        """The workers whose files were found so far."""
        return set(self.workers_seen)

    @property
    def workers_for_global_step(self) -> dict[int, set[str]]:
        """The workers that wrote each global step."""
        return {step: set(files) for step, files in self._files.items()}

    @property
    def last_complete_step(self) -> int:
        """The last global step of which nothing can be missing any more; -1 if there is none."""
        steps = [step for step in self._files if self.is_complete(step)]
        return max(steps, default=-1)

    @property
    def problems(self) -> dict[str, str]:
        """What was wrong with index files that could not be parsed, by key."""
        return {} if self._index is None else dict(self._index.problems)

    def workers(self) -> list[str]:
        """Return the workers that wrote, sorted."""
        self.maybe_refresh()
        return sorted(self.worker_set | set(self._collection_reader.workers()))

    def is_complete(self, global_step: int) -> bool:
        """Tell whether nothing can be missing from a saved step any more.

        Args:
            global_step: The step.
        """
        if self.loaded_all_steps or self._index is None:
            return self.loaded_all_steps
        num_workers = self.num_workers
        has_all = len(self._files.get(global_step, ())) >= num_workers
        return has_all or self._index.passed_step(num_workers) >= global_step

    # ------------------------------------------------------------------ steps and modes

    def steps(
        self, mode: ModeKeys = ModeKeys.GLOBAL, show_incomplete_steps: bool = False
    ) -> list[int]:
        """Return the saved steps, sorted; of GLOBAL the global steps of all modes.

        Args:
            mode: The mode whose steps are counted.
            show_incomplete_steps: True to see steps that a worker may still write.
        """
        self.maybe_refresh()
        steps = self._all_steps(mode)
        if show_incomplete_steps:
            return sorted(steps)
        return sorted(step for step, global_step in steps.items() if self.is_complete(global_step))

    def modes(self) -> list[ModeKeys]:
        """Return the modes of which steps were saved, without GLOBAL."""
        self.maybe_refresh()
        modes = [mode for mode in self._mode_to_global if mode is not ModeKeys.GLOBAL]
        return sorted(modes, key=lambda mode: int(mode.value))

    def mode(self, global_step: int) -> ModeKeys | None:
        """Return the mode of a global step, None if it was not saved.

        Args:
            global_step: The step.
        """
        return self.mode_modestep(global_step)[0]

    def mode_step(self, global_step: int) -> int | None:
        """Return the step within its mode of a global step, None if it was not saved.

        Args:
            global_step: The step.
        """
        return self.mode_modestep(global_step)[1]

    def mode_modestep(self, global_step: int) -> tuple[ModeKeys | None, int | None]:
        """Return mode and step within it of a global step, (None, None) if it was not saved.

        Args:
            global_step: The step.
        """
        if global_step not in self._files:
            self.maybe_refresh()
        for file in self._files.get(global_step, {}).values():
            if file.index is not None:
                return file.index.mode, file.index.mode_step
        return None, None

    def global_step(self, mode: ModeKeys, mode_step: int) -> int | None:
        """Return the global step of a step within a mode, None if it was not saved.

        Args:
            mode: The mode.
            mode_step: The step within it.
        """
        if mode is ModeKeys.GLOBAL:
            return mode_step
        if mode_step not in self._mode_to_global.get(mode, {}):
            self.maybe_refresh()
        return self._mode_to_global.get(mode, {}).get(mode_step)

    def has_passed_step(self, step: int, mode: ModeKeys = ModeKeys.GLOBAL) -> StepState:
        """Tell whether a step can be read, may still come, or will never come.

        Args:
            step: The step, counted in `mode`.
            mode: The mode.
        """
        self.maybe_refresh()
        steps = self._all_steps(mode)
        if step in steps:
            is_complete = self.is_complete(steps[step])
            return StepState.AVAILABLE if is_complete else StepState.NOT_YET_AVAILABLE
        if self.loaded_all_steps:
            return StepState.UNAVAILABLE
        is_passed = any(s > step and self.is_complete(g) for s, g in steps.items())
        return StepState.UNAVAILABLE if is_passed else StepState.NOT_YET_AVAILABLE

    def wait_for_steps(
        self, required_steps: Iterable[int], mode: ModeKeys = ModeKeys.GLOBAL
    ) -> None:
        """Wait until steps can be read.

        Args:
            required_steps: The steps, counted in `mode`.
            mode: The mode.

        Raises:
            StepUnavailable: If a step was passed without being saved.
            NoMoreData: If the training ended before a step.
        """
        for step in required_steps:
            while (state := self.has_passed_step(step, mode)) is not StepState.AVAILABLE:
                if state is StepState.UNAVAILABLE:
                    last = max(self._all_steps(mode), default=-1)
                    if self.loaded_all_steps and step >= last:
                        raise NoMoreData(step, mode, last)
                    raise StepUnavailable(step, mode)
                self._sleep(_POLL_SECONDS)

    def _all_steps(self, mode: ModeKeys) -> dict[int, int]:
        """Return the global step of every saved step of a mode."""
        if mode is ModeKeys.GLOBAL:
            return {step: step for step in self._files}
        return self._mode_to_global.get(mode, {})

    # ------------------------------------------------------------------ tensors and collections

    def tensor(self, tname: str) -> Tensor:
        """Return a tensor.

        Args:
            tname: Its name.

        Raises:
            TensorUnavailable: If no tensor has the name.
        """
        if not self.has_tensor(tname):
            raise TensorUnavailable(tname)
        return self._tensors[tname]

    def has_tensor(self, tname: str) -> bool:
        """Tell whether a tensor was saved.

        Args:
            tname: Its name.
        """
        if tname not in self._tensors:
            self.maybe_refresh()
        return tname in self._tensors

    def tensor_names(
        self,
        show_prefixed_tensors: bool = False,
        *,
        step: int | None = None,
        mode: ModeKeys = ModeKeys.GLOBAL,
        regex: str | Sequence[str] | None = None,
        collection: str | CollectionEntry | None = None,
    ) -> list[str]:
        """Return names of saved tensors, sorted; the union where regex and collection are given.

        Args:
            show_prefixed_tensors: True to see names that begin with `smdebug_` too.
            step: Only tensors of this step, counted in `mode`.
            mode: Only tensors of this mode; GLOBAL for all.
            regex: Regular expressions, one of which must be found in the name.
            collection: A collection that the tensor must belong to.
        """
        self.maybe_refresh()
        global_step = None if step is None else self.global_step(mode, step)
        if step is not None and global_step is None:
            return []
        names = [
            name
            for name, tensor in self._tensors.items()
            if (show_prefixed_tensors or not name.startswith("smdebug_"))
            and tensor.is_saved(mode, global_step)
        ]
        if regex is not None or collection is not None:
            tests = self._name_tests(regex, collection)
            names = [name for name in names if any(test(name) for test in tests)]
        return sorted(names)

    def collections(self) -> dict[str, CollectionEntry]:
        """Return the collections of all workers by name."""
        merged: dict[str, CollectionEntry] = {}
        for worker in self._collection_reader.workers():
            file = self._collection_reader.load(worker, again=not self.loaded_all_steps)
            for name, entry in (file.collections if file is not None else {}).items():
                other = merged.get(name, entry)
                tensor_names = sorted({*other.tensor_names, *entry.tensor_names})
                patterns = dict.fromkeys((*other.include_regex, *entry.include_regex))
                merged[name] = replace(
                    other, tensor_names=tuple(tensor_names), include_regex=tuple(patterns)
                )
        return merged

    def collection(self, coll_name: str) -> CollectionEntry:
        """Return a collection; an empty one if it was not saved.

        Args:
            coll_name: Its name.
        """
        return self.collections().get(coll_name, CollectionEntry(coll_name))

    def _name_tests(
        self, regex: str | Sequence[str] | None, collection: str | CollectionEntry | None
    ) -> list[Callable[[str], Any]]:
        patterns = [regex] if isinstance(regex, str) else list(regex or ())
        tests: list[Callable[[str], Any]] = [re.compile(pattern).search for pattern in patterns]
        if collection is not None:
            name = collection if isinstance(collection, str) else collection.name
            for worker in self._collection_reader.workers() or [""]:
                file = self._collection_reader.load(worker, again=True) if worker else None
                tests.append(membership(file, name))
        return tests


def _check_range(range_steps: tuple[int | None, int | None] | None) -> None:
    begin, end = range_steps or (None, None)
    if (begin or 0) < 0 or (end is not None and end <= (begin or 0)):
        raise ValueError(
            f"create_trial: range_steps is {range_steps!r}, but must be (begin, end) with "
            "0 <= begin < end; None for no limit"
        )
