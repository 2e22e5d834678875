"""What holds behind every test of the hook for PyTorch."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


def _num_modes() -> int:
    torch = sys.modules.get("torch")
    return 0 if torch is None else int(torch._C._len_torch_function_stack())


@pytest.fixture(autouse=True)
def _no_mode_is_left_on() -> Iterator[None]:
    """See to it that functions of torch are looked at by nobody any more."""
    before = _num_modes()
    yield
    assert _num_modes() <= before
