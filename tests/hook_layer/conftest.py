from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from hook_layer.current_hook import CurrentHook
from hook_layer.testing.written_trial import WrittenTrial
from tests.configuring_variables import CONFIGURING_VARIABLES

_numbers = itertools.count()


@pytest.fixture
def new_trial() -> Callable[[], WrittenTrial]:
    return lambda: WrittenTrial(f"memory://hook-test-{next(_numbers)}/")


@pytest.fixture
def trial(new_trial: Callable[[], WrittenTrial]) -> WrittenTrial:
    return new_trial()


@pytest.fixture(autouse=True)
def _no_current_hook() -> None:
    """Forget the process's hook of an earlier test: `HookSource` makes no second one."""
    for current in CurrentHook._of_frameworks:
        current.del_hook()


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    temporary = str(tmp_path_factory.mktemp("system"))
    monkeypatch.setattr("tempfile.tempdir", temporary)
    monkeypatch.setenv("TMPDIR", temporary)
    for name in CONFIGURING_VARIABLES:
        monkeypatch.delenv(name, raising=False)
