"""Every built-in rule keeps the contract, in its own test file, and is documented."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from pathlib import Path

import pytest

import rule_runtime.rules
from rule_runtime.engine.registry import available_rules
from rule_runtime.engine.rule import Rule, snake_case
from rule_runtime.testing.rule_contract import RuleContract

RULES = {
    name: rule
    for name, rule in available_rules().items()
    if rule.__module__.startswith(f"{rule_runtime.rules.__name__}.")
}

HEADINGS = ("How it decides:", "Parameters:", "What to try:")
PAGES = Path(__file__).resolve().parents[3] / "docs" / "rules"
PAGE_HEADINGS = ("## Why", "## How it decides", "## Known false alarms", "## Example", "## Source")


@pytest.mark.parametrize("name", RULES)
def test_the_test_file_of_the_rule_has_its_contract(name: str) -> None:
    path = Path(__file__).with_name(f"test_{RULES[name].__module__.rpartition('.')[2]}.py")
    assert path.exists(), f"{name} has no tests"
    spec = importlib.util.spec_from_file_location(f"contract_of_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[spec.name]
    contract = getattr(module, f"Test{name}Contract", None)
    assert contract is not None, f"{path.name} lacks class Test{name}Contract(RuleContract)"
    assert issubclass(contract, RuleContract)
    assert type(contract().make_rule()) is RULES[name]
    left_out = [test for test in vars(RuleContract) if test in vars(contract) and "test_" in test]
    assert not left_out, "a check of the contract must not be replaced"


@pytest.mark.parametrize("name", RULES)
def test_the_rule_has_a_page(name: str) -> None:
    text = (PAGES / f"{snake_case(name)}.md").read_text()
    assert text.startswith(f"# {name}\n\n")
    assert not [heading for heading in PAGE_HEADINGS if f"\n{heading}\n" not in text]


@pytest.mark.parametrize("name", RULES)
def test_documentation_has_the_headings_in_order_and_names_every_parameter(name: str) -> None:
    rule: type[Rule] = RULES[name]
    text = inspect.getdoc(rule) or ""
    places = [text.index(heading) for heading in HEADINGS]
    assert places == sorted(places)
    assert not [heading for heading in HEADINGS if text.count(f"\n{heading}\n") != 1]
    parameters = text[places[1] : places[2]]
    for parameter in rule.parameters():
        assert f"\n    {parameter.name}: " in parameters
    assert rule.summary().endswith(".")
    assert len(rule.summary()) <= 120, "the summary is a line of a table"
