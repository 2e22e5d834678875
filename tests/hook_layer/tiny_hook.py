"""A hook without a framework: an adapter of a few lines takes the place of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hook_layer.capture.reductions import ReductionConfig
from hook_layer.configuration.collection_manager import CollectionManager
from hook_layer.configuration.collections import Collection
from hook_layer.configuration.hook_options import HookOptions
from hook_layer.configuration.hook_setup import HookSetup
from hook_layer.configuration.job import CheckpointConfig, HookTargets, JobEnvironment
from hook_layer.configuration.save_config import SaveConfig
from hook_layer.core.hook import BaseHook
from hook_layer.core.workers import Workers
from hook_layer.testing.written_trial import WrittenTrial
from tests.hook_layer.fixed_workers import FixedWorkers

EVERY_STEP = SaveConfig(save_interval=1)


class TinyHook(BaseHook):
    """Takes the tensors of a step from the test."""

    def train(self, tensors: Mapping[str, Any]) -> None:
        self.begin_step()
        self.recorder.capture(self.collector.planned(tensors))
        self.recorder.step_is_captured()


def make_hook(
    trial: WrittenTrial,
    *collections: Collection,
    save_config: SaveConfig = EVERY_STEP,
    size: int = 1,
    workers: Workers | None = None,
    checkpoint: CheckpointConfig | None = None,
    job: JobEnvironment | None = None,
    **options: Any,
) -> TinyHook:
    made = {c.name: c for c in (Collection("mine", ["w"]), Collection("default"), *collections)}
    manager = CollectionManager(
        made,
        set(made),
        save_config,
        ReductionConfig(save_raw_tensor=True),
        built_in=frozenset(("default",)),
    )
    return TinyHook(
        HookSetup(
            HookTargets(trial.store, checkpoint=checkpoint),
            manager,
            HookOptions(**options),
            job=job,
            include_workers="all" if size > 1 else "one",
        ),
        workers=workers or FixedWorkers(0, size),
    )


W = {"w": np.ones(2, "f4")}
