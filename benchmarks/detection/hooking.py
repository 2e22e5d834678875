"""How hooks are configured: as a job is, by the file that follows from the rules of a pack."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from benchmarks.detection.program import Run
from rule_runtime.configuration.packs import find_pack

__all__ = ["hook_configuration"]


def hook_configuration(run: Run, save_interval: int) -> Path:
    """Write the file that configures a run's hook, and return where it is.

    Args:
        run: The run; its pack says what is saved.
        save_interval: Steps between two that are saved. Where the pack saves activations more
            rarely, they are saved as many times more rarely here.
    """
    pack = find_pack(run.pack)
    rarer = pack.activations_interval and pack.activations_interval // (pack.save_interval or 1)
    pack = replace(
        pack,
        save_interval=save_interval,
        activations_interval=rarer and rarer * save_interval,
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
