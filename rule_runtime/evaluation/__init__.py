"""Former names of modules for custom rules; the modules are in `rule_runtime.engine` now."""

from __future__ import annotations

import importlib
import sys
from typing import Final

__all__: list[str] = []

_MOVED: Final = {
    "engine": ("constraints", "evidence", "outcome", "parameters", "registry", "rule", "state"),
    "facts": ("selection",),
}

for _package, _names in _MOVED.items():
    for _name in _names:
        _module = importlib.import_module(f"rule_runtime.{_package}.{_name}")
        sys.modules[f"{__name__}.{_name}"] = globals()[_name] = _module
