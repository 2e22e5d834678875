"""The sessions that run the adapters' tests: nothing is left out, and nothing passes unrun."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hook_layer.testing.hook_contract import PROPERTIES
from tools import test_environments as sessions
from tools.contract_table import Entry, document, mistakes, read

ROOT = Path(__file__).resolve().parents[2]
CONFTEST = ROOT / "tests" / "frameworks" / "conftest.py"


def test_every_test_of_an_adapter_belongs_to_a_session(tmp_path: Path) -> None:
    assert sessions.without_session(ROOT) == []
    adapter, marked, plain = "frameworks/caffe/test_nets.py", "e2e/test_it.py", "e2e/test_other.py"
    for path in (adapter, marked, plain):
        (tmp_path / "tests" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tests" / path).touch()
    (tmp_path / "tests" / marked).write_text(f"pytestmark = pytest.mark.{sessions.MARKER}\n")
    assert sessions.without_session(tmp_path) == [f"tests/{marked}", f"tests/{adapter}"]


@pytest.mark.parametrize("said", ["", "3 skipped in 0.1s", "3 deselected in 0.1s"])
def test_a_session_without_a_test_that_passes_fails(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\necho '{said}'\n")
    python.chmod(0o755)
    session = sessions.Session("one", "dev", ("e2e",))
    command = session.command(tmp_path)
    monkeypatch.setattr(sessions, "OUTPUT", tmp_path)
    monkeypatch.setattr(sessions.Session, "command", lambda _: command)
    assert sessions.run(session) == ("one", False)
    python.write_text("#!/bin/sh\necho '1 passed in 0.1s'\n")
    assert sessions.run(session) == ("one", True)


def test_a_session_begins_beside_another_one_only_while_a_core_is_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    idle_cores, both = iter([0.0, 0.4, 1.0]), threading.Barrier(2, timeout=60)

    def run(session: sessions.Session) -> tuple[str, bool]:
        both.wait()
        return session.name, True

    monkeypatch.setattr(sessions, "run", run)
    turns = sessions.Turns(lambda: next(idle_cores))
    with ThreadPoolExecutor(2) as pool:
        assert all(is_good for _, is_good in pool.map(turns.run, sessions.SESSIONS[:2]))
    assert next(idle_cores, None) is None


@pytest.mark.parametrize(
    ("test", "said"),
    [
        ("", "no tests ran"),
        ("import pytest\ndef test_a(): pytest.skip('no')", "no test has passed"),
        (
            "import pytest\npytest.importorskip('nothing_of_this_name')\ndef test_a(): pass",
            "NOT RUN, in an environment that is made for it",
        ),
        ("def test_a(): assert False", "1 failed"),
    ],
)
def test_pytest_fails_where_no_test_of_an_adapter_passes(
    tmp_path: Path, test: str, said: str
) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST.read_text())
    (tmp_path / "test_it.py").write_text(test)
    (tmp_path / "pytest.ini").write_text("[pytest]")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode != 0
    assert said in done.stdout


def entry(name: str, outcome: str = "passed", reason: str = "") -> Entry:
    return Entry("One", name, outcome, reason)


def test_the_table_tells_what_an_adapter_has_and_why_it_lacks_something() -> None:
    entries = [entry(name) for name in PROPERTIES]
    entries += [Entry("two", name, "passed") for name in PROPERTIES[1:]]
    entries += [Entry("two", PROPERTIES[0], "skipped", "there are none")]
    assert mistakes(entries) == []
    lines = document(entries).splitlines()
    assert lines[0] == "| | One | two |"
    assert lines[2] == f"| {PROPERTIES[0]} | yes | no (1) |"
    assert lines[3] == f"| {PROPERTIES[1]} | yes | yes |"
    assert lines[-1] == "1. there are none"


def test_a_failure_and_a_property_without_a_test_keep_the_table_from_being_written() -> None:
    entries = [entry(name) for name in PROPERTIES[1:]] + [entry(PROPERTIES[1], "failed")]
    assert mistakes(entries) == [
        f"One: {PROPERTIES[1]} fails",
        f"One: no test of {PROPERTIES[0]!r} has run",
    ]


def test_results_are_read_from_several_files(tmp_path: Path) -> None:
    files = []
    for adapter in ("One", "Two"):
        found = {"adapter": adapter, "property": "names", "outcome": "passed"}
        files.append(tmp_path / f"{adapter}.json")
        files[-1].write_text(json.dumps([found]))
    assert read(files) == [Entry("One", "names", "passed"), Entry("Two", "names", "passed")]
