"""Imports names of a package on first use."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package whose names are imported on first use.

    Args:
        package: Name of the package.
        homes: Location of each name: `module` for an attribute with the same name,
            `module:attribute` for another name, and `module:` for the module itself.
    """

    def get(name: str) -> Any:
        if name not in homes:
            from hook_layer.errors import nearest  # noqa: PLC0415 - for a mistake only

            hint = "" if name.startswith("_") else f"; {nearest(name, homes)}"
            raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}")
        home, colon, attribute = homes[name].partition(":")
        module = importlib.import_module(home)
        value = module if colon and not attribute else getattr(module, attribute or name)
        setattr(sys.modules[package], name, value)
        return value

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return get, listed
