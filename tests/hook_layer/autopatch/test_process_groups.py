from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from hook_layer.autopatch.process_groups import is_one_of_several


def group(size: int, *, is_initialized: bool = True) -> Any:
    return SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: is_initialized,
        get_world_size=lambda: size,
    )


@pytest.fixture(autouse=True)
def _no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch.distributed", "xgboost.collective", "jax"):
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.mark.parametrize(
    ("environ", "is_one"),
    [
        ({}, False),
        ({"WORLD_SIZE": "1"}, False),
        ({"WORLD_SIZE": "many"}, False),
        ({"WORLD_SIZE": "2"}, True),
        ({"OMPI_COMM_WORLD_SIZE": "4"}, True),
        ({"TF_CONFIG": '{"cluster": {}}'}, True),
    ],
)
def test_a_launcher_tells_it(environ: dict[str, str], is_one: bool) -> None:
    assert is_one_of_several(environ) is is_one


@pytest.mark.parametrize("name", ["torch.distributed", "xgboost.collective"])
def test_a_group_tells_it(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(sys.modules, name, group(1))
    assert not is_one_of_several({})
    monkeypatch.setitem(sys.modules, name, group(2))
    assert is_one_of_several({})


def test_a_group_of_jax_tells_it(monkeypatch: pytest.MonkeyPatch) -> None:
    jax = SimpleNamespace(distributed=group(0), process_count=lambda: 2)
    monkeypatch.setitem(sys.modules, "jax", jax)
    assert is_one_of_several({})
    jax.distributed = group(0, is_initialized=False)
    assert not is_one_of_several({})
    jax.distributed = SimpleNamespace()  # as older ones have it
    assert not is_one_of_several({})


def test_what_cannot_be_asked_is_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.distributed", SimpleNamespace())
    assert not is_one_of_several({})
