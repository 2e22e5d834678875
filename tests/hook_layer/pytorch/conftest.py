"""What all tests of the hook for PyTorch share; without PyTorch none of them is collected."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

if find_spec("torch") is None:
    collect_ignore_glob = ["*.py"]
else:
    import torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _no_mode_is_left_on() -> Iterator[None]:
    """Check that no mode of functions of torch is left on."""
    before = torch._C._len_torch_function_stack()
    yield
    assert torch._C._len_torch_function_stack() <= before
