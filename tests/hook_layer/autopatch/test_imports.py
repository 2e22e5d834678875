"""Callbacks behind imports, with finders as other tools have them."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from hook_layer.autopatch.imports import call_after_import

PACKAGE = "imported_by_a_test"


@pytest.fixture(autouse=True)
def _package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / f"{PACKAGE}.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    yield
    sys.modules.pop(PACKAGE, None)


class AskingFinder(MetaPathFinder):
    """Asks for the specification from the beginning, as wrapt and those like it do."""

    is_asking = False

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        if fullname != PACKAGE or self.is_asking:
            return None
        self.is_asking = True
        try:
            return importlib.util.find_spec(fullname)
        finally:
            self.is_asking = False


@pytest.mark.parametrize("order", ["first", "last"])
def test_finders_of_other_tools_are_asked(order: str) -> None:
    called: list[str] = []
    if order == "first":
        sys.meta_path.insert(0, AskingFinder())
    call_after_import(PACKAGE, lambda: called.append("a"))
    if order == "last":
        sys.meta_path.insert(0, AskingFinder())
    assert importlib.import_module(PACKAGE).value == 1
    assert called == ["a"]


def test_two_may_wait_for_one_package() -> None:
    called: list[str] = []
    call_after_import(PACKAGE, lambda: called.append("a"))
    call_after_import(PACKAGE, lambda: called.append("b"))
    assert importlib.import_module(PACKAGE).value == 1
    assert sorted(called) == ["a", "b"]
    importlib.reload(sys.modules[PACKAGE])
    assert len(called) == 2


def test_a_package_that_is_looked_for_and_not_imported_calls_nobody() -> None:
    called: list[str] = []
    call_after_import(PACKAGE, lambda: called.append("a"))
    assert importlib.util.find_spec(PACKAGE) is not None
    assert not called
    call_after_import("there_is_no_such_package", lambda: called.append("b"))
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("there_is_no_such_package")
    assert not called
