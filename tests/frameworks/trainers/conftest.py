from __future__ import annotations

import itertools
import logging

import pytest
import torch

from hook_layer.testing.written_trial import WrittenTrial

torch.set_num_threads(1)
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
_numbers = itertools.count()


@pytest.fixture
def trial() -> WrittenTrial:
    return WrittenTrial(f"memory://trainers-{next(_numbers)}/")


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STEPWATCH_CONFIG", "SMDEBUG_CONFIG_FILE_PATH", "USE_SMDEBUG"):
        monkeypatch.delenv(name, raising=False)
