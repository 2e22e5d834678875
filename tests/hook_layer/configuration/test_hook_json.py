"""From JSON to a hook: every key, and what counts before what."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from hook_layer.capture.reductions import ReductionConfig
from hook_layer.configuration.hook_options import HookOptions
from hook_layer.configuration.hook_setup import HookArguments, set_up
from hook_layer.configuration.save_config import SaveConfigMode
from hook_layer.errors import HookConfigurationError
from hook_layer.format.modes import ModeKeys
from tests.hook_layer.hook_setups import (
    DEFAULTS,
    XGBOOST_LIKE,
    collection,
    make,
    saved,
    with_parameters,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "hook.json"


# What a file without anything means ---------------------------------------------------------------


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"HookParameters": None, "CollectionConfigurations": None},
        {"HookParameters": {}, "CollectionConfigurations": []},
        {"HookParameters": {"save_interval": None}, "DebugRuleConfigurations": None},
        {"DebugHookConfig": None},
        {"DebugHookConfig": {}, "TensorBoardOutputConfig": None},
    ],
)
def test_what_is_missing_or_null_takes_the_default(path: Path, document: dict[str, Any]) -> None:
    setup = make(path, document)
    assert setup.targets.out.uri == "file:///opt/ml/output/tensors/"
    assert setup.options == HookOptions()
    assert (setup.dry_run, setup.include_workers) == (False, "one")
    assert setup.manager.include == {"losses"}
    assert saved(setup, num_steps=501) == {"losses": [0, 500]}
    assert setup.manager.reduction_config == ReductionConfig(save_raw_tensor=True)
    assert setup.job.debug_rule_configurations is None


def test_the_default_interval_is_the_frameworks(path: Path) -> None:
    assert saved(set_up(HookArguments("memory://x"), {}, XGBOOST_LIKE)) == {"metrics": [0, 10, 20]}
    metrics = [collection("metrics", start_step="10")]
    assert saved(with_parameters(path, {}, defaults=XGBOOST_LIKE)) == {"metrics": [0, 10, 20]}
    setup = with_parameters(path, {}, metrics, defaults=XGBOOST_LIKE)
    assert saved(setup) == {"metrics": [10, 20]}
    setup = with_parameters(path, {"end_step": 20}, metrics, defaults=XGBOOST_LIKE)
    assert saved(setup) == {"metrics": [10]}


# Hook parameters ----------------------------------------------------------------------------------


@pytest.mark.parametrize("as_strings", [False, True])
def test_every_hook_parameter(path: Path, as_strings: bool) -> None:
    parameters: dict[str, Any] = {
        "save_interval": 10,
        "start_step": 5,
        "end_step": 25,
        "save_steps": "1,2",
        "eval.save_interval": 1,
        "reductions": "mean,median,l1,l2_norm,abs_max,abs_l1,abs_l2_norm",
        "save_raw_tensor": True,
        "save_shape": True,
        "save_all": True,
        "dry_run": True,
        "include_regex": "relu,conv{1,2}",
        "include_workers": "all",
        "statistics": False,
        "stop": "flag",
        "stop_poll_s": 2.5,
        "on_full": "drop",
        "queue_bytes": 1000,
        "close_timeout_s": 60,
        "max_wait_s": 1,
        "spool_bytes": 0,
        "spool_dir": "/spool",
        "termination_timeout_s": 3,
    }
    if as_strings:
        parameters = {key: str(value) for key, value in parameters.items()}
    setup = with_parameters(path, parameters)
    manager = setup.manager
    train = SaveConfigMode(10, 5, 25, [1, 2])
    assert manager.save_config.get_save_config(ModeKeys.TRAIN) == train
    assert manager.save_config.get_save_config(ModeKeys.EVAL) == SaveConfigMode(1, 5, 25, [1, 2])
    assert manager.reduction_config == ReductionConfig(
        ["mean", "median"], ["max"], ["l1", "l2"], ["l1", "l2"], True, True
    )
    assert manager.include == {"losses", "default", "all"}
    assert manager.get("default").include_regex == ["relu", "conv{1,2}"]
    assert manager.get("all").matches("anything")
    assert (setup.dry_run, setup.include_workers) == (True, "all")
    assert setup.options == HookOptions(
        False, "flag", 2.5, "drop", 1000, 60.0, 1.0, 0, "/spool", termination_timeout_s=3
    )


@pytest.mark.parametrize(
    ("given", "regexes"),
    [
        ("a, b", ["a", "b"]),
        (["a,b", "[c,d]"], ["a,b", "[c,d]"]),
        (r"conv\d{1,3}.weight", [r"conv\d{1,3}.weight"]),
        ("(a,b)|c", ["(a,b)|c"]),
    ],
)
def test_regular_expressions_with_commas(path: Path, given: Any, regexes: list[str]) -> None:
    setup = with_parameters(path, {"include_regex": given}, [collection("x", include_regex=given)])
    assert setup.manager.get("default").include_regex == regexes
    assert setup.manager.get("x").include_regex == regexes


@pytest.mark.parametrize("nothing", ["", [], ","])
def test_no_regular_expression_is_not_one_that_matches_everything(
    path: Path, nothing: object
) -> None:
    setup = with_parameters(path, {"include_regex": nothing})
    assert setup.manager.include == {"losses"}


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"save_raw_tensor": "False"}, ReductionConfig()),
        ({"save_raw_tensor": "True"}, ReductionConfig(save_raw_tensor=True)),
        ({"save_shape": "True"}, ReductionConfig(save_raw_tensor=True, save_shape=True)),
        ({"reductions": "mean"}, ReductionConfig(["mean"])),
        (
            {"reductions": ["mean"], "save_raw_tensor": 1},
            ReductionConfig(["mean"], save_raw_tensor=True),
        ),
        ({"reductions": ""}, ReductionConfig()),
        (
            {"raw_max_elements": "10"},
            ReductionConfig(save_raw_tensor=True, raw_max_elements=10),
        ),
    ],
)
def test_what_is_stored(path: Path, parameters: Any, expected: ReductionConfig) -> None:
    setup = with_parameters(path, parameters)
    assert setup.manager.reduction_config == expected
    setup = with_parameters(path, {}, [collection("gradients", **parameters)])
    assert setup.manager.get("gradients").reduction_config == expected


def test_flags_of_a_collection_change_the_hooks_reductions(path: Path) -> None:
    setup = with_parameters(
        path,
        {"reductions": "max"},
        [
            collection("gradients", save_raw_tensor="true"),
            collection("losses", reductions="min"),
            collection("a", include_regex="a"),
        ],
    )
    gradients = setup.manager.get("gradients").reduction_config
    assert gradients == ReductionConfig(["max"], save_raw_tensor=True)
    assert setup.manager.get("losses").reduction_config == ReductionConfig(["min"])
    assert setup.manager.get("a").reduction_config is None  # the hook's


# Collections --------------------------------------------------------------------------------------


def test_collections_are_saved_and_made(path: Path) -> None:
    relu = collection("relu", include_regex="relu", save_histogram="False", save_interval="7")
    setup = with_parameters(path, None, [{"CollectionName": "gradients"}, relu])
    assert setup.manager.include == {"losses", "gradients", "relu"}
    assert saved(setup)["relu"] == [0, 7, 14, 21, 28]
    assert setup.manager.get("relu").save_histogram is False
    assert setup.manager.get("gradients").include_regex == ["^gradient"]
    assert type(setup.manager.get("relu")) is DEFAULTS.collection_type


def test_a_collection_without_tensors_is_refused_where_it_always_is(path: Path) -> None:
    setup = with_parameters(path, None, [{"CollectionName": "gradients_of_a"}])
    with pytest.raises(HookConfigurationError, match="did you mean 'gradients'"):
        setup.manager.due(ModeKeys.TRAIN, 0)
    setup.manager.get("gradients_of_a").include("grad")  # which the script may do in time
    assert setup.manager.due(ModeKeys.TRAIN, 0)


@pytest.mark.parametrize("name", ["gradient", "Gradients", "gradeints", "loses", "loss"])
def test_a_misspelled_collection_is_refused_at_once(path: Path, name: str) -> None:
    meant = "losses" if name.startswith("l") else "gradients"
    message = f"has {name!r}: did you mean '{meant}'"
    with pytest.raises(HookConfigurationError, match=f"hook.json: .* {message}"):
        with_parameters(path, None, [{"CollectionName": name}])
    setup = with_parameters(path, None, [collection(name, include_regex="x")])
    assert saved(setup)[name]


@pytest.mark.parametrize("name", ["my_gradients", "losses2", "relu", "grad", "gradients"])
def test_a_name_that_is_no_slip_of_the_pen_may_be_made_later(path: Path, name: str) -> None:
    with_parameters(path, None, [{"CollectionName": name}])
    setup = set_up(HookArguments("memory://json", include_collections=[name]), {}, DEFAULTS)
    setup.manager.get(name).include("x")
    assert saved(setup)[name]


@pytest.mark.parametrize("value", [None, "none", "None"])
def test_no_time_limit_can_be_said(path: Path, value: str | None) -> None:
    names = ("close_timeout_s", "termination_timeout_s")
    options = with_parameters(path, dict.fromkeys(names, value)).options
    assert [getattr(options, name) for name in names] == [None, None]
    assert with_parameters(path, {"stop_poll_s": None}).options == HookOptions()


_LEVELS = [
    ("hook", "save_interval", 2),
    ("hook", "train.save_interval", 3),
    ("collection", "save_interval", 5),
    ("collection", "train.save_interval", 7),
]


@pytest.mark.parametrize("given", range(16))
@pytest.mark.parametrize("mode", list(ModeKeys))
def test_what_is_more_special_counts(path: Path, given: int, mode: ModeKeys) -> None:
    levels = [level for bit, level in enumerate(_LEVELS) if given >> bit & 1]
    hook = {key: str(value) for where, key, value in levels if where == "hook"}
    of_collection = {key: value for where, key, value in levels if where == "collection"}
    counting = [v for _, key, v in levels if "." not in key or mode is ModeKeys.TRAIN]
    setup = with_parameters(path, hook, [collection("x", include_regex="x", **of_collection)])
    assert saved(setup, mode)["x"] == list(range(0, 30, (counting or [500])[-1]))


def test_each_key_counts_by_itself(path: Path) -> None:
    hook = {"save_interval": 10, "eval.start_step": 7, "save_steps": "3"}
    x = collection("x", include_regex="x", start_step=1, **{"eval.save_interval": "2"})
    setup = with_parameters(path, hook, [x])
    assert saved(setup, ModeKeys.TRAIN)["x"] == [3, 10, 20]
    assert saved(setup, ModeKeys.EVAL, 7)["x"] == [2, 3, 4, 6]  # start_step of x counts, not 7
    assert saved(setup, ModeKeys.EVAL, 21)["losses"] == [3, 10, 20]


@pytest.mark.parametrize("prefix", ["train", "eval", "predict", "global"])
def test_every_mode_has_its_prefix(path: Path, prefix: str) -> None:
    parameters = {
        f"{prefix}.save_interval": "4",
        f"{prefix}.start_step": "1",
        f"{prefix}.end_step": "12",
        f"{prefix}.save_steps": "15,16",
    }
    setup = with_parameters(path, parameters)
    for mode in ModeKeys:
        expected = [4, 8, 15, 16] if mode.name.lower() == prefix else [0]
        assert saved(setup, mode)["losses"] == expected


# The job ------------------------------------------------------------------------------------------


def test_our_file_describes_the_job(path: Path) -> None:
    rules = [{"RuleConfigurationName": "VG", "RuleParameters": {"threshold": "1e-7"}}]
    document = {
        "TrainingJobName": "mnist-7",
        "DebugHookConfig": {
            "S3OutputPath": "memory://bucket/x",
            "HookParameters": {"save_interval": "3"},
        },
        "TensorBoardOutputConfig": {"S3OutputPath": "memory://tb"},
        "CheckpointConfig": {"S3Uri": "s3://bucket/c", "LocalPath": "/c"},
        "DebugRuleConfigurations": rules,
        "Actions": [{"name": "stoptraining"}],
        "OptOutOfStop": "true",
        "RoleArn": "arn:aws:iam::1:role/r",  # a whole request may be given
    }
    setup = make(path, document, is_own=True)
    assert setup.targets.out.uri == "memory://bucket/x/mnist-7/debug-output/"
    assert setup.targets.tensorboard is not None
    assert setup.targets.tensorboard.uri == "memory://tb/mnist-7/tensorboard-output/"
    assert setup.manager.has_summaries
    assert setup.targets.checkpoint is not None
    assert setup.targets.checkpoint.s3_uri == "s3://bucket/c"
    job = setup.job
    assert (job.training_job_name, job.opt_out_of_stop) == ("mnist-7", True)
    assert job.debug_rule_configurations == tuple(rules)
    assert job.actions == ({"name": "stoptraining"},)
    assert saved(setup, num_steps=4) == {"losses": [0, 3]}


def test_our_file_describes_the_job_of_a_hook_that_is_made_by_arguments(path: Path) -> None:
    document = {
        "S3OutputPath": "memory://bucket/x",
        "HookParameters": {"save_interval": "3"},
        "DebugRuleConfigurations": [{"RuleConfigurationName": "VG"}],
    }
    path.write_text(json.dumps(document))
    environ = {"STEPWATCH_CONFIG": str(path), "TRAINING_JOB_NAME": "j"}
    setup = set_up(HookArguments(), {}, DEFAULTS, environ=environ)
    assert setup.targets.out.uri == "memory://bucket/x/j/debug-output/"
    setup = set_up(HookArguments("memory://mine"), {}, DEFAULTS, environ=environ)
    assert setup.targets.out.uri == "memory://mine/"
    assert setup.job.debug_rule_configurations == ({"RuleConfigurationName": "VG"},)
    assert saved(setup, num_steps=4) == {"losses": [0]}  # its parameters are another hook's
    assert set_up(HookArguments("memory://mine"), {}, DEFAULTS, environ={}).job.actions == ()


def test_switched_off_nothing_is_read(path: Path) -> None:
    path.write_text("{")
    environ = {"STEPWATCH_CONFIG": str(path), "USE_SMDEBUG": "0"}
    setup = set_up(HookArguments(), {}, DEFAULTS, environ=environ)
    assert setup.targets.out.uri.startswith("memory:")


def test_the_example_in_the_documentation(path: Path) -> None:
    reference = Path(__file__).parents[3] / "docs" / "reference" / "hook-configuration.md"
    text = reference.read_text(encoding="utf-8")
    example = json.loads(text.partition('```json title="stepwatch.json"\n')[2].partition("```")[0])
    example["DebugHookConfig"]["S3OutputPath"] = "memory://documentation"
    setup = make(path, example, is_own=True)
    assert setup.manager.include == {"losses", "gradients", "relu"}
    assert setup.manager.get("relu").include_regex == [r"relu\d{1,2}_output"]


def test_what_only_the_platform_knows_is_no_mistake_in_its_file(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        make(path, {"LocalPath": "memory://x", "SomethingOfNextYear": 1})
    assert "SomethingOfNextYear" in caplog.text
    with pytest.raises(HookConfigurationError, match="SomethingOfNextYear=1 has an unknown key"):
        make(path, {"LocalPath": "memory://x", "SomethingOfNextYear": 1}, is_own=True)
