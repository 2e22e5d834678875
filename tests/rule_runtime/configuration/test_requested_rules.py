"""What a job asks for, whatever it says: one reading of it for functions, jobs and reports."""

from __future__ import annotations

from typing import Any

import pytest

from rule_runtime.configuration.requested_rules import PROBLEMS, RequestedRule, parse_rule_requests


def entry(name: Any = "Mine", **members: Any) -> dict[str, Any]:
    return {"RuleConfigurationName": name, **members}


def test_a_rule_with_its_parameters_and_the_pack_that_it_came_by() -> None:
    parameters = {"rule_to_invoke": "NonFinite", "source_s3_uri": "s3://rules/mine.py"}
    rules, problems = parse_rule_requests(
        [entry(RuleParameters=parameters), entry("NonFinite", Pack="p")]
    )
    assert rules == {"Mine": RequestedRule(parameters), "NonFinite": RequestedRule({}, pack="p")}
    assert problems == ()
    assert rules["Mine"].source == "s3://rules/mine.py"
    assert rules["Mine"].invoked("Mine") == "NonFinite"
    assert rules["NonFinite"].invoked("NonFinite") == "NonFinite"


@pytest.mark.parametrize("name", [None, 7, "", "#stop", "a\nb", "x" * 257, PROBLEMS])
def test_a_name_that_no_verdict_could_be_stored_by_is_left_out_and_told(name: Any) -> None:
    rules, (problem,) = parse_rule_requests([entry(name), "no object", entry()][::2])
    assert set(rules) == {"Mine"}
    assert problem.startswith("entry 1 of DebugRuleConfigurations is ignored")
    assert len(problem) < 300


def test_an_entry_that_is_no_object_is_left_out() -> None:
    rules, (problem,) = parse_rule_requests(["NonFinite", entry()])
    assert set(rules) == {"Mine"}
    assert "RuleConfigurationName is None" in problem


def test_of_two_entries_of_one_name_the_last_counts_and_both_are_reported() -> None:
    rules, (problem,) = parse_rule_requests([entry(RuleParameters={"a": "1"}), entry(Pack="p")])
    assert rules == {"Mine": RequestedRule({}, pack="p")}
    assert problem == "'Mine' is there again as entry 2, which alone counts"


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        (["a"], "RuleParameters are ['a'], but must be an object"),
        ({"rule_to_invoke": 5}, "rule_to_invoke in RuleParameters is 5, but must be a text"),
        ({"source_s3_uri": [1]}, "source_s3_uri in RuleParameters is [1], but must be a text"),
    ],
)
def test_parameters_that_cannot_be_used_are_the_rules_own_problem(
    parameters: Any, problem: str
) -> None:
    rules, problems = parse_rule_requests([entry(RuleParameters=parameters, Pack="p")])
    assert rules == {"Mine": RequestedRule({}, problem, "p")}
    assert problems == ()


def test_no_more_problems_are_told_than_somebody_reads() -> None:
    assert len(parse_rule_requests([entry("")] * 1000)[1]) == 5
