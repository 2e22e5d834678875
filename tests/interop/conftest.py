"""Fixtures that run this folder's scripts with the original client and with ours."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.comparison import EQUAL_VALUES
from tests.interop.dump_trial import dump
from tests.interop.environment import SMDEBUG_PYTHON, SmdebugReader, run_scripts


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many values the readers of both clients found equal, by the hook that wrote."""
    for what, number in sorted(EQUAL_VALUES.items()):
        terminalreporter.write_line(f"{number:5} values equal for both readers: {what}")


@pytest.fixture(scope="session")
def run_smdebug() -> Callable[..., str]:
    """Run a script of this folder with the original client, and return what it prints."""
    return lambda script, *arguments: run_scripts((SMDEBUG_PYTHON, script, *arguments))[0]


@pytest.fixture(scope="session")
def seen_by_smdebug() -> Iterator[Callable[[Path], dict[str, Any]]]:
    """Return what the original's reader says of a trial."""
    reader = SmdebugReader()
    yield reader.seen
    reader.close()


@pytest.fixture(scope="session")
def seen_by_us() -> Callable[[Path], dict[str, Any]]:
    """Return what our reader says of a trial, to the same script."""

    def seen(path: Path) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(json.dumps(dump("rule_runtime", str(path))))
        return content

    return seen
