"""Imports modules under the original's names, and resolves their names lazily."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Collection, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from hook_layer.frameworks import FRAMEWORKS
from hook_layer.install_hint import install_hint
from rule_runtime.smdebug_alias.names import INTERNAL, MODULES

__all__ = ["AliasFinder", "AliasLoader"]


class AliasFinder(MetaPathFinder):
    """Finds the modules of `names.py`."""

    def __init__(self, roots: Collection[str]) -> None:
        self._roots = frozenset(roots)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the specification of a module; None for modules of other packages.

        Raises:
            ModuleNotFoundError: If the original may have the module and Stepwatch does not.
            ImportError: If the module's framework is not installed.
        """
        del path, target
        if fullname.partition(".")[0] not in self._roots:
            return None
        if fullname in MODULES:
            # Must be a package, because Python searches missing names in its submodules.
            return ModuleSpec(fullname, AliasLoader(), is_package=True)
        missing = _what_is_missing(*fullname.rpartition(".")[::2])
        if missing:
            raise ImportError(missing, name=fullname)
        raise ModuleNotFoundError(
            f"Stepwatch replaces smdebug here, and has no {fullname}{_why(fullname)}",
            name=fullname,
        )


class AliasLoader(Loader):
    """Creates a module with the original's name."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module without resolved names."""
        return _AliasModule(spec.name, f"Stepwatch's stand-in for {spec.name}.")

    def exec_module(self, module: ModuleType) -> None:
        """Set the names for `from ... import *`."""
        vars(module)["__all__"] = [
            name
            for name in sorted(MODULES[module.__name__])
            if not name.startswith("_") and not _what_is_missing(module.__name__, name)
        ]


class _AliasModule(ModuleType):
    """A module that resolves names on use."""

    def __getattr__(self, name: str) -> Any:
        missing = _what_is_missing(self.__name__, name)
        if missing:
            raise AttributeError(missing, name=name, obj=self)
        home = MODULES[self.__name__].get(name)
        if home is not None:
            value = vars(self)[name] = getattr(importlib.import_module(home.module), home.attribute)
            return value
        alias = f"{self.__name__}.{name}"
        if alias in MODULES:
            return importlib.import_module(alias)
        raise AttributeError(f"module {self.__name__!r} (of Stepwatch) has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        return sorted({*vars(self), *MODULES[self.__name__]})


def _what_is_missing(module: str, name: str) -> str:
    """Return why an original's name cannot be used here; empty if it can."""
    if name in INTERNAL.get(module, ()):
        return (
            f"{module}.{name} is an internal part of the original client that Stepwatch does not "
            "have; hook_layer.format reads and writes its files"
        )
    home = MODULES.get(module, {}).get(name)
    if home is None or not home.framework:
        return ""
    framework = next(each for each in FRAMEWORKS if each.extra == home.framework)
    if not _can_be_imported(home.module):
        return f"{module}.{name}: this version of Stepwatch has no hook for {framework.requires}"
    if not _can_be_imported(home.framework):
        remedy = install_hint(framework.extra)
        return f"{module}.{name} needs {framework.requires}, which is not installed: {remedy}"
    return ""


def _can_be_imported(name: str) -> bool:
    if name in sys.modules:
        return sys.modules[name] is not None
    return importlib.util.find_spec(name) is not None


def _why(fullname: str) -> str:
    if fullname.startswith("smdebug.profiler"):
        return ": it does not include profiling"
    parent, _, name = fullname.rpartition(".")
    siblings = [other for other in MODULES if other.rpartition(".")[0] == parent]
    return f" beside {', '.join(sorted(siblings))}" if name and siblings else ""
