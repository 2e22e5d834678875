"""Configured rules are checked as a whole: every mistake, with what is allowed instead."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from rule_runtime.engine.check_parameters import check_parameters
from rule_runtime.engine.registry import available_rules, create_rule
from tests.rule_runtime.processes import completed

ROOT = Path(__file__).resolve().parents[3]


def check(rule_to_invoke: str, **parameters: str) -> list[dict[str, Any]]:
    return check_parameters([{"rule_to_invoke": rule_to_invoke, "parameters": parameters}])


@pytest.mark.parametrize(
    ("rule", "parameter", "value", "allowed"),
    [
        ("VanishingGradient", "threshold", "abc", "a number, at least 0"),
        ("VanishingGradient", "threshold", "-1", "a number, at least 0"),
        ("VanishingGradient", "threshold", "nan", "a number, at least 0"),
        ("LossNotDecreasing", "diff_percent", "500", "a number, greater than 0, less than 100, in"),
        ("LossNotDecreasing", "num_steps", "1.5", "a whole number, at least 1, in steps"),
        ("LossNotDecreasing", "mode", "EVL", "one of EVAL, TRAIN, PREDICT, GLOBAL, or none"),
        ("ExplodingTensor", "only_nan", "maybe", "true or false"),
        ("ExplodingTensor", "tensor_regex", "a(", "texts with commas between, a regular expr"),
    ],
)
def test_a_wrong_value(rule: str, parameter: str, value: str, allowed: str) -> None:
    (mistake,) = check(rule, **{parameter: value})
    assert (mistake["rule"], mistake["parameter"]) == (0, parameter)
    assert mistake["allowed"].startswith(allowed)
    with pytest.raises(ValueError, match=parameter):
        create_rule(rule, {parameter: value})


def test_the_nearest_of_a_few_values() -> None:
    (mistake,) = check("LossNotDecreasing", mode="EVL")
    assert mistake["nearest"] == "EVAL"


def test_an_unknown_parameter_names_those_that_exist() -> None:
    (mistake,) = check("VanishingGradient", thresold="1e-7")
    assert mistake == {
        "rule": 0,
        "parameter": "thresold",
        "allowed": "the parameters threshold, max_share, patience",
        "nearest": "threshold",
    }


def test_every_rule_takes_the_steps_that_it_judges() -> None:
    assert check("VanishingGradient", start_step="10", end_step="None") == []
    (mistake,) = check("VanishingGradient", start_step="ten", threshold="1e-7")
    assert (mistake["parameter"], mistake["allowed"]) == (
        "start_step",
        "a whole number, or none, at least 0",
    )


def test_an_unknown_rule_names_those_that_exist() -> None:
    (mistake,) = check("VanishingGradeint", whatever="1")
    assert mistake["parameter"] == "rule_to_invoke"
    assert mistake["allowed"] == f"the rules {', '.join(available_rules())}"
    assert mistake["nearest"] == "VanishingGradient"


def test_all_mistakes_of_all_rules_are_found() -> None:
    found = check_parameters(
        [
            {"rule_to_invoke": "ExplodingTensor", "parameters": {"only_nan": "?", "x": "1"}},
            {"rule_to_invoke": "VanishingGradient", "parameters": {"threshold": "1e-9"}},
            {"rule_to_invoke": "LossNotDecreasing", "parameters": {"num_steps": "0"}},
        ]
    )
    assert [(mistake["rule"], mistake["parameter"]) for mistake in found] == [
        (0, "only_nan"),
        (0, "x"),
        (2, "num_steps"),
    ]


def test_parameters_that_exclude_each_other() -> None:
    (mistake,) = check("LossNotDecreasing", use_losses_collection="false")
    assert mistake["parameter"] is None
    assert "use_losses_collection" in mistake["allowed"]


def test_valid_parameters_and_those_of_the_service_pass() -> None:
    assert check("LossNotDecreasing", mode="eval", num_steps="2", action_json="[]") == []


def test_the_module_answers_in_json() -> None:
    done = completed(
        [sys.executable, "-m", "rule_runtime.engine.check_parameters"],
        input=json.dumps([{"rule_to_invoke": "ExplodingTensor", "parameters": {"y": "1"}}]),
        cwd=ROOT,
        check=True,
    )
    (mistake,) = json.loads(done.stdout)
    assert mistake["parameter"] == "y"
