"""Why nothing was captured of a command."""

from __future__ import annotations

from pathlib import Path

import pytest

from hook_layer.run.session_log import SessionLog
from rule_runtime.embedded.nothing_captured import NothingCaptured, why_nothing


@pytest.fixture
def notes(tmp_path: Path) -> SessionLog:
    return SessionLog.make(tmp_path / "notes", ["torch", "xgboost"])


def test_it_is_told_why_nothing_was_captured(notes: SessionLog, tmp_path: Path) -> None:
    assert "no Python that it started imported a framework" in why_nothing(notes)
    notes.imported("torch")
    assert "torch was imported, and nothing was trained" in why_nothing(notes)
    failed = "the script failed, with status 1, before a hook saw a training"
    assert why_nothing(notes, 1) == failed
    notes.note_reason("no torch module")
    assert why_nothing(notes) == "no torch module"
    assert notes.begin_run("01RUN", "2026-11-26T00:00:00Z")
    assert "a run began" in why_nothing(notes)
    (tmp_path / "notes" / "lacking").write_text("/a/python")
    assert "/a/python has no stepwatch installed" in why_nothing(notes)


def test_of_xgboost_it_is_told_what_is_watched(notes: SessionLog) -> None:
    notes.imported("torch")
    assert "xgboost" not in why_nothing(notes)
    notes.imported("xgboost")
    reported = why_nothing(notes)
    assert "only `xgboost.train` is watched, also through its scikit-learn interface" in reported
    assert "`xgboost.cv` only with a hook among its callbacks" in reported


def test_frameworks_without_a_hook_are_named(notes: SessionLog) -> None:
    notes.imported("lightgbm")
    assert why_nothing(notes).startswith("LightGBM has no hook: Stepwatch captures PyTorch")
    notes.imported("sklearn")
    notes.imported("torch")
    reported = why_nothing(notes)
    assert reported.startswith("LightGBM and scikit-learn have no hook: ")
    assert "torch was imported, and nothing was trained" in reported


def test_it_is_said_a_minute_after_a_framework_was_imported(notes: SessionLog) -> None:
    said: list[str] = []
    now = 0.0
    early = NothingCaptured(notes, said.append, lambda: now)
    early.look()
    notes.imported("lightgbm")
    now = (notes.imported_at or 0) + 59
    early.look()
    assert not said
    now += 2
    early.look()
    early.look()
    (line,) = said
    assert line.startswith("nothing is captured yet, 60 s after the first import")
    assert "keeps looking: LightGBM has no hook" in line


def test_a_reason_is_said_at_once_and_once(notes: SessionLog) -> None:
    said: list[str] = []
    early = NothingCaptured(notes, said.append)
    notes.imported("torch")
    early.look()
    assert not said
    notes.note_reason("no torch module")
    early.look()
    early.look()
    assert said == ["nothing is captured yet: no torch module"]


def test_nothing_is_said_where_a_training_began(notes: SessionLog) -> None:
    said: list[str] = []
    early = NothingCaptured(notes, said.append, lambda: 1e12)
    notes.imported("torch")
    assert notes.begin_run("01RUN", "2026-11-26T00:00:00Z")
    early.look()
    assert not said
