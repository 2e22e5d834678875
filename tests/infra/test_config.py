"""Settings: every mistake in one message, text and JSON read alike."""

from __future__ import annotations

from typing import Any

import pytest

from infra.config import ConfigurationError, StepwatchConfig
from infra.rule_names import built_in_rule_names

RULE_NAMES = ("ExplodingTensor", "VanishingGradient")


def read(**settings: Any) -> StepwatchConfig:
    given = {"rules": ["VanishingGradient"], **settings}
    context = {f"stepwatch:{key}": value for key, value in given.items()}
    return StepwatchConfig.from_context(context, RULE_NAMES)


def mistakes(**settings: Any) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as caught:
        read(**settings)
    return caught.value.mistakes


def test_all_mistakes_stand_in_one_message() -> None:
    context = {
        "stepwatch:stage": "Not A Stage",
        "stepwatch:stop_polcy": "stop",
        "stepwatch:retention_days": "8",
        "stepwatch:batch_size": "many",
        "stepwatch:rules": {"a b": {}, "X": {"rule_to_invoke": "VanishingGradeint", "t": [1]}},
        "stop_rules": "X",
    }
    with pytest.raises(ConfigurationError) as caught:
        StepwatchConfig.from_context(context, RULE_NAMES)
    message = str(caught.value)
    assert message.startswith("9 mistakes in the settings")
    assert "stepwatch:stage = 'Not A Stage': allowed: at most 20 lower-case letters" in message
    assert "did you mean stepwatch:stop_policy?" in message
    assert "stepwatch:retention_days = '8': allowed: 1, 3, 5, 7, 14" in message
    assert "nearest: 7\n" in message
    assert "stepwatch:batch_size = 'many': allowed: a whole number from 1 to 10000" in message
    assert "stepwatch:rules.a b = 'a b': allowed: a name of at most 64" in message
    assert "rules.X.rule_to_invoke = 'VanishingGradeint'" in message
    assert "nearest: VanishingGradient" in message
    assert "stepwatch:rules.X.t = [1]: allowed: text, a number, true or false" in message
    assert "stop_rules = 'X': unknown key" in message
    assert "did you mean stepwatch:stop_rules?" in message


def test_defaults() -> None:
    config = read()
    assert config.stack_name == "Stepwatch-dev"
    assert (config.architecture, config.stop_policy, config.stop_rules) == ("arm64", "stop", ())


@pytest.mark.parametrize(
    "rules",
    [
        {"VanishingGradient": {"threshold": 1e-06}, "fast": {"rule_to_invoke": "ExplodingTensor"}},
        '{"VanishingGradient": {"threshold": 1e-06}, "fast": {"rule_to_invoke":"ExplodingTensor"}}',
        [
            {
                "RuleConfigurationName": "VanishingGradient",
                "RuleParameters": {"threshold": "1e-06"},
            },
            {
                "RuleConfigurationName": "fast",
                "RuleParameters": {"rule_to_invoke": "ExplodingTensor"},
            },
        ],
    ],
)
def test_rules_are_read_from_each_form(rules: Any) -> None:
    first, second = read(rules=rules).rules
    assert (first.name, first.rule_to_invoke) == ("VanishingGradient", "VanishingGradient")
    assert first.parameters == {"threshold": "1e-06"}
    assert (second.name, second.rule_to_invoke) == ("fast", "ExplodingTensor")
    assert second.environment_value() == '{"rule_to_invoke": "ExplodingTensor"}'


def test_names_can_be_typed_with_commas() -> None:
    config = read(rules="VanishingGradient,ExplodingTensor", stop_rules="ExplodingTensor")
    assert [rule.name for rule in config.rules] == ["VanishingGradient", "ExplodingTensor"]
    assert config.stop_rules == ("ExplodingTensor",)


@pytest.mark.parametrize(("text", "value"), [("true", True), ("FALSE", False), (False, False)])
def test_flags_are_read_from_text(text: Any, value: bool) -> None:
    assert read(stop_any_native_job=text).stop_any_native_job is value


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"rules": []}, "at least one rule"),
        ({"rules": 3}, "an object of rule configuration names"),
        (
            {"rules": ["VanishingGradient", "VanishingGradient"]},
            "each rule configuration name once",
        ),
        ({"stop_rules": ["VanishingGradeint"]}, "nearest: VanishingGradient"),
        ({"stop_policy": "Stop"}, "nearest: stop"),
        ({"batch_size": "11", "batching_window_s": "0"}, "at least 1 with a stepwatch:batch_size"),
        ({"evaluator_timeout_s": True}, "a whole number from 1 to 900"),
        ({"evaluator_timeout_s": 1.5}, "a whole number from 1 to 900"),
        ({"evaluator_memory_mb": 64}, "a whole number from 128 to 10240"),
        ({"tensor_bucket_name": "My_Bucket"}, "3 to 63 lower-case letters"),
        ({"stop_any_native_job": "maybe"}, "true or false"),
    ],
)
def test_one_mistake(settings: dict[str, Any], expected: str) -> None:
    (mistake,) = mistakes(**settings)
    assert expected in mistake


def test_missing_rules_are_a_mistake() -> None:
    with pytest.raises(ConfigurationError, match="stepwatch:rules: missing"):
        StepwatchConfig.from_context({}, RULE_NAMES)


def test_keys_of_cdk_are_left_alone() -> None:
    context = {
        "stepwatch:rules": ["VanishingGradient"],
        "@aws-cdk/core:newStyleStackSynthesis": True,
        "aws:cdk:enable-path-metadata": True,
        "aws-cdk:enableDiffNoFail": "true",
        "availability-zones:account=1:region=x": ["a"],
    }
    assert StepwatchConfig.from_context(context, RULE_NAMES).stage == "dev"


def test_built_in_rules_are_found_by_their_files(tmp_path: Any) -> None:
    (tmp_path / "vanishing_gradient.py").write_text(
        "class Helper(Base):\n    ...\n\n\nclass VanishingGradient(Rule):\n    ...\n"
    )
    (tmp_path / "_shared.py").write_text("class Shared(Rule):\n    ...\n")
    assert built_in_rule_names(tmp_path) == ("VanishingGradient",)
    assert "VanishingGradient" in built_in_rule_names()
