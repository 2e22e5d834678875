"""What a hook does at the end of a process group."""

from __future__ import annotations

import time

import pytest
import torch

if not torch.distributed.is_available():
    pytest.skip("torch has no process groups here", allow_module_level=True)


def test_reductions_end_ahead_of_their_group(monkeypatch: pytest.MonkeyPatch) -> None:
    from hook_layer.pytorch.ranks import let_reductions_end

    done: list[object] = []
    monkeypatch.setattr(torch.distributed, "destroy_process_group", done.append)
    monkeypatch.setattr(time, "sleep", lambda _: done.append("waited"))
    let_reductions_end()
    let_reductions_end()  # the second hook of the process
    torch.distributed.destroy_process_group("a group")
    assert done == ["waited", "a group"]
