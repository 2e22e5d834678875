"""The tutorial for Keras."""

from __future__ import annotations

from pathlib import Path

import pytest

from rule_runtime import create_trial
from tests.frameworks.tutorials import example


def test_its_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(example("keras"), {})
    trial = create_trial("runs/keras-1")
    assert trial.tensor_names(collection="gradients")
    assert "loss" in trial.tensor_names(collection="losses")
