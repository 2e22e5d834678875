"""The environment, read once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lambdas.contracts import environment
from lambdas.shared.settings import (
    EvaluateRuleSettings,
    FinishJobSettings,
    SettingsError,
    StopJobSettings,
    SweepSettings,
)

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


def test_evaluator_without_a_queue_has_defaults() -> None:
    settings = EvaluateRuleSettings.from_environment(EVALUATE)
    assert settings.queue_url is None
    assert (settings.worker_wait_s, settings.worker_wait_steps) == (600.0, 20)


def test_evaluator_with_a_queue() -> None:
    settings = EvaluateRuleSettings.from_environment(
        EVALUATE
        | {
            environment.QUEUE_URL: "https://queue",
            environment.WORKER_WAIT_S: "90.5",
            environment.WORKER_WAIT_STEPS: "3",
        }
    )
    assert settings.queue_url == "https://queue"
    assert (settings.worker_wait_s, settings.worker_wait_steps) == (90.5, 3)


WATCH = {
    environment.STATE_TABLE_NAME: "states",
    environment.TENSOR_BUCKET_NAMES: "tensors",
    environment.RULE_QUEUE_URLS: (
        '{"A": "https://sqs/1/S-A", "B": "S-B", "C": "https://c/2/C", "D": ""}'
    ),
}


def test_sweep_and_finish_job() -> None:
    for settings in (
        SweepSettings.from_environment(WATCH),
        FinishJobSettings.from_environment(WATCH),
    ):
        assert settings.state_table_name == "states"
        assert settings.tensor_bucket_names == {"tensors"}
        assert settings.rule_queue_urls == {
            "A": "https://sqs/1/S-A",
            "B": "https://sqs/1/S-B",
            "C": "https://c/2/C",
            "D": "https://sqs/1/S-D",
        }
    assert SweepSettings.from_environment(WATCH).max_silence_s == 24 * 3600
    shorter = WATCH | {environment.MAX_SILENCE_S: "7200"}
    assert SweepSettings.from_environment(shorter).max_silence_s == 7200


@pytest.mark.parametrize("settings", [SweepSettings, FinishJobSettings])
@pytest.mark.parametrize("value", ["", "[]", "{", '{"A": 5}', "null", "[" * 100_000])
def test_queues_that_are_none_are_named(settings: Any, value: str) -> None:
    with pytest.raises(SettingsError, match=environment.RULE_QUEUE_URLS):
        settings.from_environment(WATCH | {environment.RULE_QUEUE_URLS: value})


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "soon", "1e999"])
def test_numbers_that_are_none_are_named(value: str) -> None:
    with pytest.raises(SettingsError, match=environment.MAX_SILENCE_S):
        SweepSettings.from_environment(WATCH | {environment.MAX_SILENCE_S: value})
    with pytest.raises(SettingsError, match=environment.WORKER_WAIT_S):
        EvaluateRuleSettings.from_environment(EVALUATE | {environment.WORKER_WAIT_S: value})


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


def test_stop_job_stops_only_jobs_that_opted_in_by_default() -> None:
    settings = StopJobSettings.from_environment(
        {environment.STATE_TABLE_NAME: "states", environment.TENSOR_BUCKET_NAMES: "tensors"}
    )
    assert settings.policy == "opt_in"
    assert settings.stops("any rule")


def test_stop_job() -> None:
    settings = StopJobSettings.from_environment(
        {
            environment.STATE_TABLE_NAME: "states",
            environment.TENSOR_BUCKET_NAMES: "tensors",
            environment.STOP_POLICY: "Observe",
            environment.STOP_RULES: "VanishingGradient, ExplodingTensor",
        }
    )
    assert settings.policy == "observe"
    assert settings.stops("ExplodingTensor")
    assert not settings.stops("LossNotDecreasing")


def test_stop_job_names_all_mistakes() -> None:
    with pytest.raises(SettingsError) as caught:
        StopJobSettings.from_environment(
            {environment.STOP_POLICY: "maybe", environment.STOP_CONFIRM_S: "soon"}
        )
    for name in (
        environment.STATE_TABLE_NAME,
        environment.TENSOR_BUCKET_NAMES,
        f"{environment.STOP_POLICY} is 'maybe': one of opt_in, observe, watched, all expected",
        f"{environment.STOP_CONFIRM_S} is 'soon'",
    ):
        assert name in str(caught.value)
