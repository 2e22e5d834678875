"""What is wrong with a configuration file is said, with its place; whatever is in the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hook_layer.errors import HookConfigurationError
from hook_layer.format.modes import ModeKeys
from tests.hook_layer.hook_setups import collection, make


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "hook.json"


# Mistakes -----------------------------------------------------------------------------------------

_PARAMETERS = "HookParameters"
_COLLECTIONS = "CollectionConfigurations"


@pytest.mark.parametrize(
    ("document", "messages"),
    [
        ({"HookParameter": {}}, ["HookParameter", "did you mean 'HookParameters'"]),
        ({"CollectionConfiguration": []}, ["did you mean 'CollectionConfigurations'"]),
        ({_PARAMETERS: []}, ["HookParameters=[] must be a JSON object"]),
        ({_PARAMETERS: {"save_interval": 0}}, ["save_interval=0 must be an integer of at least 1"]),
        ({_PARAMETERS: {"eval.save_interval": "0"}}, ["HookParameters.eval.save_interval='0'"]),
        ({_PARAMETERS: {"save_interval": "ten"}}, ["HookParameters.save_interval='ten'"]),
        ({_PARAMETERS: {"save_interval": [1]}}, ["HookParameters.save_interval=[1]"]),
        ({_PARAMETERS: {"start_step": -1}}, ["HookParameters.start_step=-1"]),
        ({_PARAMETERS: {"save_steps": "1,b"}}, ["HookParameters.save_steps='b'"]),
        ({_PARAMETERS: {"save_steps": {"1": 2}}}, ["HookParameters.save_steps="]),
        (
            {_PARAMETERS: {"save_all": "maybe"}},
            ["save_all='maybe'", "true or false"],
        ),
        ({_PARAMETERS: {"dry_run": 3}}, ["HookParameters.dry_run=3"]),
        ({_PARAMETERS: {"reductions": "mean,meen"}}, ["HookParameters.reductions=", "'mean'?"]),
        ({_PARAMETERS: {"reductions": "mean_norm"}}, ["unknown 'mean_norm'"]),
        ({_PARAMETERS: {"reductions": "abs_l3"}}, ["unknown 'abs_l3'"]),
        ({_PARAMETERS: {"reductions": 3}}, ["HookParameters.reductions=3"]),
        ({_PARAMETERS: {"save_raw_tensor": "no"}}, ["HookParameters.save_raw_tensor='no'"]),
        ({_PARAMETERS: {"include_regex": "a,("}}, ["'(' in HookParameters.include_regex"]),
        ({_PARAMETERS: {"include_regex": "a{99999999999}"}}, ["not a regular expression"]),
        ({_PARAMETERS: {"include_regex": [1]}}, ["HookParameters.include_regex=[1]"]),
        ({_PARAMETERS: {"include_workers": "al"}}, ["include_workers='al'", "did you mean 'all'"]),
        ({_PARAMETERS: {"tensorboard_dir": ""}}, ["HookParameters.tensorboard_dir=''"]),
        ({_PARAMETERS: {"tensorboard_dir": 0}}, ["HookParameters.tensorboard_dir=0"]),
        ({_PARAMETERS: {"on_full": "block"}}, ["HookParameters.on_full='block'"]),
        ({_PARAMETERS: {"queue_bytes": "1e9"}}, ["HookParameters.queue_bytes='1e9'"]),
        ({_PARAMETERS: {"max_wait_s": "0"}}, ["HookParameters.max_wait_s=0.0"]),
        ({_COLLECTIONS: {}}, ["CollectionConfigurations={} must be a list"]),
        ({_COLLECTIONS: [3]}, ["CollectionConfigurations[0]=3 must be a JSON object"]),
        ({_COLLECTIONS: [{}]}, ["[0]: Must specify 'CollectionName' in JSON config."]),
        ({_COLLECTIONS: [{"CollectionName": ""}]}, ["[0].CollectionName=''"]),
        (
            {_COLLECTIONS: [{"CollectionName": "a"}, {"CollectionName": "b", "Parameters": {}}]},
            ["CollectionConfigurations[1].Parameters=", "did you mean 'CollectionParameters'"],
        ),
        (
            {_COLLECTIONS: [collection("a", save_intervals="2")]},
            ["[0].CollectionParameters.save_intervals='2'", "did you mean 'save_interval'"],
        ),
        ({_COLLECTIONS: [collection("a", save_all="2")]}, ["save_all='2' has an unknown key"]),
        ({_COLLECTIONS: [collection("a", save_histogram="x")]}, ["save_histogram='x'"]),
        ({_COLLECTIONS: [collection("a", **{"eval.end_step": "x"})]}, [".eval.end_step='x'"]),
        ({"LocalPath": 3}, ["LocalPath=3 must be a text"]),
        ({"S3OutputPath": []}, ["S3OutputPath=[]"]),
        ({"S3OutputPath": "my-bucket/runs"}, ["S3OutputPath=", "'s3://my-bucket/runs'"]),
        ({"S3OutputPath": "s3:/b/x"}, ["S3OutputPath='s3:/b/x'", "did you mean 's3://b/x'"]),
        ({"S3OutputPath": "s3//b/x"}, ["S3OutputPath='s3//b/x'", "did you mean 's3://b/x'"]),
        ({"CheckpointConfig": {"S3Uri": "b/x"}}, ["CheckpointConfig.S3Uri='b/x'", "'s3://b/x'"]),
        ({"LocalPath": "s3:b/x"}, ["LocalPath='s3:b/x'", "did you mean 's3://b/x'"]),
        (
            {_PARAMETERS: {"start_step": 9, "eval.end_step": "9"}},
            ["HookParameters, mode EVAL: start_step=9 must be below end_step=9"],
        ),
        ({"LocalPath": "ftp://x"}, ["LocalPath='ftp://x'"]),
        ({"LocalPath": "/x", "DebugHookConfig": {}}, ["LocalPath is outside of DebugHookConfig"]),
        ({"DebugHookConfig": {"LocalPat": 1}}, ["DebugHookConfig.LocalPat=1", "'LocalPath'"]),
        ({"TensorBoardOutputConfig": {"S3Path": "x"}}, ["TensorBoardOutputConfig.S3Path='x'"]),
        ({"CheckpointConfig": {"S3Uri": 1}}, ["CheckpointConfig.S3Uri=1"]),
        ({"DebugRuleConfigurations": {}}, ["DebugRuleConfigurations={} must be a list"]),
        ({"DebugRuleConfigurations": [{}]}, ["[0].RuleConfigurationName=None"]),
        ({"Actions": [{"Name": "x"}]}, ["Actions[0].name=None"]),
        ({"OptOutOfStop": "perhaps"}, ["OptOutOfStop='perhaps'"]),
        ({"TrainingJobName": "a/b"}, ["TrainingJobName='a/b' must be a name"]),
    ],
)
def test_a_mistake_is_named_with_its_place(
    path: Path, document: dict[str, Any], messages: list[str]
) -> None:
    for is_own in (False, True):
        with pytest.raises(HookConfigurationError) as caught:
            make(path, document, is_own=is_own, environ={"TRAINING_JOB_NAME": "j"})
        for message in messages:
            assert message in str(caught.value)


def test_the_file_is_named_with_a_mistake(path: Path) -> None:
    with pytest.raises(HookConfigurationError) as caught:
        make(path, {"HookParameters": {"save_interval": 0}})
    assert str(caught.value).startswith(f"{path}: HookParameters.save_interval=0")


# Whatever is in the file --------------------------------------------------------------------------

_KEYS = st.sampled_from(
    [
        "LocalPath",
        "HookParameters",
        "CollectionConfigurations",
        "CollectionName",
        "CollectionParameters",
        "DebugHookConfig",
        "TensorBoardOutputConfig",
        "CheckpointConfig",
        "DebugRuleConfigurations",
        "RuleConfigurationName",
        "Actions",
        "name",
        "OptOutOfStop",
        "TrainingJobName",
        "save_interval",
        "eval.save_steps",
        "reductions",
        "save_raw_tensor",
        "include_regex",
        "include_workers",
        "queue_bytes",
        "close_timeout_s",
    ]
)
_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=10)
    | st.sampled_from(["1", "true", "mean", "abs_l2", "a,b", "memory://x", "all", "losses", "x("])
)
_VALUES = st.recursive(
    _LEAVES,
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(_KEYS | st.text(), children, max_size=4)
    ),
    max_leaves=12,
)
_SHAPED = st.fixed_dictionaries(
    {},
    optional={
        "LocalPath": st.just("memory://x"),
        "HookParameters": st.dictionaries(_KEYS, _LEAVES, max_size=4),
        "CollectionConfigurations": st.lists(
            st.fixed_dictionaries(
                {"CollectionName": _LEAVES},
                optional={"CollectionParameters": st.dictionaries(_KEYS, _LEAVES, max_size=3)},
            ),
            max_size=2,
        ),
        "DebugRuleConfigurations": st.lists(st.dictionaries(_KEYS, _LEAVES, max_size=2)),
    },
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(document=_VALUES | _SHAPED, is_own=st.booleans())
def test_any_json_makes_a_hook_or_names_the_mistake(
    tmp_path: Path, document: Any, is_own: bool
) -> None:
    path = tmp_path / "hook.json"
    try:
        setup = make(path, document, is_own=is_own)
    except HookConfigurationError as error:
        assert str(path) in str(error)
        assert len(str(error)) < 3000
        return
    assert isinstance(document, dict)
    assert setup.manager.include >= {"losses"}
    try:
        setup.manager.due(ModeKeys.TRAIN, 0)
    except HookConfigurationError as error:
        assert "has not been configured" in str(error)
