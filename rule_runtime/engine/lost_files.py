"""Lists the index to find files whose events were lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Final

from hook_layer.storage.base import Store
from rule_runtime.engine.run_feed import FILES_AT_ONCE, FileName, RunFeed
from rule_runtime.engine.unfinished_work import Scan
from rule_runtime.trial.step_index import list_index_files

__all__ = ["listed_parts", "search_lost_files"]

_NAMES_AT_ONCE: Final = 1000
"""Known files listed between two checks of the budget: a page of an object store."""


def search_lost_files(feed: RunFeed, scan: Scan) -> None:
    """List the index after the last fed step, and record the files that were unknown.

    The next call continues a listing that exceeds the budget; `scan` is then the one of the
    progress. Other runs may have files in the same folder, and only reading a file shows its run,
    so the last step that was read is kept. Files without a number are an exception: only an
    uninterrupted listing shows which steps their worker passed.
    """
    progress, is_complete = feed.progress, True
    if scan is not progress.scan:
        # A hole that appears during the listing may be before its current step.
        for worker in progress.workers.values():
            if worker.has_hole:
                worker.listed = max(worker.listed, worker.highest)
    progress.scan = scan
    after = progress.fed_step
    if not progress.has_unnumbered:
        after = max(after, scan.after)
    parts = listed_parts(
        feed.store,
        after,
        is_wanted=lambda step, worker: not progress.is_known(step, worker),
        size=lambda: max(min(FILES_AT_ONCE, progress.room), 1),
        is_over=lambda step: scan.last is not None and step > scan.last,
    )
    for names in parts:
        unknown = [name for name in names if not progress.is_known(*name)]
        has_changes = feed.load(unknown)
        progress.note_listed(names)
        progress.forget_surplus()
        is_complete = progress.room > 0
        is_in_vain = scan.brief and bool(unknown) and not has_changes
        if is_in_vain or not is_complete:
            break
        progress.scan = scan._replace(after=names[-1][0])
        may_stop = has_changes or not progress.has_unnumbered
        if may_stop and not feed.budget.allows_more():
            return
    progress.scan = None
    is_all = scan.last is None and not scan.brief
    for worker in progress.workers.values():
        worker.forgotten = not is_complete or (worker.forgotten and not is_all)


def listed_parts(
    store: Store,
    after: int,
    is_wanted: Callable[[int, str], bool],
    size: Callable[[], int],
    is_over: Callable[[int], bool],
) -> Iterator[list[FileName]]:
    """Yield the names of listed index files in step order, in parts of whole steps.

    Args:
        store: The trial's root.
        after: The step after which the listing begins.
        is_wanted: Returns whether to read the file of a step and worker.
        size: Returns the number of these files per part.
        is_over: Returns whether the listing ends before a step.
    """
    names: list[FileName] = []
    num_wanted = 0
    listed = list_index_files(store, after_step=after)
    for step, of_step in groupby(listed, key=lambda item: item[1].step):
        if is_over(step):
            break
        workers = [name.worker for _, name in of_step]
        names += [(step, worker) for worker in workers]
        num_wanted += sum(is_wanted(step, worker) for worker in workers)
        if num_wanted >= size() or len(names) >= _NAMES_AT_ONCE:
            yield names
            names, num_wanted = [], 0
    if names:
        yield names
