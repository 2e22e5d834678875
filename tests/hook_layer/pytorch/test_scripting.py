"""`torch.jit.script` of what a script defines, in a process with a hook."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import hook_layer.pytorch as smd
from hook_layer.testing.written_trial import WrittenTrial


def twice(value: float) -> float:
    return value * 2


class Square:
    def __init__(self, side: float) -> None:
        self.side = side

    def doubled(self) -> float:
        return twice(self.side)


def scripted(kind: type) -> Any:
    return torch.jit.script(kind, None, 1)  # with the names of who calls


@pytest.fixture(autouse=True)
def _a_hook(trial: WrittenTrial) -> Iterator[None]:
    hook = smd.Hook(trial.uri)
    hook.register_module(nn.Linear(1, 1))
    yield
    hook.close()


def test_a_class_sees_the_names_of_its_script() -> None:
    assert torch.jit.script(Square) is Square
    assert Square(2.0).doubled() == 4


def test_a_class_sees_the_names_where_its_script_says() -> None:
    def thrice(value: float) -> float:
        return value * 3

    class Cube:
        def __init__(self, side: float) -> None:
            self.side = side

        def tripled(self) -> float:
            return thrice(self.side)

    assert scripted(Cube) is Cube
    assert Cube(2.0).tripled() == 6
