"""Modules under the original's names, whose names are looked up when they are used."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Collection, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from rule_runtime.smdebug_alias.names import FRAMEWORKS, INTERNAL, MODULES, Home

__all__ = ["AliasFinder", "AliasLoader"]


class AliasFinder(MetaPathFinder):
    """Finds the modules of `names.py`.

    Args:
        roots: The packages that it is asked for.
    """

    def __init__(self, roots: Collection[str]) -> None:
        self._roots = frozenset(roots)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the specification of a module; None for modules of other packages.

        Raises:
            ModuleNotFoundError: If the original may have the module and we have not.
        """
        del path, target
        if fullname.partition(".")[0] not in self._roots:
            return None
        if fullname in MODULES:
            is_package = any(name.startswith(f"{fullname}.") for name in MODULES)
            return ModuleSpec(fullname, AliasLoader(), is_package=is_package)
        raise ModuleNotFoundError(
            f"Stepwatch stands in for smdebug here, and has no {fullname}{_why(fullname)}",
            name=fullname,
        )


class AliasLoader(Loader):
    """Makes a module of the original's name."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module, whose names are not looked up yet."""
        return _AliasModule(spec.name, f"Stepwatch's stand-in for {spec.name}.")

    def exec_module(self, module: ModuleType) -> None:
        """Note which names `from ... import *` means."""
        names = MODULES[module.__name__]
        public = [name for name in names if not name.startswith("_")]
        vars(module)["__all__"] = sorted(public)


class _AliasModule(ModuleType):
    """A module whose names are looked up when they are used."""

    def __getattr__(self, name: str) -> Any:
        alias = f"{self.__name__}.{name}"
        home = MODULES[self.__name__].get(name)
        if home is not None:
            value = _value(alias, home)
            vars(self)[name] = value
            return value
        if alias in MODULES:
            return importlib.import_module(alias)
        if name in INTERNAL.get(self.__name__, ()):
            raise ImportError(
                f"{alias} is an internal part of the original client that Stepwatch does not have; "
                "hook_layer.format reads and writes its files"
            )
        raise AttributeError(f"module {self.__name__!r} (of Stepwatch) has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        return sorted({*vars(self), *MODULES[self.__name__]})


def _value(alias: str, home: Home) -> Any:
    if home.framework:
        _require(alias, home)
    return getattr(importlib.import_module(home.module), home.attribute)


def _require(alias: str, home: Home) -> None:
    """Refuse a name whose framework is not there, and say what to install."""
    framework = FRAMEWORKS[home.framework]
    if not _can_be_imported(home.module):
        raise ImportError(f"{alias}: this version of Stepwatch has no hook for {framework.title}")
    if not _can_be_imported(home.framework):
        raise ImportError(
            f"{alias} needs {framework.title}, which is not installed: {framework.remedy}"
        )


def _can_be_imported(name: str) -> bool:
    if name in sys.modules:
        return sys.modules[name] is not None
    return importlib.util.find_spec(name) is not None


def _why(fullname: str) -> str:
    if fullname.startswith("smdebug.profiler"):
        return ": profiling is no part of it"
    parent, _, name = fullname.rpartition(".")
    siblings = [other for other in MODULES if other.rpartition(".")[0] == parent]
    return f" beside {', '.join(sorted(siblings))}" if name and siblings else ""
