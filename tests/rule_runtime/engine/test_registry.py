from __future__ import annotations

import importlib
import sys
from importlib.metadata import EntryPoint
from typing import Annotated, Literal

import pytest

from rule_runtime.engine import registry
from rule_runtime.engine.outcome import Outcome, Passed
from rule_runtime.engine.parameters import ParameterError
from rule_runtime.engine.registry import UnknownRuleError, available_rules, create_rule
from rule_runtime.engine.rule import (
    AtLeast,
    AtMost,
    LessThan,
    Memory,
    Regex,
    Rule,
    Unit,
    snake_case,
)
from rule_runtime.rules import FAMILIES
from rule_runtime.rules.vanishing_gradient import VanishingGradient
from rule_runtime.trial.step_view import StepView


class Everything(Rule):
    """Takes a parameter of each type."""

    required: int
    share: Annotated[float, AtLeast(0), AtMost(1), Unit("share")] = 0.5
    is_strict: bool = False
    name: str = "x"
    tensors: tuple[str, ...] = ()
    limits: tuple[float, ...] = (1.0,)
    patience: Annotated[int, LessThan(100)] | None = None
    regex: Annotated[tuple[str, ...], Regex()] = ()
    kind: Literal["any", "all"] = "any"

    def check(self, step: StepView, memory: Memory) -> Outcome:  # noqa: ARG002
        return Passed()


class Adapter(Rule):
    """Brings a constructor of its own, as an adapter of another kind of rule does."""

    def __init__(self, inner: object) -> None:
        object.__setattr__(self, "inner", inner)

    def check(self, step: StepView, memory: Memory) -> Outcome:  # noqa: ARG002
        return Passed()


@pytest.fixture
def with_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("everything", f"{__name__}:Everything", registry.ENTRY_POINT_GROUP)
    broken = EntryPoint("broken", "no_such_module_here", registry.ENTRY_POINT_GROUP)
    odd = EntryPoint("odd", "json:dumps", registry.ENTRY_POINT_GROUP)
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    monkeypatch.setattr(registry, "entry_points", lambda **_: [broken, odd, point])


def test_built_in_rules_are_found_by_their_files() -> None:
    rules = available_rules()
    assert {"VanishingGradient", "ExplodingTensor", "LossNotDecreasing"} <= set(rules)
    for name, rule in rules.items():
        file = FAMILIES.get(snake_case(name), snake_case(name))
        assert rule.__module__ == f"rule_runtime.rules.{file}"
        of_its_own_name = importlib.import_module(f"rule_runtime.rules.{snake_case(name)}")
        assert getattr(of_its_own_name, name) is rule


def test_a_module_of_a_family_has_no_other_names() -> None:
    module = importlib.import_module("rule_runtime.rules.loss_spike")
    assert not hasattr(module, "__file__")
    assert not hasattr(module, "NoRule")


@pytest.mark.usefixtures("with_everything")
def test_rules_of_entry_points_are_found_and_broken_ones_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert available_rules()["Everything"] is Everything
    assert "no_such_module_here" in caplog.text


@pytest.mark.usefixtures("with_everything")
def test_strings_become_what_the_annotations_say() -> None:
    rule = create_rule(
        "Everything",
        {
            "rule_to_invoke": "Everything",
            "action_json": "[]",
            "required": " 3 ",
            "share": "1e-1",
            "is_strict": "True",
            "tensors": "conv1, conv2",
            "limits": "1,2.5",
            "patience": "None",
            "regex": "a{1,2},b",
            "kind": "ALL",
        },
    )
    assert rule == Everything(
        required=3,
        share=0.1,
        is_strict=True,
        tensors=("conv1", "conv2"),
        limits=(1.0, 2.5),
        regex=("a{1,2}", "b"),
        kind="all",
    )


@pytest.mark.usefixtures("with_everything")
@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({}, "Everything needs the parameter 'required'"),
        ({"required": "x"}, "required is 'x', but must be a whole number"),
        ({"required": True}, "but must be a whole number"),
        ({"required": 1, "share": "1.5"}, "share is 1.5 share, but must be at most 1"),
        ({"required": 1, "share": "nan"}, "not NaN"),
        ({"required": 1, "is_strict": "maybe"}, "but must be true or false"),
        ({"required": 1, "patience": "100"}, "patience is 100, but must be less than 100"),
        ({"required": 1, "kind": "some"}, "but must be one of any, all"),
        ({"required": 1, "tensor": "a"}, "takes no parameter 'tensor'; did you mean 'tensors'?"),
        ({"required": 1, "regex": "("}, "but must be a regular expression"),
        ({"required": 1, "name": 3}, "name is 3, but must be text"),
    ],
)
def test_wrong_parameters_are_refused(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(ParameterError) as caught:
        create_rule("Everything", parameters)
    assert message in str(caught.value)


def test_an_unknown_rule_gets_the_nearest_name() -> None:
    with pytest.raises(UnknownRuleError, match="did you mean 'VanishingGradient'"):
        create_rule("VanishingGradients")
    with pytest.raises(UnknownRuleError, match="did you mean 'VanishingGradient'"):
        create_rule("vanishing_gradient")  # the module's name
    assert issubclass(UnknownRuleError, ValueError)


def test_rules_are_frozen_and_comparable() -> None:
    rule = VanishingGradient()
    with pytest.raises(AttributeError):
        rule.threshold = 1.0  # type: ignore[misc]
    assert rule == VanishingGradient(threshold=1e-7)
    assert Adapter("x").inner == "x"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("DeadRelu", "dead_relu"), ("NLPSequenceRatio", "nlp_sequence_ratio"), ("X", "x")],
)
def test_snake_case(name: str, expected: str) -> None:
    assert snake_case(name) == expected


@pytest.mark.parametrize(
    ("rule", "former", "current"),
    [
        ("SaturatedActivation", "judge_answers", "check_outputs"),
        ("StalledTrainingRule", "judge_gaps", "check_gaps"),
    ],
)
def test_a_former_name_of_a_parameter_works_with_a_warning(
    rule: str, former: str, current: str, caplog: pytest.LogCaptureFixture
) -> None:
    made = create_rule(rule, {former: "false"})
    assert f"{rule}: the parameter {former} is deprecated; use {current}" in caplog.text
    assert made == create_rule(rule, {current: "false"}) == type(made)(**{former: False})
    with pytest.raises(ParameterError, match=f"{former!r} is the former name of {current!r}"):
        create_rule(rule, {former: "false", current: "false"})
