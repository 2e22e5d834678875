from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rule_runtime.configuration import (
    SMS,
    ActionList,
    CollectionConfig,
    Email,
    Rule,
    StopTraining,
    rule_configs,
)

JOB = "mnist-7"


def test_a_built_in_rule_is_what_the_api_takes() -> None:
    rule = Rule.sagemaker(rule_configs.vanishing_gradient())
    assert rule.to_json(JOB) == {
        "RuleConfigurationName": "VanishingGradient",
        "RuleEvaluatorImage": "DEFAULT_RULE_EVALUATOR_IMAGE",
        "RuleParameters": {"rule_to_invoke": "VanishingGradient"},
    }
    assert rule.collection_configs == (CollectionConfig("gradients", {"save_interval": "500"}),)


def test_own_parameters_are_strings_and_count_before_the_defaults() -> None:
    rule = Rule.sagemaker(
        rule_configs.loss_not_decreasing(),
        name="slow",
        rule_parameters={"num_steps": 20, "diff_percent": 0.5, "use_losses_collection": False},
    )
    assert rule.name == "slow"
    assert rule.rule_parameters["rule_to_invoke"] == "LossNotDecreasing"
    assert rule.rule_parameters["num_steps"] == "20"
    assert rule.rule_parameters["diff_percent"] == "0.5"
    assert rule.rule_parameters["use_losses_collection"] == "False"


def test_collections_to_save_replace_those_of_the_base() -> None:
    own = CollectionConfig("gradients", {"save_interval": 5})
    rule = Rule.sagemaker(rule_configs.vanishing_gradient(), collections_to_save=[own])
    assert [each.to_json() for each in rule.collection_configs] == [
        {"CollectionName": "gradients", "CollectionParameters": {"save_interval": "5"}}
    ]


def test_other_trials_are_numbered() -> None:
    rule = Rule.sagemaker(
        rule_configs.similar_across_runs(), other_trials_s3_input_paths=["s3://b/x", "s3://b/y"]
    )
    assert rule.rule_parameters["other_trial_0"] == "s3://b/x"
    assert rule.rule_parameters["other_trial_1"] == "s3://b/y"


def test_a_custom_rule_keeps_what_the_original_ran_it_with() -> None:
    rule = Rule.custom(
        "mine",
        image_uri="012.dkr.ecr.eu-west-1.amazonaws.com/evaluator:latest",
        instance_type="ml.t3.medium",
        volume_size_in_gb=30,
        source="rules/mine.py",
        rule_to_invoke="Mine",
        rule_parameters={"threshold": 20.0},
    )
    assert (rule.source, rule.rule_to_invoke) == ("rules/mine.py", "Mine")
    assert rule.with_source("s3://code/mine.py").to_json(JOB) == {
        "RuleConfigurationName": "mine",
        "RuleEvaluatorImage": "012.dkr.ecr.eu-west-1.amazonaws.com/evaluator:latest",
        "InstanceType": "ml.t3.medium",
        "VolumeSizeInGB": 30,
        "RuleParameters": {
            "source_s3_uri": "s3://code/mine.py",
            "rule_to_invoke": "Mine",
            "threshold": "20.0",
        },
    }


@pytest.mark.parametrize(("source", "invoked"), [("mine.py", None), (None, "Mine")])
def test_file_and_class_of_a_custom_rule_come_together(
    source: str | None, invoked: str | None
) -> None:
    with pytest.raises(ValueError, match="given together"):
        Rule.custom("mine", source=source, rule_to_invoke=invoked)


@pytest.mark.parametrize("parameter", ["rule_to_invoke", "action_json"])
def test_parameters_that_are_said_elsewhere_are_refused(parameter: str) -> None:
    with pytest.raises(ValueError, match=parameter):
        Rule.sagemaker(rule_configs.overfit(), rule_parameters={parameter: "x"})


def test_what_is_no_configuration_is_told_what_to_give() -> None:
    with pytest.raises(ValueError, match=r"rule_configs\.vanishing_gradient\(\)"):
        Rule.sagemaker({"Rule": "x"})


def test_what_is_no_action_is_refused() -> None:
    with pytest.raises(TypeError, match="StopTraining, Email, SMS"):
        Rule.sagemaker(rule_configs.overfit(), actions="stop")


@pytest.mark.parametrize(
    "actions", [Email("a.b@mail.example.com"), SMS("+4912345"), ActionList(SMS("+4912345"))]
)
def test_an_action_can_stand_alone(actions: Email | SMS | ActionList) -> None:
    rule = Rule.sagemaker(rule_configs.overfit(), actions=actions)
    assert "endpoint" in rule.to_json(JOB)["RuleParameters"]["action_json"]


def test_one_rule_serves_two_jobs() -> None:
    rule = Rule.sagemaker(rule_configs.overfit(), actions=StopTraining())
    for job in ("first", "second"):
        text = rule.to_json(job)["RuleParameters"]["action_json"]
        assert json.loads(text.replace('\\"', '"'))["training_job_prefix"] == job
    assert "action_json" not in rule.to_json()["RuleParameters"]


def test_there_and_back() -> None:
    rule = Rule.custom("mine", source="s3://b/k.py", rule_to_invoke="K", volume_size_in_gb=30)
    member = rule.to_json(JOB)
    assert Rule.from_json(member).to_json(JOB) == member


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (np.float32(0.25), "0.25"),
        (np.bool_(True), "True"),
        (np.int64(7), "7"),
        (Path("a/b"), "a/b"),
        (["a{1,2}", "(b,[c,d])", r"e\,f"], r"a{1,2},(b,[c,d]),e\,f"),
        ((1, 2), "1,2"),
        (["a,b"], "a,b"),
        ([], ""),
    ],
)
def test_values_are_the_texts_that_a_rule_reads(value: object, text: str) -> None:
    rule = Rule.custom("mine", rule_parameters={"x": value, "left_out": None})
    assert rule.rule_parameters == {"x": text}


@pytest.mark.parametrize(
    "value", [{"a": 1}, [["a"]], [{"a": 1}], [None], {"a"}, b"a", np.ones(2), object(), 1j]
)
@pytest.mark.parametrize("make", [Rule.custom, CollectionConfig])
def test_what_no_text_says_is_refused(make: Any, value: object) -> None:
    key = "rule_parameters" if make == Rule.custom else "parameters"
    with pytest.raises(TypeError, match=r"^x=.*json\.dumps"):
        make("mine", **{key: {"x": value}})


def test_a_member_of_a_list_stays_one() -> None:
    with pytest.raises(ValueError, match=r"x has the member 'a,b'.*write \\,"):
        Rule.custom("mine", rule_parameters={"x": ["a,b", "c"]})


TEXTS = st.text(min_size=1, max_size=20)
PARAMETERS = st.dictionaries(TEXTS, st.one_of(TEXTS, st.integers(), st.floats(), st.booleans()))


@given(TEXTS, PARAMETERS)
def test_json_of_rules_and_collections_comes_back(name: str, parameters: dict[str, Any]) -> None:
    parameters.pop("action_json", None)
    rule = Rule.custom(name, rule_parameters=parameters)
    assert Rule.from_json(json.loads(json.dumps(rule.to_json()))) == rule
    collection = CollectionConfig(name, parameters)
    assert CollectionConfig.from_json(json.loads(json.dumps(collection.to_json()))) == collection
