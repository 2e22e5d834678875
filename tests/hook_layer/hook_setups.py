"""Hooks of a framework that does not exist, made of configuration files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hook_layer.configuration.hook_json import load_hook_configuration
from hook_layer.configuration.hook_setup import FrameworkDefaults, HookArguments, HookSetup, set_up
from hook_layer.format.modes import ModeKeys

DEFAULTS = FrameworkDefaults(
    {"default": (), "all": (), "losses": ("loss",), "gradients": ("^gradient",)}, ("losses",)
)
XGBOOST_LIKE = FrameworkDefaults(
    {"default": (), "all": (), "metrics": ("-",)}, ("metrics",), save_interval=10
)


def make(
    path: Path,
    document: Any,
    *,
    defaults: FrameworkDefaults = DEFAULTS,
    environ: dict[str, str] | None = None,
    is_own: bool = False,
) -> HookSetup:
    path.write_text(json.dumps(document))
    environ = {**(environ or {}), **({"STEPWATCH_CONFIG": str(path)} if is_own else {})}
    configuration = load_hook_configuration(None if is_own else path, environ)
    return set_up(HookArguments(), {}, defaults, configuration, environ)


def with_parameters(path: Path, parameters: Any, collections: Any = None, **more: Any) -> HookSetup:
    document = {"LocalPath": "memory://json", "HookParameters": parameters}
    return make(path, {**document, "CollectionConfigurations": collections}, **more)


def collection(name: str, **parameters: Any) -> dict[str, Any]:
    return {"CollectionName": name, "CollectionParameters": parameters}


def saved(setup: HookSetup, mode: ModeKeys = ModeKeys.TRAIN, num_steps: int = 30) -> dict[str, Any]:
    """Return the steps in which each collection is saved."""
    steps: dict[str, Any] = {}
    for step in range(num_steps):
        for due in setup.manager.due(mode, step):
            steps.setdefault(due.name, []).append(step)
    return steps
