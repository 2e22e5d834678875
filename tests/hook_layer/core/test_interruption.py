"""What is stored when a signal interrupts training; `test_termination.py` has real signals."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest

from hook_layer.delivery.spool_folder import SpoolFolder
from hook_layer.storage.base import StoreRefusedError
from hook_layer.testing.written_trial import WrittenTrial
from tests.hook_layer.tiny_hook import TinyHook, W, make_hook


def interrupted(hook: TinyHook) -> TinyHook:
    hook.interruption.note_termination(signal.SIGTERM)
    hook.interruption.store_before_termination()
    return hook


def test_before_the_first_step_nothing_is_stored(trial: WrittenTrial) -> None:
    interrupted(make_hook(trial)).close()
    assert not list(trial.store.list())


def test_a_complete_step_is_stored_and_training_has_not_ended(
    trial: WrittenTrial, caplog: pytest.LogCaptureFixture
) -> None:
    hook = make_hook(trial)
    hook.train(W)
    interrupted(hook)
    assert list(trial.indexes()) == [0]
    assert "SIGTERM ended this process after step 0; all is stored" in caplog.text
    hook.close()
    assert trial.end_marker() is None


def test_an_incomplete_step_is_not_stored(
    trial: WrittenTrial, caplog: pytest.LogCaptureFixture
) -> None:
    hook = make_hook(trial)
    hook.train(W)
    hook.begin_step()
    interrupted(hook)
    assert list(trial.indexes()) == [0]
    assert "SIGTERM interrupted training at step 1" in caplog.text
    hook.close()


def test_without_a_time_limit_nothing_is_handled(trial: WrittenTrial) -> None:
    before = signal.getsignal(signal.SIGTERM)
    hook = make_hook(trial, termination_timeout_s=None)
    hook.train(W)
    assert signal.getsignal(signal.SIGTERM) is before
    interrupted(hook)
    assert not list(trial.indexes())
    hook.close()


@pytest.mark.parametrize("place", ["put_file", "is_empty", "release"])
def test_a_signal_in_the_midst_of_close_ends_the_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture, place: str
) -> None:
    def refuse(key: str, _: object) -> None:
        raise StoreRefusedError(key)

    def interrupt(*arguments: object, **more: object) -> object:
        monkeypatch.setattr(SpoolFolder, place, original)
        interrupted(hook)
        return original(*arguments, **more)

    trial, original = WrittenTrial(str(tmp_path / "trial")), getattr(SpoolFolder, place)
    monkeypatch.setattr(trial.store, "put", refuse)
    hook = make_hook(trial, spool_dir=str(tmp_path))
    hook.train(W)
    hook.train(W)
    assert not hook.flush()
    monkeypatch.setattr(SpoolFolder, place, interrupt)
    closing = threading.Thread(target=hook.close, daemon=True)  # waited for its own lock for ever
    closing.start()
    closing.join(hook.session.options.termination_timeout_s)
    assert not closing.is_alive()
    assert "ended this process after step 1; not all could be stored" in caplog.text
