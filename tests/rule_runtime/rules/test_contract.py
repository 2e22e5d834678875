"""Every rule that can be found keeps the contract."""

from __future__ import annotations

import inspect

import pytest

from rule_runtime.evaluation.registry import available_rules, create_rule
from rule_runtime.evaluation.rule import Rule
from rule_runtime.testing.rule_contract import RuleContract

CHECKS = [name for name in vars(RuleContract) if name.startswith("test_")]

HEADINGS = (
    "What it detects:",
    "Why it matters:",
    "How it decides:",
    "Parameters:",
    "What to try:",
    "Known false alarms:",
    "Source:",
)


class ContractOf(RuleContract):
    """The contract for a rule with its defaults."""

    def __init__(self, name: str) -> None:
        self.name = name

    def make_rule(self) -> Rule:
        return create_rule(self.name)


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", sorted(available_rules()))
def test_contract(name: str, check: str) -> None:
    getattr(ContractOf(name), check)()


@pytest.mark.parametrize("name", sorted(available_rules()))
def test_documentation_has_the_headings_in_order_and_names_every_parameter(name: str) -> None:
    rule = available_rules()[name]
    text = inspect.getdoc(rule) or ""
    places = [text.index(heading) for heading in HEADINGS]
    assert places == sorted(places)
    parameters = text[places[3] : places[4]]
    for parameter in rule.parameters():
        assert f"{parameter.name}: " in parameters
    assert rule.summary().endswith(".")


def test_the_contract_finds_rules_that_break_it() -> None:
    """A contract that nothing can break would prove nothing."""

    class Careless(Rule):
        """Fires on everything, fails on NaN and remembers all that it saw."""

        def check(self, step, memory):  # noqa: ANN001, ANN202
            memory.setdefault("all", []).append(step.step)
            raise ZeroDivisionError("no")

    class Contract(RuleContract):
        def make_rule(self) -> Rule:
            return Careless()

    for check in ("test_is_quiet_on_a_healthy_run", "test_takes_tensors_that_are_not_finite"):
        with pytest.raises(AssertionError):
            getattr(Contract(), check)()
