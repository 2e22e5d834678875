"""The environment, read once."""

from __future__ import annotations

import json

import pytest

from lambdas.contracts import environment
from lambdas.shared.settings import EvaluateRuleSettings, SettingsError, StopJobSettings

PARAMETERS = {"rule_to_invoke": "VanishingGradient", "threshold": "1e-7"}
EVALUATE = {
    environment.RULE_CONFIGURATION_NAME: "VanishingGradient",
    environment.RULE_PARAMETERS: json.dumps(PARAMETERS),
    environment.STATE_TABLE_NAME: "states",
    environment.TENSOR_BUCKET_NAMES: "tensors, more-tensors",
}


def test_evaluator() -> None:
    settings = EvaluateRuleSettings.from_environment(EVALUATE)
    assert settings.rule_configuration_name == "VanishingGradient"
    assert settings.rule_parameters == PARAMETERS
    assert settings.state_table_name == "states"
    assert settings.tensor_bucket_names == {"tensors", "more-tensors"}
    assert settings.event_bus_name == "default"


def test_all_that_is_missing_is_named_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        EvaluateRuleSettings.from_environment({})
    for name in EVALUATE:
        assert f"{name} is not set" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (environment.RULE_CONFIGURATION_NAME, "#registration"),
        (environment.RULE_CONFIGURATION_NAME, "x" * 257),
        (environment.RULE_PARAMETERS, "{"),
        (environment.RULE_PARAMETERS, "[" * 100_000),
        (environment.RULE_PARAMETERS, "[]"),
        (environment.RULE_PARAMETERS, '{"rule_to_invoke": 5}'),
        (environment.RULE_PARAMETERS, '{"threshold": "1"}'),
        (environment.TENSOR_BUCKET_NAMES, " , "),
        (environment.TENSOR_BUCKET_NAMES, "tensors,s3://other"),
    ],
)
def test_what_is_invalid_is_named(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=name):
        EvaluateRuleSettings.from_environment(EVALUATE | {name: value})


def test_stop_job_has_defaults_that_stop() -> None:
    settings = StopJobSettings.from_environment(
        {environment.STATE_TABLE_NAME: "states", environment.TENSOR_BUCKET_NAMES: "tensors"}
    )
    assert not settings.observe_only
    assert settings.stop_any_native_job
    assert settings.stops("any rule")


def test_stop_job() -> None:
    settings = StopJobSettings.from_environment(
        {
            environment.STATE_TABLE_NAME: "states",
            environment.TENSOR_BUCKET_NAMES: "tensors",
            environment.STOP_POLICY: "Observe",
            environment.STOP_RULES: "VanishingGradient, ExplodingTensor",
            environment.STOP_ANY_NATIVE_JOB: "False",
        }
    )
    assert settings.observe_only
    assert not settings.stop_any_native_job
    assert settings.stops("ExplodingTensor")
    assert not settings.stops("LossNotDecreasing")


def test_stop_job_names_all_mistakes() -> None:
    with pytest.raises(SettingsError) as caught:
        StopJobSettings.from_environment(
            {environment.STOP_POLICY: "maybe", environment.STOP_ANY_NATIVE_JOB: "yes"}
        )
    for name in (
        environment.STATE_TABLE_NAME,
        environment.TENSOR_BUCKET_NAMES,
        f"{environment.STOP_POLICY} is 'maybe': one of stop, observe expected",
        f"{environment.STOP_ANY_NATIVE_JOB} is 'yes'",
    ):
        assert name in str(caught.value)
