from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from hook_layer.xgboost import del_hook


@pytest.fixture(autouse=True)
def _no_hook_is_left(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.WARNING, "stepwatch")
    yield
    del_hook()
