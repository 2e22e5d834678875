"""The original's names, standing for ours."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hook_layer
from hook_layer.format.modes import ModeKeys
from hook_layer.storage.local import LocalStore
from rule_runtime import create_trial, smdebug_alias
from rule_runtime.configuration import actions, rule_configs
from rule_runtime.custom_rules import required_tensors, smdebug_rule
from rule_runtime.smdebug_alias import parts
from rule_runtime.smdebug_alias.names import MODULES
from rule_runtime.testing.trial_builder import TrialBuilder
from rule_runtime.trial import errors, opening, tensor, tensor_steps, trial
from tests.rule_runtime.processes import completed

FRAMEWORKS = {home.framework for names in MODULES.values() for home in names.values()} - {""}

FRAMEWORK_MODULES = ["smdebug.pytorch", "smdebug.tensorflow", "smdebug.mxnet", "smdebug.xgboost"]


@pytest.fixture(autouse=True)
def _alias() -> Iterator[None]:
    smdebug_alias.uninstall()
    smdebug_alias.install()
    yield
    smdebug_alias.uninstall()


def run(code: str, *arguments: str, cwd: Path | None = None, also: Path | None = None) -> str:
    """Return what a fresh process prints; `also` is where it looks for modules too."""
    root = Path(hook_layer.__file__).parents[1]
    done = completed(
        [sys.executable, *(arguments or ("-c", textwrap.dedent(code)))],
        cwd=cwd,
        timeout=60,
        env={
            "PYTHONPATH": os.pathsep.join(str(one) for one in (also, root) if one is not None),
            "PATH": "/usr/bin:/bin",
        },
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# ---------------------------------------------------------------------- names

PUBLIC: dict[str, dict[str, Any]] = {
    "smdebug": {
        "CollectionKeys": hook_layer.CollectionKeys,
        "modes": ModeKeys,
        "ReductionConfig": hook_layer.ReductionConfig,
        "SaveConfig": hook_layer.SaveConfig,
        "SaveConfigMode": hook_layer.SaveConfigMode,
    },
    "smdebug.trials": {"create_trial": parts.create_trial, "Trial": trial.Trial},
    "smdebug.rules": {
        "Rule": smdebug_rule.Rule,
        "invoke_rule": smdebug_rule.invoke_rule,
        "RequiredTensors": required_tensors.RequiredTensors,
        "RequiredTensorsForTrial": required_tensors.RequiredTensorsForTrial,
    },
    "smdebug.rules.rule": {"Rule": smdebug_rule.Rule},
    "smdebug.rules.rule_invoker": {"invoke_rule": smdebug_rule.invoke_rule},
    "smdebug.exceptions": {
        "SMDebugError": errors.TrialError,
        "TensorUnavailable": errors.TensorUnavailable,
        "NoMoreData": errors.NoMoreData,
    },
    "smdebug.core.tensor": {"Tensor": tensor.Tensor, "StepState": tensor_steps.StepState},
    "smdebug.core.modes": {"ModeKeys": ModeKeys},
    "smdebug_rulesconfig": {
        "vanishing_gradient": rule_configs.vanishing_gradient,
        "StopTraining": actions.StopTraining,
    },
}


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_are_ours(module: str) -> None:
    found = importlib.import_module(module)
    for name, value in PUBLIC[module].items():
        assert getattr(found, name) is value
        assert name in dir(found)
        assert name in found.__all__


@pytest.mark.parametrize("module", MODULES)
def test_every_name_leads_somewhere_or_says_what_is_missing(module: str) -> None:
    found = importlib.import_module(module)
    for name in MODULES[module]:
        try:
            assert getattr(found, name) is not None
        except AttributeError as error:
            told = str(error)
            assert told.startswith(f"{module}.{name}")
            assert "is not installed: pip install" in told or "has no hook for" in told


def test_everything_of_a_module_can_be_imported() -> None:
    names: dict[str, Any] = {}
    exec("from smdebug.exceptions import *\nfrom smdebug.rules import *", names)
    assert names["StepUnavailable"] is errors.StepUnavailable
    assert names["Rule"] is smdebug_rule.Rule
    assert names["InsufficientInformationForRuleInvocation"]("A", "b").message == "b"


@pytest.mark.parametrize("module", MODULES)
def test_everything_that_is_there_can_be_imported(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in FRAMEWORKS:
        monkeypatch.setitem(sys.modules, package, None)
    names: dict[str, Any] = {}
    exec(f"from {module} import *", names)
    assert "Hook" not in names
    public = {name for name in MODULES[module] if not name.startswith("_")}
    found = importlib.import_module(module)
    for name in public - names.keys():
        assert not hasattr(found, name)
        assert getattr(found, name, None) is None
        with pytest.raises(ImportError, match=r"is not installed|has no hook for"):
            exec(f"from {module} import {name}")


def test_trials_are_those_that_create_trial_makes(tmp_path: Path) -> None:
    found = importlib.import_module("smdebug.trials")
    assert type(create_trial(tmp_path)) is found.LocalTrial
    assert importlib.import_module("smdebug.trials.s3_trial").S3Trial is found.S3Trial
    assert found.S3Trial is opening.S3Trial


def test_create_trial_waits_until_the_run_has_begun(tmp_path: Path) -> None:
    from_original = importlib.import_module("smdebug.trials").create_trial
    builder = TrialBuilder(tmp_path)
    builder.end()
    assert create_trial(tmp_path).steps() == []
    with pytest.raises(errors.MissingCollectionFiles):
        from_original(str(tmp_path))
    builder.collections()
    assert from_original(str(tmp_path)).steps() == []


def test_submodules_are_attributes() -> None:
    found: Any = importlib.import_module("smdebug")
    assert found.exceptions.NoMoreData is errors.NoMoreData
    assert found.core.modes.str_to_mode_keys("eval") is ModeKeys.EVAL
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        getattr(found, "nothing")  # noqa: B009 - as a script asks for it
    with pytest.raises(ValueError, match="Invalid mode 'x': one of train, eval"):
        found.core.modes.str_to_mode_keys("x")


def test_the_version_compares_as_the_originals() -> None:
    from packaging.version import Version

    assert Version(importlib.import_module("smdebug").__version__) >= Version("1.0.34")


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("import smdebug.profiler.utils", "has no smdebug.profiler: it does not include profiling"),
        ("import smdebug.rules.ruel", "has no smdebug.rules.ruel beside smdebug.rules.action"),
        ("from smdebug.rules import Ruel", "cannot import name 'Ruel'"),
        ("from smdebug.core.locations import TensorLocation", "internal part of the original"),
    ],
)
def test_what_is_not_there_is_told(statement: str, told: str) -> None:
    with pytest.raises(ImportError, match=told):
        exec(statement)


# ---------------------------------------------------------------------- frameworks


@pytest.mark.parametrize("module", FRAMEWORK_MODULES)
def test_a_framework_need_not_be_there_for_reading(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in FRAMEWORKS:
        monkeypatch.setitem(sys.modules, package, None)
    found = importlib.import_module(module)
    assert found.modes is ModeKeys
    assert found.create_trial is parts.create_trial
    assert found.SaveConfig is hook_layer.SaveConfig
    assert hasattr(found, "ReductionConfig") == (module != "smdebug.xgboost")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("smdebug.pytorch.Hook", "needs PyTorch, which is not installed: pip install"),
        ("smdebug.pytorch.hook.Hook", "needs PyTorch, which is not installed"),
        ("smdebug.pytorch.get_hook", "needs PyTorch, which is not installed"),
        ("smdebug.xgboost.Hook", "needs XGBoost, which is not installed: pip install"),
    ],
)
def test_a_name_that_needs_a_framework_says_so(
    name: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("torch", "xgboost"):
        monkeypatch.setitem(sys.modules, package, None)
    module, _, attribute = name.rpartition(".")
    with pytest.raises(ImportError, match=told):
        exec(f"from {module} import {attribute}")


@pytest.mark.parametrize("package", ["pytorch", "xgboost"])
def test_hooks_are_those_of_hook_layer(package: str) -> None:
    home = importlib.import_module(f"hook_layer.{package}")
    found = importlib.import_module(f"smdebug.{package}")
    for name in ("Hook", "get_hook", "set_hook", "del_hook", "Collection"):
        assert getattr(found, name) is getattr(home, name)
    assert importlib.import_module(f"smdebug.{package}.hook").Hook is home.Hook


def test_reading_imports_no_framework() -> None:
    told = run(
        """
        import sys
        import rule_runtime.smdebug_alias; rule_runtime.smdebug_alias.install()
        import smdebug.pytorch as smd
        from smdebug.trials import create_trial
        from smdebug.rules import Rule
        smd.modes, smd.create_trial, smd.SaveConfig
        print(sorted({"torch", "xgboost", "boto3", "pandas", "matplotlib"} & set(sys.modules)))
        """
    )
    assert told == "[]"


# ---------------------------------------------------------------------- on and off


def test_it_is_off_unless_asked_for() -> None:
    told = run(
        """
        import importlib.util, sys
        import rule_runtime.cli, rule_runtime.smdebug_alias as alias
        rule_runtime.create_trial
        print(alias.is_installed(), importlib.util.find_spec("smdebug"))
        alias.install(); alias.install()
        print(alias.is_installed(), sum("Alias" in type(f).__name__ for f in sys.meta_path))
        import smdebug.rules, smdebug_rulesconfig
        alias.uninstall()
        print(alias.is_installed(), [n for n in sys.modules if n.startswith("smdebug")])
        """
    )
    assert told == "False None\nTrue 1\nFalse []"


class TestWhereTheRealOneIsInstalled:
    @pytest.fixture
    def site(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        smdebug_alias.uninstall()
        for name in ("smdebug", "smdebug_rulesconfig"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "__init__.py").write_text("real = True\n")
        monkeypatch.syspath_prepend(tmp_path)
        return tmp_path

    @pytest.fixture(autouse=True)
    def _forgotten(self) -> Iterator[None]:
        yield
        for name in ("smdebug", "smdebug_rulesconfig"):
            sys.modules.pop(name, None)

    @pytest.mark.usefixtures("site")
    def test_it_stays_unless_it_is_to_be_hidden(self) -> None:
        with pytest.raises(smdebug_alias.AliasError, match=r"pip uninstall smdebug.*replace=True"):
            smdebug_alias.install()
        assert not smdebug_alias.is_installed()
        smdebug_alias.install(replace=True)
        assert importlib.import_module("smdebug.trials").create_trial is parts.create_trial
        assert importlib.import_module("smdebug_rulesconfig").real, "the SageMaker SDK needs it"

    @pytest.mark.usefixtures("site")
    def test_nothing_is_changed_after_it_was_imported(self) -> None:
        assert importlib.import_module("smdebug").real
        with pytest.raises(smdebug_alias.AliasError, match="was imported already"):
            smdebug_alias.install(replace=True)

    def test_a_mere_folder_of_its_name_is_not_the_real_one(self, site: Path) -> None:
        for name in ("smdebug", "smdebug_rulesconfig"):
            (site / name / "__init__.py").unlink()
        smdebug_alias.install()
        assert importlib.import_module("smdebug").modes is ModeKeys
        assert importlib.import_module("smdebug_rulesconfig").all_zero is rule_configs.all_zero


class TestCommand:
    SCRIPT = """
        import sys
        from smdebug.trials import create_trial
        import beside
        trial = create_trial(sys.argv[1])
        print(__name__, trial.tensor_names(), beside.value, sys.argv[1:])
        """

    def test_an_unchanged_script_runs(self, tmp_path: Path) -> None:
        builder = TrialBuilder(LocalStore(tmp_path / "run"))
        builder.step(0, {"w": [1.0]})
        builder.collections()
        script = tmp_path / "scripts" / "read.py"
        script.parent.mkdir()
        script.write_text(textwrap.dedent(self.SCRIPT))
        (script.parent / "beside.py").write_text("value = 7\n")
        trial_root = str(tmp_path / "run")
        alias = ("-m", "rule_runtime.smdebug_alias")
        told = run("", *alias, str(script), trial_root, "--flag")
        assert told == f"__main__ ['w'] 7 ['{trial_root}', '--flag']"
        told = run("", *alias, "--replace", "-m", "read", trial_root, cwd=script.parent)
        assert told == f"__main__ ['w'] 7 ['{trial_root}']"

    @pytest.mark.parametrize("flags", [[], ["--replace"]])
    def test_it_leaves_the_script_its_own_command_line(
        self, tmp_path: Path, flags: list[str]
    ) -> None:
        (tmp_path / "told.py").write_text("import sys\nprint(sys.argv, sys.path[0])\n")
        script, alias = str(tmp_path / "told.py"), ("-m", "rule_runtime.smdebug_alias", *flags)
        assert run("", *alias, script, "-x") == f"{[script, '-x']} {tmp_path}"
        told = run("", *alias, "-m", "told", "y", cwd=tmp_path)
        assert told == f"{[script, 'y']} {tmp_path}"

    SPAWNS = """
        import multiprocessing, os, sys
        from concurrent.futures import ProcessPoolExecutor
        from smdebug.core.modes import ModeKeys

        def told(mode):
            return mode is ModeKeys.EVAL, os.environ.get("HIDDEN_ONE_RAN"), sys.argv[1:]

        if __name__ == "__main__":
            os.environ.pop("HIDDEN_ONE_RAN", None)
            context = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(1, mp_context=context) as pool:
                print(list(pool.map(told, [ModeKeys.EVAL])))
        """

    @pytest.mark.parametrize("is_module", [False, True])
    def test_processes_that_a_script_spawns_have_the_names_too(
        self, tmp_path: Path, is_module: bool
    ) -> None:
        script = tmp_path / "spawns.py"
        script.write_text(textwrap.dedent(self.SPAWNS))
        site = tmp_path / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text(
            "import os, sys\nos.environ['HIDDEN_ONE_RAN'] = str('smdebug' in sys.modules)\n"
        )
        what = ("-m", "spawns") if is_module else (str(script),)
        alias = ("-m", "rule_runtime.smdebug_alias", *what, "--flag")
        assert run("", *alias, cwd=tmp_path, also=site) == "[(True, 'False', ['--flag'])]"

    def test_the_real_one_is_hidden_in_spawned_processes_if_it_is_in_the_first(
        self, tmp_path: Path
    ) -> None:
        script = tmp_path / "spawns.py"
        script.write_text(textwrap.dedent(self.SPAWNS))
        (tmp_path / "site" / "smdebug").mkdir(parents=True)
        (tmp_path / "site" / "smdebug" / "__init__.py").write_text("")
        alias = ("-m", "rule_runtime.smdebug_alias", "--replace", str(script))
        assert run("", *alias, also=tmp_path / "site") == "[(True, None, [])]"

    @pytest.mark.parametrize(("arguments", "status"), [([], 2), (["--help"], 0), (["-x"], 2)])
    def test_it_tells_how_it_is_used(
        self, arguments: list[str], status: int, capsys: pytest.CaptureFixture[str]
    ) -> None:
        from rule_runtime.smdebug_alias.__main__ import main

        with pytest.raises(SystemExit) as exit_info:
            main(arguments)
        assert exit_info.value.code == status
        assert capsys.readouterr().err.startswith("usage: python -m rule_runtime.smdebug_alias")

    def test_it_refuses_where_the_real_one_is(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from rule_runtime.smdebug_alias.__main__ import main

        smdebug_alias.uninstall()
        (tmp_path / "smdebug.py").write_text("")
        monkeypatch.syspath_prepend(tmp_path)
        with pytest.raises(SystemExit, match="the real smdebug is installed"):
            main(["script.py"])


# ---------------------------------------------------------------------- small parts


def test_parameters_of_rules_are_parsed() -> None:
    utils = importlib.import_module("smdebug.analysis.utils")
    flags = [utils.parse_bool(arg, "default") for arg in (None, True, "False", "true")]
    assert flags == ["default", True, False, True]
    with pytest.raises(ValueError, match="boolean argument expected, but found yes"):
        utils.parse_bool("yes", False)
    assert utils.parse_list_from_str("a,b") == utils.parse_list_from_str(["a", "b"]) == ["a", "b"]
    assert utils.parse_list_from_str("") == utils.parse_list_from_str(None) == []
    assert utils.parse_list_from_str("a;b", ";") == ["a", "b"]


def test_files_are_written_and_read_as_the_originals_tests_do(tmp_path: Path) -> None:
    writer_module = importlib.import_module("smdebug.core.writer")
    reader_module = importlib.import_module("smdebug.core.reader")
    layer = importlib.import_module("smdebug.core.access_layer.utils")
    with writer_module.FileWriter(trial_dir=str(tmp_path), step=3, worker="algo-1") as writer:
        writer.write_tensor(tdata=np.ones((2, 2)), tname="w", mode=None)
        writer.write_tensor(tdata=5.0, tname="loss", mode=ModeKeys.TRAIN, mode_step=1)
        writer.flush()
        assert writer.name().endswith("000000000003_algo-1.tfevents")
    writer.close()
    writer_module.FileWriter(str(tmp_path), "algo-1", step=4).close()
    found = list(reader_module.FileReader(writer.name()).read_tensors())
    assert [(one[0], one[1]) for one in found] == [("w", 3), ("loss", 3)]
    assert found[0][3:] == (ModeKeys.GLOBAL, 3)
    assert found[1][3:] == (ModeKeys.TRAIN, 1)
    reader = reader_module.FileReader(writer.name())
    assert [event["name"] for event in reader.read_events()] == ["w", "loss"]
    (event,) = reader.read_events(regex_list=["^lo", "x"])
    assert (event["step"], event["value"].tolist()) == (3, [5.0])
    assert event["timestamp"] > 1e9
    with pytest.raises(errors.SMDebugValueError, match="'train': mode can be one of ModeKeys"):
        writer.write_tensor(np.ones(2), "w", mode="train")
    assert not layer.has_training_ended(str(tmp_path))
    layer.training_has_ended(str(tmp_path))
    assert layer.has_training_ended(str(tmp_path))
    opened = importlib.import_module("smdebug.trials").LocalTrial("mine", str(tmp_path))
    assert (opened.name, opened.steps(), opened.tensor_names()) == ("mine", [3], ["loss", "w"])
    with pytest.raises(ValueError, match="Writer type not supported tensorboard"):
        writer_module.FileWriter(str(tmp_path), "algo-1", wtype="tensorboard")


def test_other_small_parts() -> None:
    utils = importlib.import_module("smdebug.core.utils")
    assert utils.is_s3("s3://bucket/a/b") == (True, "bucket", "a/b")
    assert utils.is_s3("/a") == (False, None, None)
    assert utils.get_path_to_collections("/a/") == "/a/collections/000000000/"
    assert importlib.import_module("smdebug.core.logger").get_logger().name == "stepwatch"
    parameters = inspect.signature(importlib.import_module("smdebug.trials").S3Trial).parameters
    assert list(parameters)[:3] == ["name", "bucket_name", "prefix_name"]
    config = importlib.import_module("smdebug.core.json_config")

    class Hook:
        @classmethod
        def create_from_json_file(cls, path: str) -> str:
            return path

    assert config.create_hook_from_json_config(Hook, "x.json") == "x.json"
