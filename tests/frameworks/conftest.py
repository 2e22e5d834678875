"""What the sessions of all frameworks have in common; each runs in an environment of its own."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.configuring_variables import CONFIGURING_VARIABLES

if TYPE_CHECKING:
    from hook_layer.testing.written_trial import WrittenTrial

_OPTION = "--contract-results"
_numbers = itertools.count()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(_OPTION, metavar="FILE", help="where to write how adapters keep the contract")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption(_OPTION)
    config.pluginmanager.register(SessionResults(None if path is None else Path(path)))


@pytest.fixture
def trial() -> WrittenTrial:
    """A trial in memory that no other test writes to."""
    from hook_layer.testing.written_trial import WrittenTrial

    return WrittenTrial(f"memory://frameworks-{next(_numbers)}/")


@pytest.fixture(autouse=True)
def no_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no variable of the machine configure a hook."""
    for name in CONFIGURING_VARIABLES:
        monkeypatch.delenv(name, raising=False)


class SessionResults:
    """Counts what ran, and writes down which adapter has which property of the contract."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.num_passed = 0
        self.not_collected: list[str] = []
        self.contract: list[dict[str, str]] = []

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        if not isinstance(item, pytest.Function):
            return
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        name = parameters.get("fact", getattr(item.function, "contract_property", None))
        if name is not None:
            adapter = getattr(item.cls, "adapter", "")
            item.user_properties += [("adapter", adapter), ("property", name)]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self.not_collected.append(f"{report.nodeid}: {_reason(report)}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        is_call = report.when == "call"
        self.num_passed += is_call and report.passed
        if report.passed and not is_call:
            return
        reported = {key: str(value) for key, value in report.user_properties}
        if "property" in reported:
            reason = {"reason": _reason(report)} if report.skipped else {}
            self.contract.append({**reported, "outcome": report.outcome, **reason})

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(json.dumps(self.contract, indent=1))
        is_complete = self.num_passed and not self.not_collected
        if exitstatus == pytest.ExitCode.OK and not is_complete and not _only_collects(session):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for text in self.not_collected:
            terminalreporter.write_line(f"NOT RUN, in an environment that is made for it: {text}")
        if not self.num_passed:
            terminalreporter.write_line("no test has passed")


def _only_collects(session: pytest.Session) -> bool:
    return bool(session.config.option.collectonly)


def _reason(report: pytest.CollectReport | pytest.TestReport) -> str:
    found = report.longrepr
    text = str(found[2]) if isinstance(found, tuple) else str(found)
    return text.removeprefix("Skipped: ")
