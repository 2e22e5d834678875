"""Loss functions stay what they are for everybody else while a hook listens to them."""

from __future__ import annotations

import inspect
import operator
import pickle
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

import hook_layer.pytorch as smd
from hook_layer.pytorch.watched_functions import LOSS_FUNCTIONS
from hook_layer.testing.written_trial import WrittenTrial
from tests.hook_layer.pytorch.functional_steps import (
    CLASSES,
    NUMBERS,
    X,
    make_hook,
    make_net,
    names_of,
)

EARLY = F.cross_entropy
SIGNATURE = inspect.signature(F.cross_entropy)


@pytest.fixture
def hook(trial: WrittenTrial) -> Iterator[smd.Hook]:
    hook = make_hook(trial)
    yield hook
    hook.close()


def test_a_function_stays_the_same_object_and_gets_its_code_back(hook: smd.Hook) -> None:
    functions = [function._watched for function in LOSS_FUNCTIONS.functions]
    codes = [function.__code__ for function in functions]
    make_net(hook)(X)
    assert not any(map(operator.is_, codes, [function.__code__ for function in functions]))
    assert F.cross_entropy is EARLY
    assert inspect.signature(F.cross_entropy) == SIGNATURE
    assert inspect.getfullargspec(F.cross_entropy).args == list(SIGNATURE.parameters)
    assert "cross entropy loss between" in inspect.getsource(F.cross_entropy)
    hook.close()
    assert [function.__code__ for function in functions] == codes


def test_a_reference_from_before_is_seen(hook: smd.Hook, trial: WrittenTrial) -> None:
    EARLY(make_net(hook)(X), CLASSES).backward()
    hook.close()
    assert trial.names(0) == names_of("CrossEntropyLoss")


def test_a_reference_can_be_pickled(hook: smd.Hook) -> None:
    make_net(hook)(X)
    copied = pickle.loads(pickle.dumps(partial(EARLY, reduction="sum")))
    assert copied.func is F.cross_entropy


def test_a_wrong_argument_raises_the_same_error_as_without_a_hook(hook: smd.Hook) -> None:
    make_net(hook)(X)
    with pytest.raises(TypeError, match=r"cross_entropy\(\) got an unexpected keyword argument"):
        F.cross_entropy(X, CLASSES, reductoin="sum")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'target'"):
        F.cross_entropy(X)  # type: ignore[call-arg]


class Counted(torch.Tensor):
    """A tensor with a table of what it does in its own way."""

    table: dict[Any, Callable[..., Any]] = {EARLY: lambda *_, **__: 42.0}

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in cls.table:
            return cls.table[func](*args, **(kwargs or {}))
        return super().__torch_function__(func, types, args, kwargs or {})


def test_tensors_of_other_classes_know_the_function(hook: smd.Hook) -> None:
    make_net(hook)
    assert F.cross_entropy(X.as_subclass(Counted), CLASSES) == 42.0


def test_a_tensor_of_another_class_is_one_call(hook: smd.Hook, trial: WrittenTrial) -> None:
    net = make_net(hook)
    for _ in range(2):
        F.mse_loss(net(X).as_subclass(Counted), NUMBERS).backward()
    hook.close()
    assert trial.names(1) == names_of("MSELoss")


def test_a_function_that_is_compiled_by_itself_is_compiled(hook: smd.Hook) -> None:
    graphs = []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    torch.compiler.reset()
    make_net(hook)
    compiled = torch.compile(F.cross_entropy, backend=backend, fullgraph=True)
    assert torch.equal(compiled(X, CLASSES), EARLY(X, CLASSES))
    torch.compiler.reset()
    assert len(graphs) == 1


def test_the_average_of_a_single_row_is_no_value_of_the_function(
    hook: smd.Hook, trial: WrittenTrial
) -> None:
    net = make_net(hook)
    F.cross_entropy(net(X[:1]), CLASSES[:1], reduction="none").mean().backward()
    hook.close()
    assert trial.names(0) == names_of("Loss")
