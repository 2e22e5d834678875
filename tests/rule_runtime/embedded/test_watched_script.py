from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hook_layer.format.job_file import JobFile
from hook_layer.format.paths import JOB_FILE, STOP_FILE
from hook_layer.storage.base import StorageError
from hook_layer.storage.local import LocalStore
from rule_runtime.embedded import watched_script
from rule_runtime.embedded.live_judge import LiveJudge
from rule_runtime.embedded.stop_policy import StopPolicy
from rule_runtime.embedded.watched_script import watch_process
from rule_runtime.engine.outcome import Outcome, Passed, RuleStatus
from rule_runtime.engine.registry import create_rule
from rule_runtime.engine.rule import Memory, Rule
from rule_runtime.testing import TrialBuilder
from rule_runtime.trial.step_view import StepView


def test_a_process_that_does_not_heed_the_request_gets_a_signal(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    trial = TrialBuilder(store)
    store.put(JOB_FILE, JobFile("job", trial.run or "", "unknown", "").encode())
    trial.step(0, {"gradient/a": [0.0]})
    judge = LiveJudge(
        store,
        [("VanishingGradient", create_rule("VanishingGradient"))],
        stops=StopPolicy(frozenset({"VanishingGradient"})),
    )
    waiting = "import threading; threading.Event().wait()"
    end = watch_process([sys.executable, "-c", waiting], judge, patience_s=0)
    assert end.status == -signal.SIGTERM
    assert judge.stopped_by == "VanishingGradient"


class Throttled(LocalStore):
    """A store that refuses to list for a while."""

    num_refusals = 0

    def list(self, prefix: str = "", after: str | None = None) -> Iterator[str]:
        if self.num_refusals:
            self.num_refusals -= 1
            raise StorageError("please reduce your request rate")
        return super().list(prefix, after)


def test_a_storage_that_fails_for_a_while_ends_no_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = Throttled(tmp_path / "out")
    trial = TrialBuilder(store)
    store.put(JOB_FILE, JobFile("job", trial.run or "", "unknown", "").encode())
    trial.step(0, {"gradient/a": [0.0]})
    store.num_refusals = 2
    judge = LiveJudge(
        store,
        [("VanishingGradient", create_rule("VanishingGradient"))],
        stops=StopPolicy(frozenset({"VanishingGradient"})),
    )
    # It ends by itself once it is asked to: neither a signal nor an error ends it.
    script = (
        "import pathlib, time\n"
        f"request = pathlib.Path({str(tmp_path / 'out' / STOP_FILE)!r})\n"
        "while not request.exists():\n"
        "    time.sleep(0.02)\n"
    )
    end = watch_process([sys.executable, "-c", script], judge, patience_s=30)
    assert end.status == 0
    assert judge.stopped_by == "VanishingGradient"
    assert [record.getMessage() for record in caplog.records] == [
        "the run is not evaluated for now and continues: please reduce your request rate"
    ]


def test_a_storage_that_cannot_be_read_at_the_end_is_reported(tmp_path: Path) -> None:
    store = Throttled(tmp_path / "out")
    TrialBuilder(store).step(0, {"gradient/a": [0.0]})
    store.num_refusals = 1_000_000
    judge = LiveJudge(store, [])
    ended = tmp_path / "ended"
    script = f"import pathlib; pathlib.Path({str(ended)!r}).write_text('')"
    end = watch_process([sys.executable, "-c", script], judge, patience_s=30)
    assert ended.exists()
    assert end.status == 0
    assert "reduce your request rate" in str(end.failure)


def test_who_ends_this_process_ends_the_script_too(tmp_path: Path) -> None:
    judge = LiveJudge(LocalStore(tmp_path / "out"), [])
    ended = tmp_path / "ended"
    script = (
        "import os, pathlib, signal, sys, threading\n"
        f"ended = pathlib.Path({str(ended)!r})\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(ended.write_text('')))\n"
        "os.kill(os.getppid(), signal.SIGTERM)\n"
        "threading.Event().wait()\n"
    )
    before = signal.getsignal(signal.SIGTERM)
    end = watch_process([sys.executable, "-c", script], judge, patience_s=30)
    assert end.passed_on is signal.SIGTERM
    assert ended.exists()
    assert signal.getsignal(signal.SIGTERM) is before


class Terminating(Rule):
    """A rule during whose judging this process is sent SIGTERM."""

    def check(self, step: StepView, memory: Memory) -> Outcome:  # noqa: ARG002
        os.kill(os.getpid(), signal.SIGTERM)
        return Passed()


def test_a_signal_that_comes_while_a_rule_judges_is_no_fault_of_the_rule(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "out")
    trial = TrialBuilder(store)
    store.put(JOB_FILE, JobFile("job", trial.run or "", "unknown", "").encode())
    trial.step(0, {"gradient/a": [1.0]})
    judge = LiveJudge(store, [("Terminating", Terminating())])
    ended = tmp_path / "ended"
    script = (
        "import pathlib, signal, sys, threading\n"
        f"ended = pathlib.Path({str(ended)!r})\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(ended.write_text('')))\n"
        "threading.Event().wait(20)\n"
    )
    end = watch_process([sys.executable, "-c", script], judge, patience_s=30)
    assert end.passed_on is signal.SIGTERM
    assert ended.exists()
    assert judge.states["Terminating"].status is RuleStatus.NO_ISSUES_FOUND


@pytest.fixture
def can_be_interrupted() -> Iterator[None]:
    """Make SIGINT interrupt this process, which whoever runs the tests may have it ignore."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("can_be_interrupted")
@pytest.mark.parametrize("has_terminal", [True, False])
@pytest.mark.parametrize("gets_it_too", [True, False])
def test_a_script_is_interrupted_once_whoever_else_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, gets_it_too: bool, has_terminal: bool
) -> None:
    monkeypatch.setattr(watched_script, "_may_terminal_interrupt_all", lambda: has_terminal)
    if not gets_it_too:
        monkeypatch.setattr(watched_script, "_INTERRUPT_S", 0.1)
    reported = tmp_path / "reported"
    script = (
        "import os, pathlib, signal, threading\n"
        "is_told = threading.Event()\n"
        "def note(*_):\n"
        f"    with open({str(reported)!r}, 'a') as file:\n"
        "        file.write('x')\n"
        "    is_told.set()\n"
        "signal.signal(signal.SIGINT, note)\n"
        f"if {gets_it_too}:\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "os.kill(os.getppid(), signal.SIGINT)\n"
        "while not is_told.wait(0.1):\n"
        "    pass\n"
        "threading.Event().wait(0.3)  # it stores\n"
    )
    judge = LiveJudge(LocalStore(tmp_path / "out"), [])
    end = watch_process([sys.executable, "-c", script], judge, patience_s=0.1)
    assert end.was_interrupted
    assert end.status == 0
    assert reported.read_text() == "x"
