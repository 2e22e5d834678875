"""Every public name of the original's for hooks of PyTorch: there, with its arguments, and at work.

`smdebug_api.py` is the table. Each of its names has a test of what it does, marked by `does`; those
of configurations are in `test_smdebug_api_configs.py`.
"""

from __future__ import annotations

import importlib
import itertools
import json
import logging
import pickle
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import hook_layer
import hook_layer.pytorch as smd
from hook_layer.errors import HookConfigurationError
from hook_layer.run.folder_claim import FolderClaim
from hook_layer.storage.local import LocalStore
from hook_layer.testing.written_trial import WrittenTrial
from tests.hook_layer import smdebug_api
from tests.hook_layer.smdebug_api import (
    CALLABLES,
    CONSTANTS,
    OTHER_DEFAULTS,
    XGBOOST,
    Checks,
    arguments_of,
    found,
)
from tests.interop.environment import SMDEBUG_PYTHON

_numbers = itertools.count()
does = Checks("Hook", "get_hook", "set_hook", "del_hook")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.relu = nn.ReLU()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.relu(self.fc(inputs))
        return outputs


@pytest.fixture(autouse=True)
def _no_hook() -> None:
    smd.del_hook()


def new_uri() -> str:
    return f"memory://smdebug-api-{next(_numbers)}/"


def make(**arguments: Any) -> smd.Hook:
    return smd.Hook(
        **{"out_dir": new_uri(), "save_config": smd.SaveConfig(save_interval=1), **arguments}
    )


def train(
    hook: smd.Hook,
    num_steps: int = 2,
    *,
    within: Callable[[smd.Hook, Net], None] = lambda _hook, _model: None,
    close: bool = True,
) -> WrittenTrial:
    """Train a model of two layers, and return what was written."""
    torch.manual_seed(0)
    model, criterion = Net(), nn.CrossEntropyLoss()
    hook.register_module(model)
    hook.register_loss(criterion)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(num_steps):
        optimizer.zero_grad()
        criterion(model(torch.rand(2, 4)), torch.tensor([0, 1])).backward()
        within(hook, model)
        optimizer.step()
    if close:
        hook.close()
    return WrittenTrial(hook.trial_uri)


WEIGHT, GRADIENT, LOSS = "Net_fc.weight", "gradient/Net_fc.weight", "CrossEntropyLoss_output_0"


# The table ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CALLABLES)
def test_the_name_is_there_with_its_arguments(name: str) -> None:
    place, _, expected = CALLABLES[name]
    assert arguments_of(found(place), with_defaults=name not in OTHER_DEFAULTS) == expected


@pytest.mark.parametrize("name", XGBOOST)
def test_the_name_is_there_for_xgboost_with_its_arguments(name: str) -> None:
    pytest.importorskip("xgboost")
    assert arguments_of(found(f"hook_layer.xgboost:{name}")) == XGBOOST[name]


@pytest.mark.other_environment
def test_the_table_is_the_originals() -> None:
    done = subprocess.run(
        [str(SMDEBUG_PYTHON), "-I", smdebug_api.__file__],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    theirs = json.loads(done.stdout.splitlines()[-1])
    assert theirs == {name: arguments for name, (_, _, arguments) in CALLABLES.items()}


def test_every_name_is_used_by_a_test() -> None:
    assert does.missing == set()


@pytest.mark.parametrize("module", CONSTANTS)
def test_the_module_has_its_names(module: str) -> None:
    if module.endswith("xgboost"):
        pytest.importorskip("xgboost")
    ours = importlib.import_module(module.replace("smdebug", "hook_layer"))
    for name in CONSTANTS[module]:
        assert name in ours.__all__
        assert getattr(ours, name) is not None


def test_what_is_read_elsewhere_says_where() -> None:
    with pytest.raises(AttributeError, match=r"from stepwatch import create_trial"):
        smd.create_trial  # noqa: B018
    with pytest.raises(AttributeError, match="nothing_of_this_name"):
        smd.nothing_of_this_name  # noqa: B018
    with pytest.raises(AttributeError, match="nothing_of_this_name"):
        hook_layer.nothing_of_this_name  # noqa: B018
    assert hook_layer.modes is smd.modes
    assert hook_layer.__version__


# Hook: its arguments ------------------------------------------------------------------------------


@does("Hook", "Hook.register_module", "Hook.register_loss", "Hook.close")
def test_out_dir_takes_losses_by_default(tmp_path: Path) -> None:
    train(smd.Hook(str(tmp_path / "trial")), 3)
    trial = WrittenTrial((tmp_path / "trial").as_uri())
    assert list(trial.indexes()) == [0]
    save_config = trial.collections().collections["losses"].save_config
    assert save_config is not None
    assert save_config["GLOBAL"]["save_interval"] == 500
    assert LOSS in trial.names(0)
    assert not trial.names(0) & {WEIGHT, GRADIENT}
    assert trial.end_marker() is not None


def test_export_tensorboard_and_tensorboard_dir(tmp_path: Path) -> None:
    beside, elsewhere = tmp_path / "trial", tmp_path / "board"
    train(make(out_dir=beside, export_tensorboard=True))
    train(make(out_dir=tmp_path / "other", tensorboard_dir=elsewhere))
    train(make(out_dir=tmp_path / "none"))
    assert list((beside / "tensorboard/GLOBAL").glob("*.tfevents*"))
    assert list((elsewhere / "GLOBAL").glob("*.tfevents*"))
    assert not (tmp_path / "other/tensorboard").exists()
    assert not (tmp_path / "none/tensorboard").exists()


def test_out_dir_and_tensorboard_dir_are_the_given_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    relative = make(out_dir="runs/a", export_tensorboard=True)
    assert (relative.out_dir, relative.tensorboard_dir) == ("runs/a", "runs/a/tensorboard")
    assert relative.trial_uri == f"{(tmp_path / 'runs/a').as_uri()}/"
    in_home = make(out_dir=Path("~/b"), tensorboard_dir="~/board")
    assert in_home.out_dir == f"{tmp_path}/b"
    assert in_home.tensorboard_dir == f"{tmp_path}/board"
    remote = make(out_dir="s3://bucket/c")
    assert (remote.out_dir, remote.tensorboard_dir) == ("s3://bucket/c", None)
    assert remote.trial_uri == "s3://bucket/c/"
    (tmp_path / "hook.json").write_text('{"LocalPath": "tensors"}')
    assert smd.Hook.create_from_json_file("hook.json").out_dir == "tensors"
    monkeypatch.setenv("USE_SMDEBUG", "0")
    assert make(out_dir="off").out_dir == "off"


def test_out_dir_is_the_folder_that_a_hook_moved_to(tmp_path: Path) -> None:
    asked = tmp_path / "of two"
    holder = FolderClaim(LocalStore(asked))
    assert holder.take() is None
    hook = make(out_dir=asked, export_tensorboard=True)
    train(hook)
    holder.release()
    assert hook.out_dir == f"{asked}-2"
    assert hook.tensorboard_dir == f"{asked}-2/tensorboard"


def test_dry_run_stores_nothing() -> None:
    assert list(train(make(dry_run=True)).store.list()) == []


def test_reduction_config_is_for_what_does_not_say_it() -> None:
    config = smd.ReductionConfig(["mean", "median"], norms=["l2"], abs_reductions=["max"])
    trial = train(make(reduction_config=config, include_collections="weights"))
    prefix = "smdebug/reductions/"
    assert {n for n in trial.names(0) if n.startswith(prefix)} == {
        f"{prefix}{name}/{WEIGHT}" for name in ("mean", "median", "l2", "abs_max")
    }
    assert WEIGHT not in trial.values(0)
    assert LOSS in trial.values(0)  # scalars are never reduced
    statistics = trial.statistics(0)[WEIGHT]
    assert trial.values(0)[f"{prefix}l2/{WEIGHT}"] == pytest.approx(statistics["l2"])
    reductions = trial.collections().collections["weights"].reduction_config
    assert reductions is not None
    assert reductions["reductions"] == "mean,l2_norm,abs_max"  # the original knows no median


def test_the_median_of_a_tensor_is_numpys() -> None:
    config = smd.ReductionConfig(["median"], ["median"], save_raw_tensor=True)
    values = train(make(reduction_config=config, include_collections="weights")).values(0)
    assert values[WEIGHT].size % 2 == 0  # torch's own median is the lower one of both in the middle
    for prefix, array in (("", values[WEIGHT]), ("abs_", np.abs(values[WEIGHT]))):
        stored = values[f"smdebug/reductions/{prefix}median/{WEIGHT}"]
        assert stored == pytest.approx(np.median(array))


@pytest.mark.parametrize("regex", ["fc.weight$", ["nothing", "fc.weight$"]])
def test_include_regex_fills_the_default_collection(regex: Any) -> None:
    trial = train(make(include_regex=regex))
    assert {WEIGHT, GRADIENT} <= trial.names(0)
    assert set(trial.collections().collections["default"].tensor_names) == {WEIGHT, GRADIENT}


@pytest.mark.parametrize("names", ["gradients", ["gradients"], [["gradients"], "biases"]])
def test_include_collections_come_with_the_default(names: Any) -> None:
    assert {GRADIENT, LOSS} <= train(make(include_collections=names)).names(0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"save_all": "yes"}, "save_all='yes' must be True or False"),
        ({"dry_run": None}, "dry_run=None"),
        ({"export_tensorboard": "x"}, "export_tensorboard='x'"),
        ({"tensorboard_dir": 3}, "tensorboard_dir=3"),
        ({"out_dir": 3}, "out_dir=3"),
        ({"out_dir": "ftp://x"}, "no store for ftp"),
        ({"out_dir": None}, "out_dir is missing"),
        ({"stop": "never"}, "stop='never'"),
        ({"reduction_config": "mean"}, "must be a ReductionConfig"),
        ({"save_config": 10}, "save_config=10"),
        ({"include_regex": 3}, "include_regex=3"),
        ({"include_regex": "("}, "not a regular expression"),
        ({"include_collections": {"a": 1}}, "include_collections="),
        ({"include_workers": None}, "include_workers=None"),
        ({"include_workers": "alle"}, "did you mean 'all'"),
    ],
)
def test_a_wrong_argument_is_refused_at_once(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(HookConfigurationError, match=message):
        make(**arguments)


def test_an_argument_that_nobody_knows() -> None:
    with pytest.raises(TypeError, match="did you mean 'queue_bytes'"):
        make(queue_byte=3)


# Hook: its methods --------------------------------------------------------------------------------


@does("Hook.get_collection", "Hook.get_collections", "Hook.add_collection", "Collection.include")
def test_collections_of_a_hook() -> None:
    hook = make(include_collections=["mine", "other"])
    assert set(hook.get_collections()) == {
        "default", "all", "weights", "biases", "gradients", "losses",
    }  # fmt: skip
    hook.get_collection("mine").include("fc.bias$")
    hook.add_collection(smd.Collection("other", ["fc.weight$"]))
    assert hook.get_collection("other", create=False) is hook.get_collections()["other"]
    with pytest.raises(HookConfigurationError, match="did you mean 'other'"):
        hook.get_collection("othre", create=False)
    with pytest.raises(HookConfigurationError, match="must be a Collection"):
        hook.add_collection("other")
    names = train(hook).names(0)
    assert {"Net_fc.bias", WEIGHT} <= names


def test_an_unknown_collection_is_created_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    hook = make(include_collections=["mine", "gradeints"])

    def save(hook: smd.Hook, _: Net) -> None:
        hook.save_tensor("own", torch.ones(2), collections_to_write="mine")

    trial = train(hook, within=save)
    assert trial.values(0)["own"].tolist() == [1, 1]
    collections = trial.collections().collections
    assert collections["mine"].tensor_names == ("own",)
    assert collections["gradeints"].tensor_names == ()
    warnings = [r.getMessage() for r in caplog.records if "is unknown" in r.getMessage()]
    assert len(warnings) == 2
    assert "Did you mean 'gradients'?" in warnings[0]


@does("Hook.set_mode")
def test_modes_count_by_themselves() -> None:
    hook = make()
    hook.set_mode(smd.modes.TRAIN)
    train(hook, close=False)
    hook.set_mode(smd.modes.EVAL)
    trial = train(hook)
    indexes = trial.indexes().values()
    assert [(i.mode, i.mode_step) for i in indexes] == [
        (smd.modes.TRAIN, 0),
        (smd.modes.TRAIN, 1),
        (smd.modes.EVAL, 0),
        (smd.modes.EVAL, 1),
    ]
    with pytest.raises(HookConfigurationError, match=r"did you mean 'modes\.TRAIN'"):
        hook.set_mode("modes.TRIAN")


@does("Hook.save_scalar")
def test_save_scalar() -> None:
    def save(hook: smd.Hook, _: Net) -> None:
        hook.save_scalar("lr", 0.5)
        hook.save_scalar("batch", torch.tensor([3]), sm_metric=True, timestamp=12.5)

    trial = train(make(), within=save)
    assert trial.values(0)["scalar/lr"].item() == 0.5
    assert trial.records(0)["scalar/batch"].wall_time == 12.5
    with pytest.raises(TypeError, match="one number"):
        make().save_scalar("lr", torch.ones(2))


@does("Hook.save_tensor")
def test_save_tensor_into_one_or_several_collections() -> None:
    def save(hook: smd.Hook, _: Net) -> None:
        hook.save_tensor("mine", np.arange(3.0))
        hook.save_tensor("both", torch.ones(2), collections_to_write=["a", "b"])

    trial = train(make(), within=save)
    assert trial.values(1)["mine"].tolist() == [0, 1, 2]
    collections = trial.collections().collections
    assert "mine" in collections["default"].tensor_names
    assert "both" in collections["a"].tensor_names
    assert "both" in collections["b"].tensor_names


@does("Hook.has_default_hook_configuration", "Hook.has_default_configuration")
def test_whether_the_configuration_is_the_default() -> None:
    assert make().has_default_hook_configuration()
    assert make().has_default_configuration()
    for arguments in (
        {"save_all": True},
        {"include_collections": "weights"},
        {"include_regex": "x"},
    ):
        assert not make(**arguments).has_default_configuration()
    hook = make(include_collections="weights")
    assert hook.has_default_hook_configuration(["losses", "weights"])
    assert not hook.has_default_hook_configuration(["weights"])


@does("Hook.should_save_tensor_or_collection")
def test_what_is_saved_in_this_step() -> None:
    seen: list[tuple[bool, ...]] = []

    def ask(hook: smd.Hook, _: Net) -> None:
        should = hook.should_save_tensor_or_collection
        seen.append(
            (
                should("fc.weight", "gradients"),
                should("fc.weight", "weights"),
                should("my_loss", "losses"),
                should("Loss_output_0", "losses"),
            )
        )

    hook = make(include_collections="gradients", save_config=smd.SaveConfig(save_interval=2))
    assert not hook.should_save_tensor_or_collection("x", "gradients")
    train(hook, within=ask)
    assert seen == [(True, False, False, True), (False, False, False, False)]


@does("Hook.export_collections")
def test_export_collections_does_not_wait_for_a_step() -> None:
    hook = make()
    hook.get_collection("mine").include("x")
    hook.export_collections()
    assert hook.flush(20)
    collections = WrittenTrial(hook.out_dir).collections()
    assert collections.collections["mine"].include_regex == ("x",)
    hook.close(end_of_training=False)


@does("Hook.record_trace_events")
def test_trace_events_are_taken_and_said_to_go_nowhere(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hook_layer.core.hook.BaseHook._has_warned_of_traces", False)
    hook = make()
    for _ in range(3):
        hook.record_trace_events(1.0, "forward", "conv", "X", 0.5, pid=1, tid=2)
    messages = [record.message for record in caplog.records]
    assert sum("record_trace_events stores nothing" in message for message in messages) == 1
    hook.close()
    assert list(WrittenTrial(hook.out_dir).store.list()) == []


@does("Hook.register_hook")
def test_register_hook_is_register_module() -> None:
    hook, model = make(include_collections="weights"), Net()
    hook.register_hook(model)
    model(torch.rand(2, 4))
    hook.close()
    assert WEIGHT in WrittenTrial(hook.out_dir).names(0)
    for register in (hook.register_hook, hook.register_module, hook.register_loss):
        with pytest.raises(HookConfigurationError):
            register(3)


@does("Hook.record_tensor_value")
def test_record_tensor_value_is_a_functional_loss() -> None:
    trial = train(
        make(), within=lambda hook, _: hook.record_tensor_value("nll_loss", torch.ones(()))
    )
    assert trial.values(0)["nll_loss_output_0"].item() == 1
    assert "nll_loss_output_0" in trial.collections().collections["losses"].tensor_names


@does("Hook.count_parameters")
def test_count_parameters(caplog: pytest.LogCaptureFixture) -> None:
    model = Net()
    model.fc.bias.requires_grad_(False)
    with caplog.at_level(logging.INFO):
        assert make().count_parameters(model) == 12
    assert "fc.weight has 12 elements" in caplog.text


@does("Hook.forward_pre_hook", "Hook.forward_hook", "Hook.backward_hook")
def test_hooks_for_scripts_that_register_them_themselves() -> None:
    hook, model = make(include_collections=["weights", "gradients"], include_regex="fc_"), Net()
    hook.register_module(model)
    inputs = torch.rand(2, 4)
    hook.forward_pre_hook(model, (inputs,))
    outputs = model.fc.forward(inputs)
    hook.forward_hook(model.fc, (inputs,), outputs)
    hook.forward_hook(nn.ReLU(), (inputs,), outputs)  # no part of a model
    handle = model.fc.weight.register_hook(hook.backward_hook("Net_other"))
    outputs.sum().backward()
    handle.remove()
    hook.close()
    trial = WrittenTrial(hook.out_dir)
    assert {WEIGHT, "fc_input_0", "fc_output_0", "gradient/Net_other"} <= trial.names(0)
    assert np.allclose(trial.values(0)["gradient/Net_other"], inputs.sum(0).expand(3, 4))


# The hook of the process --------------------------------------------------------------------------


def test_a_forked_child_gets_a_hook_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "hook.json"
    path.write_text(json.dumps({"LocalPath": new_uri()}))
    monkeypatch.setenv("SMDEBUG_CONFIG_FILE_PATH", str(path))
    hook = smd.Hook.create_from_json_file()
    monkeypatch.setattr("hook_layer.process.this_process.this_process.pid", -1)
    assert smd.get_hook() is hook, "which does nothing in the child"
    own = smd.get_hook(create_if_not_exists=True)
    assert own is not None
    assert own.is_active
    assert smd.get_hook() is own
    smd.del_hook()


@does("get_hook", "set_hook", "del_hook", "Hook.create_from_json_file")
def test_the_hook_of_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smd.del_hook()
    assert smd.get_hook() is None
    path = tmp_path / "hook.json"
    monkeypatch.setenv("SMDEBUG_CONFIG_FILE_PATH", str(path))
    assert smd.get_hook(create_if_not_exists=True) is None  # there is no file
    with pytest.raises(FileNotFoundError, match=r"hook\.json does not exist"):
        smd.Hook.create_from_json_file()
    path.write_text(json.dumps({"LocalPath": new_uri(), "HookParameters": {"save_interval": "2"}}))
    assert smd.get_hook() is None
    hook = smd.get_hook(create_if_not_exists=True)
    assert hook is not None
    assert smd.get_hook(create_if_not_exists=True) is hook
    assert list(train(hook, 3).indexes()) == [0, 2]
    other = smd.Hook.create_from_json_file(path)
    assert smd.get_hook() is other
    smd.set_hook(hook)
    assert smd.get_hook() is hook
    with pytest.raises(HookConfigurationError, match="custom_hook=3"):
        smd.set_hook(3)
    smd.del_hook()
    named = smd.get_hook(str(path), create_if_not_exists=True)
    assert named not in {None, hook, other}
    smd.del_hook()
    path.write_text('{"HookParameters": {"save_interval": 0}}')
    with pytest.raises(HookConfigurationError, match="save_interval=0 must be"):
        smd.get_hook(create_if_not_exists=True)
    monkeypatch.setenv("USE_SMDEBUG", "0")
    assert smd.get_hook(create_if_not_exists=True) is None
    switched_off = smd.Hook.create_from_json_file()
    assert list(train(switched_off).store.list()) == []


@pytest.mark.parametrize("function", [smd.get_hook, smd.set_hook, smd.del_hook])
def test_functions_of_the_current_hook_are_sent_by_name(function: Callable[..., Any]) -> None:
    # As Ray and joblib send them to workers, where they are about the hook of the worker.
    assert pickle.loads(pickle.dumps(function)) == function


def test_unknown_hook_parameters_have_no_effect_and_are_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    parameters = {"train.save_intervl": "1", "profile": "x", "save_interval": "2"}
    path = tmp_path / "hook.json"
    path.write_text(json.dumps({"LocalPath": new_uri(), "HookParameters": parameters}))
    assert list(train(smd.Hook.create_from_json_file(path), 3).indexes()) == [0, 2]
    first, second = [r.getMessage() for r in caplog.records if "is unknown" in r.getMessage()]
    assert "hook.json: HookParameters.train.save_intervl is unknown and has no effect" in first
    assert "did you mean 'train.save_interval'?" in first
    assert "HookParameters.profile" in second


def test_unknown_parameters_of_a_collection_have_no_effect_and_are_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    placeholder = {"CollectionName": "losses", "CollectionParameters": {"key": "value"}}
    document = {"LocalPath": new_uri(), "HookParameters": {"save_interval": "2"}}
    path = tmp_path / "hook.json"
    path.write_text(json.dumps({**document, "CollectionConfigurations": [placeholder]}))
    assert list(train(smd.Hook.create_from_json_file(path), 3).indexes()) == [0, 2]
    (reported,) = [r.getMessage() for r in caplog.records if "is unknown" in r.getMessage()]
    assert "CollectionConfigurations[0].CollectionParameters.key is unknown and has" in reported


def test_a_configuration_and_arguments_exclude_each_other(tmp_path: Path) -> None:
    from hook_layer.configuration.hook_json import HookConfiguration

    for arguments in ({"save_all": True}, {"stop": "flag"}):
        with pytest.raises(HookConfigurationError, match="not both"):
            smd.Hook(configuration=HookConfiguration(), **arguments)


def test_a_file_of_the_originals_configures_a_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = {
        "S3OutputPath": "s3://nobody-writes-here",
        "LocalPath": str(tmp_path / "tensors"),
        "HookParameters": {"save_interval": "2", "eval.save_interval": "1", "save_steps": "1"},
        "CollectionConfigurations": [
            {"CollectionName": "gradients", "CollectionParameters": {"save_interval": "3"}},
            {
                "CollectionName": "relu",
                "CollectionParameters": {
                    "include_regex": "relu_input,relu_output",
                    "reductions": "mean,abs_max,l2_norm",
                    "save_raw_tensor": "False",
                },
            },
        ],
    }
    (tmp_path / "hook.json").write_text(json.dumps(document))
    monkeypatch.setenv("SMDEBUG_CONFIG_FILE_PATH", str(tmp_path / "hook.json"))
    monkeypatch.setenv("TRAINING_JOB_NAME", "mnist-7")
    hook = smd.Hook.create_from_json_file()
    hook.set_mode(smd.modes.TRAIN)
    train(hook, 4, close=False)
    hook.set_mode(smd.modes.EVAL)
    trial = train(hook, 2)
    assert trial.uri == f"{(tmp_path / 'tensors').as_uri()}/"
    assert trial.job().training_job_name == "mnist-7"
    assert list(trial.indexes()) == [0, 1, 2, 3, 4, 5]
    saved = {step: GRADIENT in trial.names(step) for step in range(6)}
    assert saved == {0: True, 1: True, 2: False, 3: True, 4: False, 5: False}  # 4, 5: EVAL
    assert "smdebug/reductions/abs_max/relu_output_0" in trial.values(2)
    assert "relu_output_0" not in trial.values(2)
    assert LOSS not in trial.names(3)
    assert LOSS in trial.names(5)
