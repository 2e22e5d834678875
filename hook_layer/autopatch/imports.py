"""Calling something when a module has been imported, anyone who imports it.

Each Python that is prepared imports this when it starts, before the script: so it imports nothing
itself. What it would import could not be found in the script's folder any more.
"""

from __future__ import annotations

import sys

from hook_layer.process.tracebacks import hide_frame

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

__all__ = ["call_after_import"]


def call_after_import(name: str, callback: Callable[[], None]) -> None:
    """Call something once a module has been imported: at once if it has been already.

    The callback must not raise.
    """
    module = sys.modules.get(name)
    if module is not None and not getattr(module.__spec__, "_initializing", False):
        callback()
        return
    sys.meta_path.insert(0, _Finder(name, callback))


class _Finder:
    """Finds one module as the other finders do, with a loader that calls back."""

    def __init__(self, name: str, callback: Callable[[], None]) -> None:
        self._name = name
        self._callback = callback
        self._is_asking = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the specification of the module, by which its import calls back."""
        # Another finder of this kind asks all the others, this one among them.
        if fullname != self._name or self._is_asking:
            return None
        self._is_asking = True
        try:
            spec = self._found_by_others(fullname, path, target)
        except BaseException as error:
            hide_frame(error)
            raise
        finally:
            self._is_asking = False
        if spec is not None and spec.loader is not None:
            spec.loader = _CallingLoader(spec.loader, self._loaded)  # type: ignore[assignment]
        return spec

    def _found_by_others(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        for finder in list(sys.meta_path):
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if find is None else find(fullname, path, target)
            if spec is not None:
                return spec
        return None

    def _loaded(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            self._callback()


class _CallingLoader:
    """A loader that calls back when its module has been executed, and takes itself out again."""

    def __init__(self, loader: Any, loaded: Callable[[], None]) -> None:
        self._loader = loader
        self._loaded = loaded

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Return what the loader creates."""
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module, and call back."""
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        try:
            self._loader.exec_module(module)
        except BaseException as error:
            hide_frame(error)
            raise
        self._loaded()
