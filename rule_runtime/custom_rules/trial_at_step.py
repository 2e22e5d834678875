"""A trial as it was when one of its steps was judged: nothing of what came later is seen."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final, NoReturn

from hook_layer.format.collections_file import CollectionsFile
from hook_layer.format.errors import FormatError
from hook_layer.format.job_file import JobFile
from hook_layer.format.modes import ModeKeys
from hook_layer.format.paths import END_MARKER, INDEX_PREFIX, JOB_FILE, parse_index_key
from hook_layer.storage.base import Buffers, ObjectNotFoundError, Store
from rule_runtime.trial.errors import StepNotYetAvailable
from rule_runtime.trial.name_pattern import NameMatcher, PatternError
from rule_runtime.trial.step_view import StepView
from rule_runtime.trial.trial import Trial
from rule_runtime.trial.trial_collections import collection_members

__all__ = ["TrialAtStep", "other_trial", "run_of"]

_ALL: Final = "all"
"""The collection that every tensor is in, whatever else it is in."""


class TrialAtStep(Trial):
    """The trial of a step with all its steps up to that one; it can go forward, never back.

    The next step costs its index files. A late first step, or a skipped step, costs a listing and
    all index files up to it. A collection costs the collections files at the first step that asks
    for it, and at later steps where it may have more tensors than the files list.

    Attributes:
        step: Number of the last step that is seen.
    """

    def __init__(self, step: StepView) -> None:
        self.step = step.step
        self._last_collections: tuple[list[CollectionsFile], int] = ([], 0)
        self._has_all_tensors = False
        self._own_matcher = NameMatcher()  # the other one's time is for what the rule asks
        self._seen_root = _RootAtStep(step.store, step.run, step.step)
        super().__init__(self._seen_root, name=_name(self._seen_root.uri), sleep=_unable_to_wait)
        self._set_completeness(step)

    def go_to(self, step: StepView, *, is_next: bool) -> None:
        """Show the steps up to a later one.

        Args:
            step: The later step.
            is_next: True if nothing was saved between the step that is shown and this one.
        """
        self.step = step.step
        self._seen_root.go_to(step.step, step.index_keys if is_next else None)
        self.loaded_all_steps = False
        self.refresh()
        self._set_completeness(step)

    def maybe_refresh(self, name: str | None = None) -> None:
        """Do nothing: only `go_to` shows more."""

    def _collection_files(self, wanted: str | None) -> list[CollectionsFile]:
        files = super()._collection_files(wanted)
        current = (files, len(self._tensors))
        if current != self._last_collections:
            self._last_collections = current
            self._has_all_tensors = self._cover_all_tensors(files)
        return files

    def _may_have_grown(self, wanted: str | None) -> bool:
        """Return whether a collection may have more tensors than the files listed at the last read.

        It has no more if no new tensor was saved since and the files list a collection for each
        tensor. It must also have regular expressions, or be the collection of all tensors: then
        it is not filled by hand.
        """
        files, num_tensors = self._last_collections
        if wanted is None or not self._has_all_tensors or num_tensors != len(self._tensors):
            return True
        entries = [file.collections.get(wanted) for file in files]
        return wanted != _ALL and any(entry is None or not entry.include_regex for entry in entries)

    def _cover_all_tensors(self, files: Sequence[CollectionsFile]) -> bool:
        entries = [entry for file in files for entry in file.collections.values()]
        rest = self._tensors.keys() - {name for entry in entries for name in entry.tensor_names}
        try:
            for collection in {entry.name for entry in entries} - {_ALL}:
                rest -= collection_members(files, collection, rest, self._own_matcher)
        except PatternError:
            return False
        return not rest

    def _set_completeness(self, step: StepView) -> None:
        # A step is judged without some of its workers only when they will never write it.
        self.loaded_all_steps = not step.is_complete


def run_of(step: StepView) -> tuple[str, str | None]:
    """Return the URI of the root and the RunId of the run that a step is of."""
    return step.store.uri, step.run


def other_trial(step: StepView, root: str) -> Trial:
    """Return another trial, as it is by now."""
    store = step.store_of_other_trial(root)
    trial = Trial(store, name=_name(store.uri), sleep=_unable_to_wait)
    trial.dynamic_refresh = False
    return trial


def _name(uri: str) -> str:
    return uri.rstrip("/").rpartition("/")[2]


def _unable_to_wait(_: float) -> NoReturn:
    raise _StepStillToComeError


class _StepStillToComeError(StepNotYetAvailable):
    """A rule waits for what is not there: steps are judged in order, each when it is complete."""

    def __init__(self) -> None:
        super().__init__(-1, ModeKeys.GLOBAL)
        self.args = ("the rule asks for a step that has not come yet",)


class _RootAtStep:
    """The store of a trial without the index files of later steps and without the end marker.

    Args:
        store: The trial's root.
        run: RunId of the run that is looked at, whichever the folder is about by now.
        last_step: The last step that is seen.
    """

    def __init__(self, store: Store, run: str | None, last_step: int) -> None:
        self._store = store
        self._job = None if run is None else JobFile(_name(store.uri), run, "", "").encode()
        self._index_keys: list[str] = []
        self._last_step = last_step
        self._is_listed = False

    def go_to(self, step: int, keys: list[str] | None) -> None:
        """Show the index files up to a later step.

        Args:
            step: The step.
            keys: Its index files, if there are no others that were not shown before.
        """
        self._last_step = step
        self._is_listed = keys is not None
        self._index_keys += keys or ()

    @property
    def uri(self) -> str:
        return self._store.uri

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        if key == JOB_FILE and self._job is not None:
            return self._job[start : None if length is None else start + length]
        if key in (JOB_FILE, END_MARKER):
            raise ObjectNotFoundError(f"{self.uri}{key} is not looked at")
        return self._store.get(key, start, length)

    def list(self, prefix: str = "", after: str | None = None) -> Iterator[str]:
        if prefix != INDEX_PREFIX:
            return self._store.list(prefix, after)
        return self._list_index(after)

    def _list_index(self, after: str | None) -> Iterator[str]:
        """Yield the keys of the index; those that are known are not listed again.

        Steps are judged in order, so only keys after the last one can be new.
        """
        known = self._index_keys
        if not self._is_listed:
            for key in self._store.list(INDEX_PREFIX, known[-1] if known else None):
                if self._is_later(key):
                    break
                known.append(key)
            self._is_listed = True
        yield from known[0 if after is None else bisect_right(known, after) :]

    def _is_later(self, key: str) -> bool:
        try:
            return parse_index_key(key).step > self._last_step
        except FormatError:
            return False

    def exists(self, key: str) -> bool:
        return key != END_MARKER and self._store.exists(key)

    def size(self, key: str) -> int:
        return self._store.size(key)

    def put(self, key: str, data: Buffers) -> None:  # noqa: ARG002
        raise PermissionError(f"{self.uri}{key}: a trial is only read")

    def delete(self, key: str) -> None:
        raise PermissionError(f"{self.uri}{key}: a trial is only read")
