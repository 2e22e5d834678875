from __future__ import annotations

from collections.abc import Callable
from typing import Any

import boto3
import botocore.validate
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rule_runtime.configuration import ApiLimitError, check_limits


def request_of_all() -> dict[str, Any]:
    return {
        "DebugHookConfig": {
            "S3OutputPath": "s3://bucket/prefix",
            "LocalPath": "/opt/ml/output/tensors",
            "HookParameters": {"save_interval": "10"},
            "CollectionConfigurations": [
                {"CollectionName": "losses", "CollectionParameters": {"save_interval": "1"}}
            ],
        },
        "DebugRuleConfigurations": [
            {
                "RuleConfigurationName": "Overfit",
                "RuleEvaluatorImage": "image",
                "InstanceType": "ml.t3.medium",
                "VolumeSizeInGB": 0,
                "RuleParameters": {"patience": "3"},
            }
        ],
        "TensorBoardOutputConfig": {"S3OutputPath": "s3://bucket/prefix"},
    }


def test_what_the_api_takes_passes() -> None:
    check_limits(request_of_all())
    check_limits({"TrainingJobName": "x", "Others": ["are not looked at"]})


def hook(request: dict[str, Any]) -> Any:
    return request["DebugHookConfig"]


def collection(request: dict[str, Any]) -> Any:
    return hook(request)["CollectionConfigurations"][0]


def rule(request: dict[str, Any]) -> Any:
    return request["DebugRuleConfigurations"][0]


MISTAKES: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (lambda r: hook(r).pop("S3OutputPath"), "DebugHookConfig.S3OutputPath is missing"),
    (lambda r: hook(r).update(S3OutputPath="bucket/x"), "must be a URI like s3://bucket/prefix"),
    (lambda r: hook(r).update(S3OutputPath="s3://b/" + "x" * 1020), "at most 1024"),
    (lambda r: hook(r).update(LocalPath="/" * 4097), "DebugHookConfig.LocalPath has 4097"),
    (lambda r: hook(r).update(Colour="red"), "DebugHookConfig has 'Colour'"),
    (
        lambda r: hook(r).update(HookParameters={str(i): "" for i in range(21)}),
        "DebugHookConfig.HookParameters has 21 members; the API takes 20",
    ),
    (
        lambda r: hook(r).update(HookParameters={"save_interval": 10}),
        r"DebugHookConfig.HookParameters['save_interval'] is 10, but must be a string",
    ),
    (
        lambda r: hook(r).update(CollectionConfigurations=[collection(r)] * 21),
        "CollectionConfigurations has 21 members; the API takes 20",
    ),
    (lambda r: collection(r).update(CollectionName=""), "CollectionName has 0 characters"),
    (
        lambda r: collection(r).update(CollectionParameters={"include_regex": "x" * 257}),
        "CollectionConfigurations[0].CollectionParameters (losses)['include_regex'] has 257",
    ),
    (lambda r: r["DebugRuleConfigurations"].append(rule(r)), "'Overfit' for a second time"),
    (
        lambda r: r.update(DebugRuleConfigurations=[rule(r)] * 21),
        "DebugRuleConfigurations has 21 members",
    ),
    (lambda r: rule(r).update(RuleConfigurationName="x" * 257), "1 to 256"),
    (lambda r: rule(r).update(RuleEvaluatorImage="x" * 256), "1 to 255"),
    (lambda r: rule(r).pop("RuleEvaluatorImage"), "RuleEvaluatorImage (Overfit) is None"),
    (lambda r: rule(r).update(InstanceType="t3.medium"), "must be like ml.t3.medium"),
    (lambda r: rule(r).update(VolumeSizeInGB=-1), "must be 0 or more"),
    (lambda r: rule(r).update(VolumeSizeInGB="30"), "must be a whole number of GB"),
    (
        lambda r: rule(r).update(RuleParameters={str(i): "" for i in range(101)}),
        "RuleParameters (Overfit) has 101 members; the API takes 100",
    ),
    (lambda r: rule(r).update(RuleParameters={"": "x"}), "a key of DebugRuleConfigurations[0]"),
    (lambda r: r["TensorBoardOutputConfig"].clear(), "TensorBoardOutputConfig.S3OutputPath is"),
    (lambda r: r.update(DebugHookConfig="x"), "DebugHookConfig is 'x', but must be an object"),
    (lambda r: r.update(DebugRuleConfigurations="x"), "DebugRuleConfigurations is 'x'"),
    (lambda r: r.update(DebugRuleConfigurations=["x"]), "DebugRuleConfigurations[0] is 'x'"),
    (lambda r: r.update(TensorBoardOutputConfig=[]), "TensorBoardOutputConfig is []"),
]


@pytest.mark.parametrize(("make", "message"), MISTAKES)
def test_each_mistake_names_its_field(make: Callable[[dict[str, Any]], Any], message: str) -> None:
    request = request_of_all()
    make(request)
    with pytest.raises(ApiLimitError) as reported:
        check_limits(request)
    assert message in str(reported.value)


def test_all_mistakes_come_at_once() -> None:
    request = request_of_all()
    for make, _ in MISTAKES[:5]:
        make(request)
    with pytest.raises(ApiLimitError) as reported:
        check_limits(request)
    assert len(reported.value.problems) >= 3


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "DebugHookConfig": json_values,
            "DebugRuleConfigurations": json_values,
            "TensorBoardOutputConfig": json_values,
        },
    )
)
def test_anything_is_answered_by_this_error_or_none(request_: dict[str, Any]) -> None:
    try:
        check_limits(request_)
    except ApiLimitError as error:
        assert error.problems


def test_what_passes_here_passes_the_real_clients_own_checks() -> None:
    client = boto3.client(
        "sagemaker", "us-east-1", aws_access_key_id="x", aws_secret_access_key="x"
    )
    shape = client.meta.service_model.operation_model("CreateTrainingJob").input_shape
    assert shape is not None
    report = botocore.validate.ParamValidator().validate(request_of_all(), shape)
    reported = report.generate_report()
    assert "Debug" not in reported
    assert "TensorBoard" not in reported
