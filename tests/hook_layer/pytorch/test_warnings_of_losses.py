"""Warnings of loss functions are those of a training without a hook: they name the same line."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

import hook_layer.pytorch as smd
from hook_layer.testing.written_trial import WrittenTrial
from tests.hook_layer.pytorch.functional_steps import NUMBERS, X, make_hook, make_net

OTHER_SIZE = torch.zeros(3)
WARNING = {
    "mse_loss": lambda: F.mse_loss(X, OTHER_SIZE),
    "l1_loss": lambda: F.l1_loss(X, OTHER_SIZE),
    "huber_loss": lambda: F.huber_loss(X, OTHER_SIZE),
    "smooth_l1_loss": lambda: F.smooth_l1_loss(X, OTHER_SIZE),
    "by keyword": lambda: F.mse_loss(input=X, target=OTHER_SIZE),
    "of another class": lambda: F.mse_loss(X.as_subclass(Other), OTHER_SIZE),
    "a module": lambda: nn.MSELoss()(X, OTHER_SIZE),
    "by itself": lambda: F.kl_div(X, NUMBERS),
    "of an outdated argument": lambda: F.mse_loss(X, NUMBERS, size_average=True),
}

Location = tuple[str, int, str]


class Other(torch.Tensor):
    """A tensor whose calls go through `__torch_function__`."""


@pytest.fixture
def hook(trial: WrittenTrial) -> Iterator[smd.Hook]:
    hook = make_hook(trial)
    yield hook
    hook.close()


def warned_at(call: Callable[[], Any]) -> list[Location]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [(each.filename, each.lineno, str(each.message)) for each in caught]


@pytest.mark.parametrize("name", WARNING)
def test_a_warning_names_the_line_that_it_names_without_a_hook(hook: smd.Hook, name: str) -> None:
    expected = warned_at(WARNING[name])
    make_net(hook)
    assert warned_at(WARNING[name]) == expected
    hook.close()
    assert warned_at(WARNING[name]) == expected
    assert len(expected) == 1


def test_it_is_the_line_of_the_caller(hook: smd.Hook) -> None:
    make_net(hook)
    [(file, line, _)] = warned_at(WARNING["mse_loss"])
    assert (file, line) == (__file__, inspect.getsourcelines(WARNING["mse_loss"])[1])


def test_filters_by_module_work(hook: smd.Hook) -> None:
    make_net(hook)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", module=f"{__name__}$")
        WARNING["mse_loss"]()
        WARNING["a module"]()
    assert [each.filename for each in caught] == [inspect.getfile(nn.MSELoss)]


def test_each_line_warns_once(hook: smd.Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    make_net(hook)
    monkeypatch.delattr(sys.modules[__name__], "__warningregistry__", raising=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            F.mse_loss(X, OTHER_SIZE)
        for _ in range(3):
            F.mse_loss(X, OTHER_SIZE)
    assert len({each.lineno for each in caught}) == len(caught) == 2


def test_a_warning_may_be_an_error(hook: smd.Hook) -> None:
    make_net(hook)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="Using a target size"):
            WARNING["huber_loss"]()
    [(file, *_)] = warned_at(WARNING["huber_loss"])
    assert file == __file__


def test_what_a_hook_computes_by_itself_warns_of_nothing(
    hook: smd.Hook, trial: WrittenTrial
) -> None:
    net = make_net(hook)
    hook.set_mode(smd.modes.TRAIN)
    F.mse_loss(net(X), NUMBERS).backward()
    hook.set_mode(smd.modes.EVAL)
    with torch.no_grad():
        outputs = net(X)
        warned = warned_at(lambda: F.mse_loss(outputs, OTHER_SIZE, reduction="sum"))
    hook.close()
    assert len(warned) == 1
    assert "MSELoss_output_0" in trial.names(1)
