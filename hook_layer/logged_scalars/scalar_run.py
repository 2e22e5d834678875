"""A run of its own for the numbers that a script logs, if no framework's hook watches it."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from math import isfinite
from typing import Final

from hook_layer.configuration.collections import CollectionKeys
from hook_layer.configuration.hook_json import HookConfiguration
from hook_layer.configuration.hook_setup import FrameworkDefaults, HookArguments, set_up
from hook_layer.core.hook import BaseHook
from hook_layer.core.workers import Workers
from hook_layer.format.known_collections import KNOWN_COLLECTIONS

__all__ = ["ScalarRun"]

_FAST_STEPS: Final = 1000
"""Steps of any speed; later ones have a minimum distance, to bound the number of files."""
_INTERVAL_S: Final = 1.0
"""Minimum time between later steps, seconds."""


class LaunchedRanks(Workers):
    """The ranks of a launcher, by the variables that torchrun and others set."""

    framework = "logged scalars"

    def __init__(self) -> None:
        rank, size = (os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE"))
        is_launched = rank.isdecimal() and size.isdecimal()
        self._rank_and_size = (int(rank), int(size)) if is_launched else (0, 1)

    def rank_and_size(self) -> tuple[int, int]:
        """Return this process's rank, and the number of ranks."""
        return self._rank_and_size


class ScalarRun(BaseHook):
    """Counts the script's steps: one ends when the step changes, or a name is logged again.

    Args:
        out_dir: Folder or URI; None: the one of the configuration.
        configuration: Content of a configuration file; None with `out_dir`.
        interval_s: Minimum time between steps after the first 1,000, seconds.
    """

    _defaults = FrameworkDefaults(
        built_in={
            CollectionKeys.DEFAULT: (),
            CollectionKeys.ALL: (),
            CollectionKeys.LOSSES: (),
            CollectionKeys.METRICS: (KNOWN_COLLECTIONS[CollectionKeys.METRICS],),
        },
        always_saved=(CollectionKeys.METRICS,),
        save_interval=1,
    )

    def __init__(
        self,
        out_dir: str | None,
        configuration: HookConfiguration | None = None,
        *,
        interval_s: float = _INTERVAL_S,
    ) -> None:
        setup = set_up(HookArguments(out_dir), {}, self._defaults, configuration)
        super().__init__(setup, workers=LaunchedRanks())
        self.collector.only_logs_mistakes = True
        self._step: float | None = None
        self._seen: set[str] = set()
        self._began_at = 0.0
        self._interval_s = interval_s

    def log(self, numbers: Mapping[str, float], step: float | None) -> None:
        """Add logged numbers.

        Raises:
            TrainingStoppedError: A stop of this run was requested.
        """
        if not self.is_active:
            return
        is_new = step != self._step or not self._seen.isdisjoint(numbers)
        if (is_new or self.step < 0) and self._may_begin(numbers):
            self.begin_step()
            self._seen.clear()
            self._step, self._began_at = step, time.monotonic()
        self._seen.update(numbers)
        self.logged.add(numbers, step)

    def _may_begin(self, numbers: Mapping[str, float]) -> bool:
        is_early = self.clock.num_steps < _FAST_STEPS
        is_due = time.monotonic() - self._began_at >= self._interval_s
        return is_early or is_due or not all(map(isfinite, numbers.values()))
