"""Writes the configuration of a hook: the collections that the rules of a pack need."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from benchmarks.detection.program import Run
from rule_runtime.configuration.packs import find_pack

__all__ = ["hook_configuration"]


def hook_configuration(run: Run, save_interval: int) -> Path:
    """Write the configuration of a run's hook, and return its path.

    Args:
        run: The run; its pack chooses the collections.
        save_interval: Steps between two saved steps. Where the pack saves activations at a multiple
            of its own interval, they are saved at the same multiple of this one.
    """
    pack = find_pack(run.pack)
    rarer = pack.activations_interval and pack.activations_interval // (pack.save_interval or 1)
    pack = replace(
        pack, save_interval=save_interval, activations_interval=rarer and rarer * save_interval
    )
    document = {
        "LocalPath": str(run.folder),
        "HookParameters": {
            "save_interval": str(save_interval),
            "stop": "flag",
            "termination_timeout_s": None,
        },
        "CollectionConfigurations": [config.to_json() for config in pack.collections()],
    }
    path = run.folder.with_name("hook.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1))
    return path
