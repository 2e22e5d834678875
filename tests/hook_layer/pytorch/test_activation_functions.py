"""Activations that are called as functions fill the collections of their layers, as modules do."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import hook_layer.pytorch as smd
from hook_layer.testing.written_trial import WrittenTrial

KINDS = ("relu", "sigmoid", "tanh")
ALL = tuple(f"{kind}_{side}" for kind in KINDS for side in ("input", "output"))
Function = Callable[[Tensor], Tensor]


@pytest.fixture(autouse=True)
def _nothing_is_compiled() -> None:
    torch.compiler.reset()  # of the tests before


class Block(nn.Module):
    """A layer, and a function of its output.

    Args:
        function: The function.
    """

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.fc: nn.Module = nn.Linear(4, 4)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.fc(x))


def hook_of(trial: WrittenTrial, *collections: str, save_interval: int = 1) -> smd.Hook:
    """Return a hook that saves collections, all six by default."""
    save_config = smd.SaveConfig(save_interval=save_interval)
    return smd.Hook(trial.uri, save_config=save_config, include_collections=collections or ALL)


def pass_once(hook: smd.Hook, model: nn.Module) -> None:
    """Run one forward and backward pass, and close the hook."""
    hook.register_module(model)
    model(torch.randn(3, 4)).sum().backward()
    hook.close()


def of_functions(trial: WrittenTrial, step: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """Return what was saved of functions."""
    return {name: value for name, value in trial.values(step).items() if "/" in name}


def depth() -> int:
    """Return how many modes of functions are on."""
    return int(torch._C._len_torch_function_stack())


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (F.relu, "relu"),
        (torch.relu, "relu"),
        (Tensor.relu, "relu"),
        (lambda x: x.relu(), "relu"),
        (F.relu6, "relu"),
        (torch.sigmoid, "sigmoid"),
        (F.sigmoid, "sigmoid"),
        (lambda x: x.sigmoid(), "sigmoid"),
        (torch.special.expit, "sigmoid"),
        (torch.tanh, "tanh"),
        (F.tanh, "tanh"),
        (lambda x: torch.tanh(input=x), "tanh"),
    ],
)
def test_what_a_function_gets_and_returns_is_saved_by_the_module_that_calls_it(
    trial: WrittenTrial, function: Function, kind: str
) -> None:
    hook = hook_of(trial)
    model = nn.Sequential(Block(function), Block(function))
    hook.register_module(model)
    x = torch.randn(3, 4)
    with torch.no_grad():
        given = model[0].fc(x)
        result = function(given)
    model(x).sum().backward()
    hook.close()
    saved = of_functions(trial)
    names = {f"{i}/{kind}_{side}/0" for i in (0, 1) for side in ("input", "output")}
    assert set(saved) == names
    np.testing.assert_array_equal(saved[f"0/{kind}_input/0"], given)
    np.testing.assert_array_equal(saved[f"0/{kind}_output/0"], result)
    members = trial.collections().collections[f"{kind}_input"].tensor_names
    assert set(members) == {f"0/{kind}_input/0", f"1/{kind}_input/0"}


@pytest.mark.parametrize("function", [torch.relu_, lambda x: F.relu(x, inplace=True)])
def test_an_input_that_was_overwritten_is_not_saved(
    trial: WrittenTrial, function: Function
) -> None:
    pass_once(hook_of(trial), Block(function))
    assert set(of_functions(trial)) == {"Block/relu_output/0"}


def test_a_layer_and_the_function_that_it_calls_are_one(trial: WrittenTrial) -> None:
    pass_once(hook_of(trial), nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Tanh(), nn.Sigmoid()))
    assert not of_functions(trial)
    assert "1_output_0" in trial.names(0)


def test_the_functions_of_layers_of_torch_are_seen(trial: WrittenTrial) -> None:
    hook = hook_of(trial)
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 2)
    hook.register_module(model)
    model(torch.randn(3, 5, 4)).sum().backward()
    hook.close()
    saved = of_functions(trial)
    assert {name for name in saved if "output" in name} == {
        "layers.0/relu_output/0",
        "layers.1/relu_output/0",
    }
    assert saved["layers.0/relu_output/0"].shape == (3, 5, 8)


def test_attention_in_evaluation_goes_its_own_way(trial: WrittenTrial) -> None:
    """A frozen encoder: its fast way rounds otherwise, and is not taken under a mode."""
    encoder = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval().requires_grad_(False)
    model = nn.Sequential(encoder, Block(torch.relu))
    x = torch.randn(3, 5, 4)
    before = model(x)
    hook = hook_of(trial)
    hook.register_module(model)
    after = model(x)
    after.sum().backward()
    hook.close()
    assert torch.equal(before, after)


class Unhashable:
    """A function that cannot be looked up."""

    __hash__ = None  # type: ignore[assignment]

    def __call__(self, x: Tensor) -> Tensor:
        if torch.overrides.has_torch_function_unary(x):
            return torch.overrides.handle_torch_function(self, (x,), x)
        return x * 2


def test_functions_without_a_hash_are_called_as_they_are(trial: WrittenTrial) -> None:
    pass_once(hook_of(trial), Block(lambda x: torch.relu(Unhashable()(x))))
    assert "Block/relu_output/0" in of_functions(trial)


def test_only_the_collections_that_are_asked_for_are_filled(trial: WrittenTrial) -> None:
    pass_once(hook_of(trial, "relu_output"), nn.Sequential(Block(torch.relu), Block(torch.tanh)))
    assert set(of_functions(trial)) == {"0/relu_output/0"}


def test_calls_of_a_cell_are_saved_as_long_as_they_are_few(trial: WrittenTrial) -> None:
    hook = hook_of(trial, "tanh_output")
    model = Block(lambda x: torch.stack([torch.tanh(x) for _ in range(50)]).sum(0))
    hook.register_module(model)
    for _ in range(2):
        model(torch.randn(3, 4)).sum().backward()
    hook.close()
    expected = {f"Block/tanh_output/{i}" for i in range(8)}
    assert [set(of_functions(trial, step)) for step in (0, 1)] == [expected, expected]


class Mode(TorchFunctionMode):
    """A mode of the script's own that stays on."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class TestNothingIsLeftBehind:
    def test_in_steps_that_are_not_saved(self, trial: WrittenTrial) -> None:
        seen = []
        hook = hook_of(trial, save_interval=2)
        model = Block(lambda x: seen.append(depth()) or torch.relu(x))  # type: ignore[func-returns-value]
        hook.register_module(model)
        for _ in range(3):
            model(torch.randn(3, 4)).sum().backward()
            assert depth() == 0
        hook.close()
        assert seen == [1, 0, 1]

    def test_where_no_gradients_are_computed(self, trial: WrittenTrial) -> None:
        hook = hook_of(trial)
        model = Block(torch.relu)
        hook.register_module(model)
        model(torch.randn(3, 4)).sum().backward()
        with torch.no_grad():
            model(torch.randn(3, 4))
        hook.close()
        assert of_functions(trial, 0)
        assert 1 not in trial.indexes()

    def test_by_a_forward_pass_that_fails(self, trial: WrittenTrial) -> None:
        def fails(x: Tensor) -> Tensor:
            if x.shape[0] == 1:
                raise MemoryError("out of memory")
            return torch.relu(x)

        hook = hook_of(trial)
        model = nn.Sequential(Block(fails), Block(torch.tanh))
        hook.register_module(model)
        with pytest.raises(MemoryError):
            model(torch.randn(1, 4))
        assert depth() == 0
        model(torch.randn(3, 4)).sum().backward()
        assert depth() == 0
        with pytest.raises(MemoryError):
            model(torch.randn(1, 4))
        hook.close()
        assert depth() == 0
        assert {"0/relu_output/0", "1/tanh_output/0"} <= set(of_functions(trial, 1))

    def test_by_a_part_that_fails_within_the_pass(self, trial: WrittenTrial) -> None:
        def fails(_: Tensor) -> Tensor:
            raise ValueError("not this one")

        class Tries(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.bad, self.good = Block(fails), Block(torch.relu)

            def forward(self, x: Tensor) -> Tensor:
                try:
                    x = self.bad(x)
                except ValueError:
                    x = torch.tanh(x)
                return self.good(x)

        pass_once(hook_of(trial), Tries())
        assert depth() == 0
        assert "good/relu_output/0" in of_functions(trial)

    def test_under_a_mode_that_the_model_leaves_on(self, trial: WrittenTrial) -> None:
        mode = Mode()

        def enters(x: Tensor) -> Tensor:
            if depth() == 1:
                mode.__enter__()
            return torch.relu(x)

        hook = hook_of(trial)
        model = Block(enters)
        hook.register_module(model)
        model(torch.randn(3, 4)).sum().backward()
        outside = torch.relu(torch.randn(3, 4))
        mode.__exit__(None, None, None)
        hook.close()
        assert depth() == 0
        assert outside.shape == (3, 4)
        assert set(of_functions(trial)) == {"Block/relu_input/0", "Block/relu_output/0"}


def test_a_thread_beside_the_pass_is_not_looked_at(trial: WrittenTrial) -> None:
    other = Block(torch.tanh)

    def beside(x: Tensor) -> Tensor:
        thread = threading.Thread(target=other, args=(torch.randn(3, 4),))
        thread.start()
        thread.join()
        return torch.relu(x)

    pass_once(hook_of(trial), Block(beside))
    assert set(of_functions(trial)) == {"Block/relu_input/0", "Block/relu_output/0"}


def test_nothing_is_looked_at_once_something_is_compiled(trial: WrittenTrial) -> None:
    hook = hook_of(trial)
    model = Block(torch.relu)
    hook.register_module(model)
    graphs = []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    part = torch.compile(lambda x: torch.tanh(x) + 1, backend=backend)
    model.function = part
    for _ in range(3):
        model(torch.randn(3, 4)).sum().backward()
    hook.close()
    torch.compiler.reset()
    assert len(graphs) == 1
    assert not of_functions(trial)


def test_numbers_are_the_same(trial: WrittenTrial) -> None:
    def trained(hook: smd.Hook | None) -> Tensor:
        torch.manual_seed(3)
        model = nn.Sequential(Block(F.relu), Block(torch.tanh), nn.Dropout(0.5))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if hook is not None:
            hook.register_module(model)
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.randn(3, 4)).square().mean().backward()
            optimizer.step()
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    hook = hook_of(trial)
    watched = trained(hook)
    hook.close()
    assert torch.equal(watched, trained(None))


class Counter(nn.Module):
    """Counts the modes of functions that are on where it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.depths: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.depths.append(depth())
        return x


def test_later_passes_are_looked_at_where_functions_were_found(trial: WrittenTrial) -> None:
    hook = hook_of(trial)
    plain, inside = Counter(), Block(F.relu)
    inside.fc = nn.Sequential(nn.ReLU(), counter := Counter())
    model = nn.Sequential(plain, inside, plain)
    hook.register_module(model)
    for _ in range(20):
        model(torch.randn(3, 4, requires_grad=True)).sum().backward()
    hook.close()
    assert plain.depths == [1] * 4 + [0] * 34 + [1] * 2
    assert counter.depths == [1] * 20
    assert all(set(of_functions(trial, step)) >= {"1/relu_output/0"} for step in range(20))
    assert {len(of_functions(trial, step)) for step in range(20)} == {2}
    assert depth() == 0


def test_a_module_that_begins_to_call_functions_is_found_later(trial: WrittenTrial) -> None:
    hook = hook_of(trial)
    model = Block(lambda x: x)
    hook.register_module(model)
    for step in range(22):
        if step == 5:
            model.function = F.relu
        model(torch.randn(3, 4)).sum().backward()
    hook.close()
    assert [step for step in range(22) if of_functions(trial, step)] == [19, 20, 21]
