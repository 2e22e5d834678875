"""Gradients are those that a backward pass, or something else, has changed in the step."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

from hook_layer.pytorch.parameters import GradientReader


class Pair:
    """Two parameters, `used` and `unused`, whose gradients are watched."""

    def __init__(self) -> None:
        self.used, self.unused = (nn.Parameter(torch.ones(2)) for _ in range(2))
        self.named = {"used": self.used, "unused": self.unused}
        self.reader = GradientReader()

    def begin(self) -> None:
        """Begin a step."""
        self.reader.begin_step()
        self.reader.watch(self.named)

    def backward(self) -> list[str]:
        """Run a backward pass, and return the names of the gradients that it changed."""
        self.reader.backward_begins()
        self.used.sum().backward()
        self.reader.backward_ends()
        return list(self.reader.take())


def test_gradients_that_are_set_to_zero_have_not_arrived() -> None:
    pair = Pair()
    pair.unused.grad = torch.ones(2)
    pair.begin()
    pair.unused.grad.zero_()
    assert pair.backward() == ["used"]


def test_a_backward_pass_that_fails_has_changed_what_it_reached() -> None:
    pair = Pair()
    pair.begin()
    pair.reader.backward_begins()
    pair.used.grad = torch.ones(2)  # and then an error, so that nobody calls `backward_ends` now
    pair.reader.backward_ends()
    assert list(pair.reader.take()) == ["used"]
    pair.reader.backward_ends()
    assert pair.reader.take() == {}


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda pair: setattr(pair.unused, "grad", torch.ones(2)), ["unused"]),
        (lambda pair: pair.used.grad.mul_(2), ["used"]),
        (lambda _: None, []),
    ],
)
def test_what_an_optimizer_finds_is_new_since_the_step_began(
    change: Callable[[Pair], object], found: list[str]
) -> None:
    pair = Pair()
    pair.used.grad = torch.ones(2)
    pair.begin()
    change(pair)
    assert list(pair.reader.find(pair.named)) == found
    assert list(pair.reader.find(pair.named)) == []


def test_no_gradient_is_kept_alive() -> None:
    pair = Pair()
    pair.used.grad = torch.ones(2)
    pair.begin()
    gradient = pair.used.grad
    pair.used.grad = None
    import sys

    assert sys.getrefcount(gradient) == 2


@pytest.fixture(params=[False, True], ids=["usual", "swapping"])
def _may_swap(request: pytest.FixtureRequest) -> Iterator[None]:
    torch.__future__.set_swap_module_params_on_conversion(request.param)
    yield
    torch.__future__.set_swap_module_params_on_conversion(False)


@pytest.mark.usefixtures("_may_swap")
@pytest.mark.parametrize("layout", ["strided", "sparse_coo", "sparse_csr"])
def test_a_gradient_is_found_once_and_again_where_it_is_another(layout: str) -> None:
    def gradient() -> torch.Tensor:
        dense = torch.eye(2)
        return dense if layout == "strided" else dense.to_sparse(layout=getattr(torch, layout))

    weight = nn.Parameter(gradient() if layout == "sparse_csr" else torch.eye(2))
    named, reader = {"weight": weight}, GradientReader()
    weight.grad = gradient()
    reader.watch(named)
    assert not reader.find(named)
    weight.grad = gradient()
    assert list(reader.find(named)) == ["weight"]
    assert not reader.find(named)


@pytest.mark.usefixtures("_may_swap")
def test_a_gradient_in_other_memory_is_found() -> None:
    pair = Pair()
    pair.used.grad = torch.ones(2)
    pair.begin()
    pair.used.grad.data = torch.zeros(2)
    assert list(pair.reader.find(pair.named)) == ["used"]


def test_gradients_of_a_class_of_their_own_may_be_swapped() -> None:
    # torch swaps parameters of such classes, as DTensor, and their gradients, whatever is set.
    net = nn.Module()
    net.weight = nn.Parameter(TwoTensor(torch.ones(2), torch.ones(2)))
    net.weight.grad = TwoTensor(torch.ones(2), torch.ones(2))
    reader = GradientReader()
    reader.watch({"weight": net.weight})
    net.double()
    assert list(reader.find({"weight": net.weight})) == ["weight"]
