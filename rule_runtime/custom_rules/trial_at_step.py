"""The view of a trial as of one step, without later data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NoReturn, cast

from hook_layer.format.collections_file import CollectionsFile
from hook_layer.format.modes import ModeKeys
from hook_layer.format.paths import END_MARKER
from hook_layer.storage.base import Store
from rule_runtime.trial.errors import StepNotYetAvailable
from rule_runtime.trial.name_pattern import NameMatcher, PatternError
from rule_runtime.trial.run_index import StepIndex
from rule_runtime.trial.step_view import StepView
from rule_runtime.trial.trial import Trial
from rule_runtime.trial.trial_collections import collection_members

__all__ = ["TrialAtStep", "other_trial", "run_of"]

_ALL: Final = "all"
"""The collection of all tensors."""


class TrialAtStep(Trial):
    """The trial of a step with all steps up to it; it can move forward, not back.

    The next step reads its index files. A late first step, or a skipped step, needs a listing and
    all index files up to it. The first step that uses a collection reads the collections files, and
    so do later steps if the collection may have grown.

    Attributes:
        step: Number of the last visible step.
    """

    def __init__(self, step: StepView) -> None:
        self.step = step.step
        self._last_collections: tuple[list[CollectionsFile], int] = ([], 0)
        self._has_all_tensors = False
        self._own_matcher = NameMatcher()  # the other's time limit is for the rule
        self._run = step.run  # the current run of the folder
        store = cast("Store", _ReadOnly(step.store))
        super().__init__(store, name=_name(store.uri), sleep=_unable_to_wait)
        self._set_completeness(step)

    def _new_index(self) -> StepIndex:
        return StepIndex(self.store, (None, self.step + 1), run=self._run)

    def _look(self, *, may_wait: bool) -> None:
        """Show the steps up to this one; ignores the end marker."""
        del may_wait
        self._take_in(self._index.refresh())

    def go_to(self, step: StepView, *, is_next: bool) -> None:
        """Show the steps up to a later one.

        Args:
            step: A later step.
            is_next: True if no step was saved between the current one and this one.
        """
        self.step = step.step
        self._index.end = step.step + 1
        self.loaded_all_steps = False
        self._take_in(self._index.read(step.index_keys) if is_next else self._index.refresh())
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
        """Return whether a collection may have more tensors than at the last read of its files.

        It has not grown if no new tensor was saved since and the files list a collection for each
        tensor. It must also have regular expressions, or be the collection of all tensors: then it
        is not filled by hand.
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
        # A step without some of its workers is evaluated only if they will never write it.
        self.loaded_all_steps = not step.is_complete


def run_of(step: StepView) -> tuple[str, str | None]:
    """Return the URI of the root and the RunId of a step's run."""
    return step.store.uri, step.run


def other_trial(step: StepView, root: str) -> Trial:
    """Return another trial in its current state."""
    store = step.store_of_other_trial(root)
    trial = Trial(store, name=_name(store.uri), sleep=_unable_to_wait)
    trial.dynamic_refresh = False
    return trial


def _name(uri: str) -> str:
    return uri.rstrip("/").rpartition("/")[2]


def _unable_to_wait(_: float) -> NoReturn:
    raise _StepStillToComeError


class _StepStillToComeError(StepNotYetAvailable):
    """A rule waits for a later step: steps are evaluated in order, when they are complete."""

    def __init__(self) -> None:
        super().__init__(-1, ModeKeys.GLOBAL)
        self.args = ("the rule requests a step that does not exist yet",)


class _ReadOnly:
    """A read-only store without the end marker, which comes after every step."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def exists(self, key: str) -> bool:
        return key != END_MARKER and self._store.exists(key)

    def put(self, key: str, *_: Any) -> None:
        raise PermissionError(f"{self._store.uri}{key}: a trial is only read")

    append = delete = put
