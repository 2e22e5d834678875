"""Steps of a stored run, as rules see them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hook_layer.storage.local import LocalStore
from rule_runtime.trial.step_index import list_index_files, load_step_files
from rule_runtime.trial.step_view import StepReader, StepView

__all__ = ["views_of"]


def views_of(path: Path) -> Iterator[StepView]:
    """Return the steps of a run of one worker."""
    store = LocalStore(path)
    reader = StepReader(store)
    for file in load_step_files(store, [key for key, _ in list_index_files(store)]):
        yield reader.view(file.step, [file], num_workers=1)
