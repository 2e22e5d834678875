"""SIGTERM: with real processes, which end as they would without a hook."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hook_layer.resuming.checkpoint_state import STATE_FILE, parse_states
from hook_layer.testing.written_trial import WrittenTrial

ROOT = Path(__file__).parents[3]
SCRIPT = """
import os, signal, sys, time
from pathlib import Path
sys.path.insert(0, {root!r})
import numpy as np
from hook_layer.configuration.job import CheckpointConfig
from hook_layer.testing.written_trial import WrittenTrial
from tests.hook_layer.tiny_hook import W, make_hook

out_dir, folder = sys.argv[1:]
hook = make_hook(WrittenTrial(out_dir), checkpoint=CheckpointConfig(Path(folder)), {options})

def terminate(number=signal.SIGTERM):
    os.kill(os.getpid(), number)

{before}
for step in range(5):
    hook.train(W)
    if step == 3:
        (Path(folder) / "3.pt").write_text("a checkpoint")
        {at_step_3}
{after}
"""


def run(tmp_path: Path, **parts: str) -> tuple[subprocess.CompletedProcess[str], WrittenTrial]:
    """Run the script with these parts, and return how it ended and what it left."""
    (tmp_path / "checkpoints").mkdir()
    named = {"options": "", "before": "", "at_step_3": "pass", "after": "", **parts}
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            SCRIPT.format(root=str(ROOT), **named),
            tmp_path / "trial",
            tmp_path / "checkpoints",
        ],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done, WrittenTrial(str(tmp_path / "trial"))


def last_step(tmp_path: Path) -> int:
    data = (tmp_path / "checkpoints" / STATE_FILE).read_bytes()
    return parse_states(data, file=STATE_FILE)[-1].step


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_everything_is_stored_and_the_process_ends_by_the_signal(
    tmp_path: Path, number: signal.Signals
) -> None:
    done, trial = run(tmp_path, at_step_3=f"terminate(signal.{number.name})")
    assert done.returncode == -number
    assert list(trial.indexes()) == [0, 1, 2, 3]
    assert trial.end_marker() is None
    assert last_step(tmp_path) == 3
    assert f"{number.name} ended this process after step 3; all is stored" in done.stderr


def test_an_open_step_is_reported(tmp_path: Path) -> None:
    before = "hook.recorder.step_is_captured = lambda: None"
    done, _ = run(tmp_path, before=before, at_step_3="terminate()")
    assert "SIGTERM interrupted training at step 3; all is stored" in done.stderr


def test_an_open_step_is_stored_if_it_is_complete(tmp_path: Path) -> None:
    # A scalar behind each step keeps steps open until the next begins.
    late = "hook.save_scalar('late', step); terminate()"
    done, trial = run(tmp_path, before="hook.train(W); hook.save_scalar('late', 0)", at_step_3=late)
    assert done.returncode == -signal.SIGTERM
    assert list(trial.indexes()) == [0, 1, 2, 3, 4]
    assert trial.names(4) == {"w", "scalar/late"}
    assert last_step(tmp_path) == 4


HANDLER = """
def handler(number, frame):
    assert number == signal.SIGTERM
    {action}
signal.signal(signal.SIGTERM, handler)
"""


@pytest.mark.parametrize(
    ("action", "after", "return_code", "steps"),
    [
        ("print('mine')", "", 0, 5),
        ("print('mine')", "hook.close()", 0, 5),
        ("print('mine'); sys.exit(3)", "", 3, 4),
        ("print('mine'); raise KeyboardInterrupt", "", -signal.SIGINT, 4),
        ("print('mine'); os._exit(4)", "", 4, 4),
    ],
)
def test_the_scripts_own_handler_decides(
    tmp_path: Path, action: str, after: str, return_code: int, steps: int
) -> None:
    done, trial = run(
        tmp_path,
        before=HANDLER.format(action=action),
        at_step_3="hook.flush(); terminate()",
        after=after,
    )
    assert done.returncode == return_code
    assert done.stdout in ("mine\n", "" if return_code == 4 else None)
    assert len(trial.indexes()) == steps
    assert trial.end_marker() is None
    if return_code != 4:
        assert last_step(tmp_path) == 3


def test_a_signal_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    before = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    done, trial = run(tmp_path, before=before, at_step_3="terminate()")
    assert done.returncode == 0
    assert len(trial.indexes()) == 5
    assert trial.end_marker() is not None


def test_a_hook_may_ignore_the_signal(tmp_path: Path) -> None:
    done, trial = run(
        tmp_path,
        options="termination_timeout_s=None",
        at_step_3="assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL; terminate()",
    )
    assert done.returncode == -signal.SIGTERM
    assert "SIGTERM" not in done.stderr
    assert trial.end_marker() is None


def test_a_store_that_hangs_delays_the_end_no_longer_than_the_options_say(tmp_path: Path) -> None:
    done, _ = run(
        tmp_path,
        options="termination_timeout_s=0.3",
        before="hook.session.store.put = lambda *_: time.sleep(60)",
        at_step_3="terminate()",
    )
    assert done.returncode == -signal.SIGTERM
    assert "not all could be stored in 0.3 s" in done.stderr
    assert last_step(tmp_path) == 3


def test_a_close_that_is_under_way_is_not_waited_for_from_within(tmp_path: Path) -> None:
    # As happens when the signal arrives while the thread that stores is joined.
    after = """
writer = hook.session.trial.writer
close = writer.close
def interrupted(timeout_s):
    close(timeout_s)
    writer.close = lambda timeout_s: time.sleep(timeout_s)
    terminate()
writer.close = interrupted
hook.close()
"""
    started = time.monotonic()
    done, trial = run(tmp_path, after=after)
    assert done.returncode == -signal.SIGTERM
    assert "SIGTERM ended this process after step 4; all is stored" in done.stderr
    assert len(trial.indexes()) == 5
    assert time.monotonic() - started < 15


def test_a_second_signal_ends_the_process_at_once(tmp_path: Path) -> None:
    done, _ = run(
        tmp_path,
        before="hook.session.store.put = lambda *_: (time.sleep(0.2), terminate(), time.sleep(60))",
        at_step_3="terminate()",
    )
    assert done.returncode == -signal.SIGTERM


def test_forked_children_end_as_they_would_without_a_hook(tmp_path: Path) -> None:
    fork = """
child = os.fork()
if not child:
    print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, flush=True)
    terminate()
assert os.waitpid(child, 0)[1] == signal.SIGTERM"""
    done, trial = run(tmp_path, after=fork)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
    assert trial.end_marker() is not None


def test_the_handler_is_there_as_long_as_a_hook_trains(tmp_path: Path) -> None:
    # In a process of its own: hooks of other tests may hold the handler of this one.
    before = """
assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
second = make_hook(WrittenTrial(out_dir + "-second"))
assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
second.train(W)
installed = signal.getsignal(signal.SIGTERM)
assert installed is not signal.SIG_DFL"""
    after = """
second.close()
assert signal.getsignal(signal.SIGTERM) is installed
hook.close()
assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL"""
    done, trial = run(tmp_path, before=before, after=after)
    assert done.returncode == 0, done.stderr
    assert trial.end_marker() is not None


# A main thread that is stuck ---------------------------------------------------------------------

SHORT_GRACE = "import hook_layer.process.termination; hook_layer.process.termination._GRACE_S = 0.2"
STUCK = """import ctypes, threading
        mutex = ctypes.create_string_buffer(64)
        threading.Timer(0.1, terminate).start()
        lock = ctypes.CDLL(None).pthread_mutex_lock
        lock(mutex)
        {held}lock(mutex)"""


@pytest.mark.parametrize("held", ["", "hook.recorder.lock.acquire(); "])
def test_a_main_thread_inside_a_library_does_not_keep_the_process_alive(
    tmp_path: Path, held: str
) -> None:
    done, trial = run(
        tmp_path,
        before=SHORT_GRACE,
        options="termination_timeout_s=1",
        at_step_3=STUCK.format(held=held),
    )
    assert done.returncode == -signal.SIGTERM
    assert list(trial.indexes()) == [0, 1, 2, 3]
    assert trial.end_marker() is None
    assert last_step(tmp_path) == 3


def test_a_main_thread_that_comes_back_waits_for_what_is_being_stored(tmp_path: Path) -> None:
    slow = """
put = hook.session.store.put
hook.session.store.put = lambda key, data: (time.sleep(0.3), put(key, data))"""
    comes_back = "threading.Timer(0.7, ctypes.CDLL(None).pthread_mutex_unlock, [mutex]).start(); "
    done, trial = run(tmp_path, before=SHORT_GRACE + slow, at_step_3=STUCK.format(held=comes_back))
    assert done.returncode == -signal.SIGTERM
    assert list(trial.indexes()) == [0, 1, 2, 3]


def test_a_signal_for_a_child_that_shares_the_pipe_is_none_for_this_process(
    tmp_path: Path,
) -> None:
    # The child begins to train, so to say, before it closes what it shares.
    write = """
        from hook_layer.process.termination import HANDLERS
        os.write(HANDLERS[0]._watch._writer, bytes([signal.SIGTERM]))
        deadline = time.monotonic() + 0.5
        while time.monotonic() < deadline:
            pass"""
    done, trial = run(tmp_path, before=SHORT_GRACE, at_step_3=write)
    assert done.returncode == 0, done.stderr
    assert trial.end_marker() is not None


def test_a_handler_that_was_installed_later_is_not_overruled(tmp_path: Path) -> None:
    later = "signal.signal(signal.SIGTERM, print); threading.Timer(1, os._exit, [6]).start(); "
    done, _ = run(tmp_path, before=SHORT_GRACE, at_step_3=STUCK.format(held=later))
    assert done.returncode == 6


def test_the_end_of_a_training_that_ended_is_marked(tmp_path: Path) -> None:
    # The signal comes while close waits for the store.
    slow = """
put = hook.session.store.put
def put_slowly(key, data):
    if key.startswith("index/000000000/000000000004"):
        terminate()
        time.sleep(0.2)
    put(key, data)
hook.session.store.put = put_slowly"""
    done, trial = run(tmp_path, before=slow, after="hook.close()")
    assert done.returncode == -signal.SIGTERM
    assert list(trial.indexes()) == [0, 1, 2, 3, 4]
    assert trial.end_marker() is not None
