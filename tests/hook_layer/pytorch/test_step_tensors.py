"""Tensors of a step get numbered names, and those that are due are captured."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

from torch import Tensor, nn  # noqa: E402

from hook_layer.pytorch.module_calls import StepTensors  # noqa: E402
from tests.hook_layer.pytorch.open_step import OpenStep  # noqa: E402


def make_tensors(step: OpenStep) -> StepTensors:
    return StepTensors(step.collector, step.recorder)


def numbers(*values: float) -> list[Tensor]:
    return [torch.tensor(value) for value in values]


def test_numbers_continue_in_a_step_and_start_again_in_the_next() -> None:
    tensors = make_tensors(OpenStep())
    assert list(tensors.numbered("a_", numbers(1, 2))) == ["a_0", "a_1"]
    assert list(tensors.numbered("a_", numbers(3))) == ["a_2"]
    assert list(tensors.numbered("b_", numbers(4))) == ["b_0"]
    assert (tensors.count("a_"), tensors.count("other_")) == (3, 0)
    tensors.begin_step()
    assert list(tensors.numbered("a_", numbers(5))) == ["a_0"]


def test_tensors_are_found_in_nested_sequences_and_dicts() -> None:
    one, two, three = numbers(1, 2, 3)
    named = make_tensors(OpenStep()).numbered("a_", ({"x": one, "y": [two, "text"]}, None, three))
    assert [*named.items()] == [("a_0", one), ("a_1", two), ("a_2", three)]


def test_a_name_has_a_limited_number_of_tensors_which_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("hook_layer.pytorch.module_calls.MAX_CALLS_A_STEP", 2)
    tensors = make_tensors(OpenStep())
    for _ in range(4):
        tensors.numbered("net_output_", numbers(1))
        tensors.due_of_call("other", numbers(1), numbers(2))
    assert tensors.count("net_output_") == tensors.count("other_input_") == 2
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "has 2 tensors net_output_" in caplog.text


def test_inputs_and_outputs_of_calls_have_numbers_of_their_own() -> None:
    tensors = make_tensors(OpenStep("output|input_1"))
    first = tensors.due_of_call("fc", numbers(1, 2), numbers(3)[0])
    second = tensors.due_of_call("fc", numbers(4), {"out": numbers(5)})
    assert {name: float(tensor) for name, (tensor, _) in {**first, **second}.items()} == {
        "fc_input_1": 2,
        "fc_output_0": 3,
        "fc_output_1": 5,
    }
    assert tensors.count("fc_input_") == 3


def test_tensors_without_elements_that_can_be_read_are_left_out() -> None:
    unreadable = [torch.ones(2, device="meta"), nn.UninitializedParameter()]
    step = OpenStep()
    tensors = make_tensors(step)
    due = tensors.due_of_call("fc", [*unreadable, *numbers(1)], None)
    assert list(due) == ["fc_input_0", "fc_input_2"]
    step.recorder.capture(due)
    tensors.capture(dict(zip("ab", unreadable, strict=True)))
    assert step.values() == {"fc_input_2": 1}
    reason = "a tensor on the device `meta` has no values"
    assert step.failures.not_captured == {"fc_input_0": reason, "a": reason}


def test_values_are_those_at_the_time_of_the_capture() -> None:
    step = OpenStep()
    weight = torch.ones(2)
    make_tensors(step).capture({"weight": weight})
    weight.zero_()
    assert step.values() == {"weight": [1, 1]}


def test_members_of_a_collection_are_captured_whatever_their_names() -> None:
    step = OpenStep("weight")
    tensors = make_tensors(step)
    tensors.capture({"loss": torch.ones(1), "weight": torch.zeros(1)})
    tensors.capture({"scores": torch.ones(1)}, member_of=("mine",))
    assert step.values() == {"weight": [0], "scores": [1]}


def test_nothing_is_due_in_a_step_that_is_not_saved() -> None:
    step = OpenStep(interval=2)
    tensors = make_tensors(step)
    step.begin()
    assert tensors.due_of_call("fc", numbers(1), numbers(2)) == {}
    tensors.capture({"weight": torch.ones(1)})
    assert step.values() == {}
