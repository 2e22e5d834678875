"""Inputs and outputs of modules are captured together, with the values of their time."""

from __future__ import annotations

from weakref import ref

import pytest
import torch
from torch import Tensor, nn

import hook_layer.pytorch as smd
from hook_layer.guard import FailureLog
from hook_layer.pytorch.module_calls import ModuleCalls, StepTensors
from hook_layer.testing.written_trial import WrittenTrial
from tests.hook_layer.pytorch.recording_sink import RecordingSink


class Passes:
    """Passes of a model of two modules, `a` and `b`."""

    def __init__(self, leaves_out: str = "nothing") -> None:
        self.sink = RecordingSink(leaves_out)
        self.failures = FailureLog()
        self.tensors = StepTensors(self.failures, self.sink, self.sink)  # plays both
        self.calls = ModuleCalls(self.tensors, self.failures)

    def run(self, *, writes: bool = False, is_compiled: bool = False) -> list[list[str]]:
        """Run a step of one pass, and return the names in each of its captures."""
        self.sink.batches.clear()
        self.tensors.begin_step()
        self.calls.pass_begins()
        x = torch.zeros(2)
        y = x + 1
        self.calls.add("a", (x,), y, is_compiled=is_compiled)
        if writes:
            y.mul_(10)
        z = y + 1
        self.calls.add("b", (y,), z, is_compiled=is_compiled)
        self.calls.pass_ends()
        return self.sink.names()

    def values(self) -> dict[str, float]:
        """Return the first element of each tensor of the step."""
        return {name: float(t[0]) for batch in self.sink.batches for name, t in batch.items()}


A = ["a_input_0", "a_output_0"]
B = ["b_input_0", "b_output_0"]


def test_from_the_second_pass_on_all_calls_are_captured_together() -> None:
    passes = Passes()
    assert passes.run() == [A, B]
    assert passes.run() == [[*A, *B]]
    assert passes.values() == {"a_input_0": 0, "a_output_0": 1, "b_input_0": 1, "b_output_0": 2}


def test_a_module_whose_output_is_written_to_is_captured_at_once() -> None:
    passes = Passes()
    for _ in range(3):
        passes.run(writes=True)
        assert passes.values()["a_output_0"] == 1
        assert passes.values()["b_input_0"] == 10
    assert passes.run(writes=True) == [A, B]
    assert not passes.failures.errors


def test_a_value_that_is_unexpectedly_overwritten_is_lost_once_and_counted() -> None:
    passes = Passes()
    passes.run()
    assert passes.run(writes=True) == [["a_input_0", *B]]
    assert passes.failures.errors["tensors"] == 1
    assert passes.run(writes=True) == [A, B]
    assert passes.values()["a_output_0"] == 1
    assert passes.failures.errors["tensors"] == 1


def test_compiled_code_uses_its_memory_again_so_it_is_captured_at_once() -> None:
    passes = Passes()
    assert [passes.run(is_compiled=True) for _ in range(2)] == [[A, B]] * 2


def test_calls_outside_of_a_pass_are_captured_at_once() -> None:
    passes = Passes()
    for _ in range(3):
        passes.run()
    passes.sink.batches.clear()
    passes.calls.add("a", (torch.ones(2),), torch.ones(2), is_compiled=False)
    assert passes.sink.names() == [["a_input_1", "a_output_1"]]


def test_inference_tensors_count_no_writes_so_they_are_captured_at_once() -> None:
    passes = Passes()
    passes.run()
    with torch.inference_mode():
        assert passes.run(writes=True) == [A, B]
        assert passes.values()["a_output_0"] == 1


def test_an_inference_tensor_among_others_is_captured_at_once() -> None:
    passes = Passes()
    with torch.inference_mode():
        mask = torch.ones(2)
    for _ in range(2):
        passes.sink.batches.clear()
        passes.tensors.begin_step()
        passes.calls.pass_begins()
        passes.calls.add("a", (torch.zeros(2), mask), torch.ones(2), is_compiled=False)
        assert passes.sink.names() == [["a_input_0", "a_input_1", "a_output_0"]]


def test_little_memory_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hook_layer.pytorch.module_calls._MOST_HELD_BYTES", 10)
    passes = Passes()
    assert [passes.run() for _ in range(2)] == [[A, B]] * 2


def test_no_reference_is_kept_to_what_is_not_due() -> None:
    passes = Passes(leaves_out="_input_")
    passes.run()
    passes.calls.pass_begins()
    inputs: Tensor = torch.zeros(2)
    alive = [inputs]
    passes.calls.add("a", (inputs,), torch.ones(2), is_compiled=False)
    import sys

    assert sys.getrefcount(inputs) == 1 + len(alive) + 1
    passes.calls.forget()
    passes.calls.pass_ends()
    assert passes.sink.names()[-1] == ["b_output_0"]


def test_a_module_whose_output_is_written_to_without_torchs_notice_is_captured_at_once() -> None:
    passes = Passes()
    for _ in range(3):
        passes.tensors.begin_step()
        passes.sink.batches.clear()
        passes.calls.pass_begins()
        y = torch.ones(2)
        passes.calls.add("a", (), y, is_compiled=False)
        y.data.mul_(10)
        passes.calls.pass_ends()
        assert passes.values() == {"a_output_0": 1}


def test_a_sparse_tensor_is_captured_at_once() -> None:
    passes = Passes()
    for _ in range(3):
        passes.tensors.begin_step()
        passes.sink.batches.clear()
        passes.calls.pass_begins()
        passes.calls.add("a", (torch.eye(2).to_sparse(),), torch.ones(2), is_compiled=False)
        assert passes.sink.names() == [A]


def test_little_of_much_memory_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hook_layer.pytorch.module_calls._MOST_HELD_BYTES", 100)
    passes = Passes()
    for expected in ([A], [A]):
        passes.tensors.begin_step()
        passes.sink.batches.clear()
        passes.calls.pass_begins()
        much = torch.zeros(100)
        passes.calls.add("a", (much[:2],), much[2:4], is_compiled=False)
        assert passes.sink.names() == expected
        passes.calls.pass_ends()


def test_a_pass_that_raises_keeps_no_activation(trial: WrittenTrial) -> None:
    class Broken(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            outputs.append(ref(x))
            if len(outputs) > 2:
                raise ValueError("broken")
            return x

    outputs: list[ref[Tensor]] = []
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), Broken())
    hook = smd.Hook(trial.uri, save_config=smd.SaveConfig(save_interval=1), save_all=True)
    hook.register_module(net)
    for _ in range(2):
        net(torch.ones(3, 2)).sum().backward()
    with pytest.raises(ValueError, match="broken"):
        net(torch.ones(3, 2))
    assert outputs[-1]() is None
    net[2] = nn.Identity()
    net(torch.ones(3, 2)).sum().backward()
    hook.close()
    assert list(trial.indexes()) == [0, 1, 2, 3]
    assert "1_output_0" in trial.names(2)
    assert not hook.report().errors
