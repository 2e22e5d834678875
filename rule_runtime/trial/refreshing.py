"""Turns the search for new files on or off: `with no_refresh(trial): ...`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rule_runtime.trial.live_run import LiveRun

__all__ = ["no_refresh", "refresh"]


_Trials = TypeVar("_Trials", bound="LiveRun | Sequence[LiveRun]")


@contextmanager
def no_refresh(trials: _Trials) -> Iterator[_Trials]:
    """Stop queries from looking for new files, so that all of them see the same steps.

    Afterwards, each trial has its previous setting; the original switches the refresh on.

    Args:
        trials: One or more trials.
    """
    with _switched(trials, is_on=False):
        yield trials


@contextmanager
def refresh(trials: _Trials) -> Iterator[_Trials]:
    """Let queries look for new files, also within `no_refresh`.

    Afterwards, each trial has its previous setting; the original switches the refresh off.

    Args:
        trials: One or more trials.
    """
    with _switched(trials, is_on=True):
        yield trials


@contextmanager
def _switched(trials: LiveRun | Sequence[LiveRun], *, is_on: bool) -> Iterator[None]:
    several = trials if isinstance(trials, Sequence) else (trials,)
    before = [trial.dynamic_refresh for trial in several]
    for trial in several:
        trial.dynamic_refresh = is_on
    try:
        yield
    finally:
        for trial, was_on in zip(several, before, strict=True):
            trial.dynamic_refresh = was_on
