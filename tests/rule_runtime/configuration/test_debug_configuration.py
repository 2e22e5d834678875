from __future__ import annotations

import logging

import pytest

from rule_runtime.configuration import (
    CollectionConfig,
    DebugConfiguration,
    DebuggerHookConfig,
    Email,
    Rule,
    StopTraining,
    TensorBoardOutputConfig,
    rule_configs,
)

JOB = "mnist-7"
OUTPUT = "s3://bucket/output"
VANISHING = Rule.sagemaker(rule_configs.vanishing_gradient())
OVERFIT = Rule.sagemaker(rule_configs.overfit())


def test_rules_alone_make_a_hook_that_saves_what_they_ask_for() -> None:
    rules = [VANISHING, Rule.sagemaker(rule_configs.loss_not_decreasing())]
    configuration = DebugConfiguration.of(OUTPUT, rules=rules)
    assert configuration.to_request(JOB)["DebugHookConfig"] == {
        "S3OutputPath": OUTPUT,
        "CollectionConfigurations": [
            {"CollectionName": "gradients", "CollectionParameters": {"save_interval": "500"}},
            {"CollectionName": "losses", "CollectionParameters": {"save_interval": "500"}},
        ],
    }


def test_without_anything_there_is_the_default_hook() -> None:
    assert DebugConfiguration.of(OUTPUT).to_request(JOB) == {
        "DebugHookConfig": {"S3OutputPath": OUTPUT}
    }


def test_false_means_no_hook() -> None:
    assert DebugConfiguration.of(OUTPUT, hook_config=False).to_request(JOB) == {}
    with pytest.raises(ValueError, match="VanishingGradient, Overfit would have nothing to judge"):
        DebugConfiguration.of(OUTPUT, hook_config=False, rules=[VANISHING, OVERFIT])


def test_a_collection_that_both_ask_for_alike_comes_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hook = DebuggerHookConfig(
        "s3://other/place",
        collection_configs=[
            CollectionConfig("losses"),
            CollectionConfig("gradients", {"save_interval": "500"}),
        ],
    )
    found = DebugConfiguration.of(OUTPUT, hook_config=hook, rules=[VANISHING]).hook
    assert found == hook
    assert not caplog.records


def test_what_is_asked_for_in_two_ways_is_joined_and_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hook = DebuggerHookConfig(
        collection_configs=[CollectionConfig("gradients", {"save_interval": "100"})]
    )
    with caplog.at_level(logging.WARNING, logger="stepwatch"):
        found = DebugConfiguration.of(OUTPUT, hook_config=hook, rules=[VANISHING]).hook
    assert found is not None
    assert found.collection_configs == (CollectionConfig("gradients", {"save_interval": "100"}),)
    (record,) = caplog.records
    message = record.getMessage()
    assert "the hook's configuration: save_interval=100" in message
    assert "VanishingGradient: save_interval=500" in message


def test_who_does_not_say_when_gets_the_hooks_own_steps() -> None:
    hook = DebuggerHookConfig(
        hook_parameters={"save_interval": 10, "eval.save_interval": 1, "reductions": "l2"},
        collection_configs=[CollectionConfig("losses"), CollectionConfig("weights")],
    )
    rules = [Rule.sagemaker(rule_configs.loss_not_decreasing())]
    made = DebugConfiguration.of(OUTPUT, hook_config=hook, rules=rules).hook
    assert made is not None
    assert made.collection_configs == (
        CollectionConfig("losses", {"eval.save_interval": "1", "save_interval": "10"}),
        CollectionConfig("weights"),
    )


def test_what_cannot_be_joined_names_who_asks() -> None:
    hook = DebuggerHookConfig(
        collection_configs=[CollectionConfig("gradients", {"save_steps": "0,1"})]
    )
    with pytest.raises(ValueError, match=r"save_steps=0,1.*VanishingGradient: save_interval=500"):
        DebugConfiguration.of(OUTPUT, hook_config=hook, rules=[VANISHING])


def test_the_order_is_that_of_what_is_given() -> None:
    found = DebugConfiguration.of(OUTPUT, rules=[OVERFIT, VANISHING])
    assert [rule.name for rule in found.rules] == ["Overfit", "VanishingGradient"]
    names = [
        member["RuleConfigurationName"]
        for member in found.to_request(JOB)["DebugRuleConfigurations"]
    ]
    assert names == ["Overfit", "VanishingGradient"]


def test_two_rules_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="2 rules are called 'Overfit'"):
        DebugConfiguration.of(OUTPUT, rules=[OVERFIT, OVERFIT])


def test_actions_of_the_job_are_those_of_rules_without_any() -> None:
    own = Rule.sagemaker(rule_configs.overtraining(), actions=Email("me@example.com"))
    request = DebugConfiguration.of(
        OUTPUT, rules=[OVERFIT, own], actions=StopTraining()
    ).to_request(JOB)
    first, second = (
        member["RuleParameters"]["action_json"] for member in request["DebugRuleConfigurations"]
    )
    assert "stoptraining" in first
    assert JOB in first
    assert "stoptraining" not in second


def test_actions_that_a_rule_keeps_are_told(caplog: pytest.LogCaptureFixture) -> None:
    own = Rule.sagemaker(rule_configs.overtraining(), actions=Email("me@example.com"))
    DebugConfiguration.of(OUTPUT, rules=[OVERFIT, own], actions=StopTraining())
    (message,) = caplog.messages
    assert "stoptraining" in message
    assert "those of Overtraining:" in message
    caplog.clear()
    DebugConfiguration.of(OUTPUT, rules=[OVERFIT], actions=StopTraining())
    DebugConfiguration.of(OUTPUT, rules=[OVERFIT, own])
    assert not caplog.messages


def test_actions_in_the_json_of_a_rule_are_its_own(caplog: pytest.LogCaptureFixture) -> None:
    member = Rule.sagemaker(rule_configs.overfit(), actions=Email("me@example.com")).to_json(JOB)
    found = DebugConfiguration.of(OUTPUT, rules=[member], actions=StopTraining())
    assert found.to_request(JOB)["DebugRuleConfigurations"] == [member]
    assert "those of Overfit:" in caplog.text


def test_tensorboard_goes_below_the_output_path_unless_it_says_where() -> None:
    for given, expected in ((TensorBoardOutputConfig(), OUTPUT), ({"S3OutputPath": "s3://t"},) * 2):
        found = DebugConfiguration.of(OUTPUT, tensorboard=given).to_request(JOB)
        path = expected if isinstance(expected, str) else expected["S3OutputPath"]
        assert found["TensorBoardOutputConfig"] == {"S3OutputPath": path}


def test_a_request_comes_back_as_it_was() -> None:
    hook = DebuggerHookConfig(hook_parameters={"save_interval": 10, "save_all": True})
    request = DebugConfiguration.of(
        OUTPUT,
        hook_config=hook,
        rules=[VANISHING, OVERFIT],
        actions=StopTraining(),
        tensorboard=TensorBoardOutputConfig(container_local_output_path="/opt/tb"),
    ).to_request(JOB)
    assert DebugConfiguration.from_request(request).to_request("another") == request


@pytest.mark.parametrize(
    ("field", "json", "message"),
    [
        ("hook_config", {"CollectionConfiguration": []}, "no member 'CollectionConfiguration'"),
        ("tensorboard", {"S3Path": "s3://b/t"}, "no member 'S3Path'; it has S3OutputPath"),
        ("hook_config", {"CollectionConfigurations": [{"Name": "x"}]}, "no member 'Name'"),
        ("hook_config", {"CollectionConfigurations": [{}]}, "needs CollectionName"),
        ("rules", [{"RuleParameters": {}}], "needs RuleConfigurationName"),
        ("rules", [{"RuleConfigurationName": "X", "Parameters": {}}], "no member 'Parameters'"),
    ],
)
def test_json_of_which_something_would_be_lost(field: str, json: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DebugConfiguration.of(OUTPUT, **{field: json})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "value"),
    [("hook_config", "losses"), ("tensorboard", 7), ("actions", 7), ("rules", ["Overfit"])],
)
def test_what_is_nothing_of_the_kind_is_refused(field: str, value: object) -> None:
    with pytest.raises(TypeError, match=repr(value if field != "rules" else "Overfit")):
        DebugConfiguration.of(OUTPUT, **{field: value})  # type: ignore[arg-type]
