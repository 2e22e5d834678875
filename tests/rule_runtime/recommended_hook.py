"""The hook configuration of the recommended pack."""

from __future__ import annotations

import json
from pathlib import Path

from rule_runtime.configuration.packs import PACKS

__all__ = ["hook_file"]


def hook_file(folder: Path) -> Path:
    """Write a configuration that saves what the recommended pack requires into `folder/run`."""
    collections = [config.to_json() for config in PACKS["recommended"].collections()]
    configuration = {"LocalPath": str(folder / "run"), "CollectionConfigurations": collections}
    file = folder / "hook.json"
    file.write_text(json.dumps(configuration))
    return file
