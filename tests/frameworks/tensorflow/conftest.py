from __future__ import annotations

import itertools
import os

import pytest

from hook_layer.testing.written_trial import WrittenTrial

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
_numbers = itertools.count()


@pytest.fixture
def trial() -> WrittenTrial:
    return WrittenTrial(f"memory://sessions-{next(_numbers)}/")


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STEPWATCH_CONFIG", "SMDEBUG_CONFIG_FILE_PATH", "USE_SMDEBUG"):
        monkeypatch.delenv(name, raising=False)
