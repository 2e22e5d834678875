from __future__ import annotations

import logging
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hook_layer.configuration.parameters_json import make_save_config, read_save_parameters
from hook_layer.configuration.save_config import DEFAULT_SAVE_INTERVAL
from hook_layer.format.modes import ModeKeys
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
    with pytest.raises(ValueError, match="the rules VanishingGradient, Overfit have no data"):
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


@pytest.mark.parametrize(
    ("silent", "hook", "other", "expected"),
    [
        ({}, {}, {"save_interval": "1000"}, {"save_interval": "500"}),
        ({}, {}, {"save_steps": "7"}, {"save_interval": "500", "save_steps": "7"}),
        ({"reductions": "l2"}, {}, {}, {"reductions": "l2"}),
        (
            {"eval.save_interval": "1"},
            {},
            {"save_interval": "1000"},
            {"save_interval": "500", "eval.save_interval": "1"},
        ),
        (
            {"save_interval": "20"},
            {"save_interval": "5", "eval.save_interval": "1"},
            {"save_interval": "30"},
            {"save_interval": "20"},
        ),
        (
            {"start_step": "9"},
            {"save_interval": "5"},
            {"save_interval": "10"},
            {"save_interval": "5"},
        ),
        (
            {"save_steps": "7"},
            {},
            {"save_steps": "8"},
            {"save_interval": "500", "save_steps": "7,8"},
        ),
    ],
)
def test_what_is_not_said_is_the_hooks(
    silent: dict[str, str], hook: dict[str, str], other: dict[str, str], expected: dict[str, str]
) -> None:
    rules = [
        Rule.custom("A", rule_parameters={}, collections_to_save=[CollectionConfig("c", silent)]),
        Rule.custom("B", rule_parameters={}, collections_to_save=[CollectionConfig("c", other)]),
    ]
    for asked in (rules, rules[::-1]):
        made = DebugConfiguration.of(
            OUTPUT, hook_config=DebuggerHookConfig(hook_parameters=hook), rules=asked
        ).hook
        assert made is not None
        assert made.collection_configs == (CollectionConfig("c", expected),)


STEPS = {
    "save_interval": ["1", "10", "100", "500", "1000"],  # each divides those behind it
    "save_steps": ["0", "1,5", "7,9,20"],
    "start_step": ["0", "3", "40"],
    "end_step": ["50", "60", "700"],
}


def choices(key: str) -> list[str]:
    return STEPS[key.rpartition(".")[2]]


SAYINGS = st.dictionaries(
    st.sampled_from([f"{mode}{key}" for mode in ("", "train.", "eval.") for key in STEPS]),
    st.integers(0, 59),
    max_size=3,
).map(lambda said: {key: choices(key)[at % len(choices(key))] for key, at in said.items()})


@given(SAYINGS, SAYINGS, SAYINGS)
def test_nobody_gets_fewer_steps_than_alone(
    hook: dict[str, str], one: dict[str, str], other: dict[str, str]
) -> None:
    rules = [
        Rule.custom(name, collections_to_save=[CollectionConfig("c", said)])
        for name, said in (("A", one), ("B", other))
    ]
    config = DebuggerHookConfig(hook_parameters=hook)
    made = DebugConfiguration.of(OUTPUT, hook_config=config, rules=rules).hook
    assert made is not None
    (joined,) = made.collection_configs or ()

    def saved(collection: Mapping[str, str]) -> set[tuple[ModeKeys, int]]:
        base = read_save_parameters("hook", hook, {}) or {}
        own = read_save_parameters("collection", collection, base)
        steps = make_save_config(base if own is None else own, DEFAULT_SAVE_INTERVAL)
        probed = (*range(110), 499, 500, 600, 700, 1000)
        return {(m, at) for m in ModeKeys for at in probed if steps.should_save_step(m, at)}

    assert saved(joined.parameters) >= saved(one) | saved(other)


def test_what_cannot_be_joined_names_who_asks() -> None:
    hook = DebuggerHookConfig(
        collection_configs=[CollectionConfig("gradients", {"save_steps": "0;1"})]
    )
    with pytest.raises(
        ValueError,
        match=r"save_steps='0;1' must be a list.*VanishingGradient: save_interval=500",
    ):
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


def test_actions_that_a_rule_keeps_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    own = Rule.sagemaker(rule_configs.overtraining(), actions=Email("me@example.com"))
    DebugConfiguration.of(OUTPUT, rules=[OVERFIT, own], actions=StopTraining())
    (message,) = caplog.messages
    assert "stoptraining" in message
    assert "do not apply to Overtraining, which" in message
    caplog.clear()
    DebugConfiguration.of(OUTPUT, rules=[OVERFIT], actions=StopTraining())
    DebugConfiguration.of(OUTPUT, rules=[OVERFIT, own])
    assert not caplog.messages


def test_actions_in_the_json_of_a_rule_are_its_own(caplog: pytest.LogCaptureFixture) -> None:
    member = Rule.sagemaker(rule_configs.overfit(), actions=Email("me@example.com")).to_json(JOB)
    found = DebugConfiguration.of(OUTPUT, rules=[member], actions=StopTraining())
    assert found.to_request(JOB)["DebugRuleConfigurations"] == [member]
    assert "do not apply to Overfit, which" in caplog.text


def test_tensorboard_goes_below_the_output_path_unless_it_says_where() -> None:
    for board, expected in ((TensorBoardOutputConfig(), OUTPUT), ({"S3OutputPath": "s3://t"},) * 2):
        found = DebugConfiguration.of(OUTPUT, tensorboard=board).to_request(JOB)
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
        DebugConfiguration.of(OUTPUT, **{field: json})


@pytest.mark.parametrize(
    ("field", "value"),
    [("hook_config", "losses"), ("tensorboard", 7), ("actions", 7), ("rules", ["Overfit"])],
)
def test_what_is_nothing_of_the_kind_is_refused(field: str, value: object) -> None:
    with pytest.raises(TypeError, match=repr(value if field != "rules" else "Overfit")):
        DebugConfiguration.of(OUTPUT, **{field: value})
