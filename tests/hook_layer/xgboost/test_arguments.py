"""How a hook is made: its arguments, files of data, JSON, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgboost
from scipy.sparse import csr_matrix
from sklearn.datasets import dump_svmlight_file

import hook_layer.xgboost as smd
from hook_layer.errors import HookConfigurationError
from hook_layer.install_hint import install_hint
from hook_layer.testing.written_trial import WrittenTrial
from tests.hook_layer.xgboost.boosting import columns, make_hook, matrix, same, train
from tests.python_path import PYTHON_PATH


def test_the_collections_are_those_of_the_original(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    assert {n: c.include_regex for n, c in hook.get_collections().items()} == {
        "default": [],
        "all": [],
        "hyperparameters": ["^hyperparameters/.*$"],
        "metrics": ["^[a-zA-z]+-[a-zA-z0-9]+$"],
        "losses": ["^[a-zA-z]+-.+(?<!(auc|map))$"],
        "predictions": ["^predictions$"],
        "labels": ["^labels$"],
        "feature_importance": ["^feature_importance/.*"],
        "average_shap": ["^average_shap/.*[^/bias]$"],
        "full_shap": ["^full_shap/.*[^/bias]$"],
        "trees": ["^trees/.*"],
    }
    assert hook.has_default_hook_configuration()


@pytest.mark.parametrize("content_type", ["csv", "text/csv", "CSV"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_data_from_a_csv_file(
    trial: WrittenTrial, tmp_path: Path, delimiter: str, content_type: str
) -> None:
    features, labels = columns("diabetes")
    path = tmp_path / "train.csv"
    np.savetxt(path, np.column_stack([labels, features]), delimiter=delimiter)
    hook = make_hook(trial, validation_data=(str(path), content_type))
    assert_same_data(hook.validation_data, matrix())


def test_an_empty_field_is_a_missing_value(trial: WrittenTrial, tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.write_text("1,2.5,\n0,,3\n")
    hook = make_hook(trial, train_data=(str(path), "csv"))
    nan = np.nan
    expected = xgboost.DMatrix(np.array([[2.5, nan], [nan, 3.0]]), [1, 0])
    assert_same_data(hook.train_data, expected)


@pytest.mark.parametrize("content_type", ["libsvm", "text/x-libsvm", None])
def test_data_from_a_libsvm_file(
    trial: WrittenTrial, tmp_path: Path, content_type: str | None
) -> None:
    features, labels = columns("breast_cancer")
    features = np.where(features > 0.05, features, 0.0)
    path = tmp_path / "train.libsvm"
    dump_svmlight_file(features, labels, str(path), comment="a comment")
    hook = make_hook(trial, train_data=(str(path), content_type))
    assert_same_data(hook.train_data, xgboost.DMatrix(csr_matrix(features), labels))


def test_weights_and_groups_in_a_libsvm_file(trial: WrittenTrial, tmp_path: Path) -> None:
    path = tmp_path / "train.libsvm"
    path.write_text("1:0.5 qid:3 0:1.5 2:2\n0:2 qid:3 1:1\n\n2 qid:7 # nothing\n")
    data = make_hook(trial, train_data=(str(path), "libsvm")).train_data
    assert data is not None
    assert data.get_label().tolist() == [1, 0, 2]
    assert data.get_weight().tolist() == [0.5, 2, 1]
    assert data.get_uint_info("group_ptr").tolist() == [0, 2, 3]
    assert data.get_data().toarray().tolist() == [[1.5, 0, 2], [0, 1, 0], [0, 0, 0]]


def assert_same_data(found: xgboost.DMatrix | None, expected: xgboost.DMatrix) -> None:
    assert found is not None
    assert np.array_equal(found.get_data().toarray(), expected.get_data().toarray(), equal_nan=True)
    assert found.num_nonmissing() == expected.num_nonmissing()
    assert same(found.get_label(), expected.get_label())


@pytest.mark.parametrize(
    ("content", "given_type", "message"),
    [
        (None, "csv", "the file"),
        ("1,2\n", "cvs", "did you mean 'csv'"),
        ("label,age\n1,2\n", "csv", "cannot be read as csv: could not convert"),
        ("", "csv", "cannot be read as csv"),
        ("1,2,3\n", "libsvm", "cannot be read as libsvm"),
        ("# only a comment\n", "libsvm", "it is empty"),
        ("1 qid:1 0:1\n2 0:1\n", "libsvm", "only some of its rows have a qid"),
        ("1 -1:3\n", "libsvm", "it has columns from -1"),
    ],
)
def test_files_that_are_refused(
    trial: WrittenTrial, tmp_path: Path, content: str | None, given_type: str, message: str
) -> None:
    path = tmp_path / "train.txt"
    if content is not None:
        path.write_text(content)
    with pytest.raises(HookConfigurationError, match=f"train_data.*{message}"):
        make_hook(trial, train_data=(str(path), given_type))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"train_data": np.ones(2)}, "train_data=.*must be an xgboost.DMatrix"),
        ({"validation_data": ("one",)}, "validation_data=.*must be an xgboost.DMatrix"),
        ({"hyperparameters": [("eta", 1)]}, "hyperparameters=.*must be a dict"),
        ({"include_workers": "some"}, "include_workers='some'"),
    ],
)
def test_arguments_that_are_refused(
    trial: WrittenTrial, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(HookConfigurationError, match=message):
        make_hook(trial, **arguments)


def test_a_misspelled_collection_is_created_with_a_warning(
    trial: WrittenTrial, caplog: pytest.LogCaptureFixture
) -> None:
    train(make_hook(trial, "feature_importances"))
    assert "Did you mean 'feature_importance'?" in caplog.text


def test_a_hook_from_json(tmp_path: Path) -> None:
    path = tmp_path / "hook.json"
    out_dir = tmp_path / "out"
    collections = [
        {"CollectionName": "metrics", "CollectionParameters": {"save_interval": "2"}},
        {"CollectionName": "average_shap"},
    ]
    path.write_text(
        json.dumps({"LocalPath": str(out_dir), "CollectionConfigurations": collections})
    )
    hook = smd.Hook.hook_from_config(path)
    data = matrix()
    hook.train_data = data
    train(hook, data=data, rounds=11)
    trial = WrittenTrial(str(out_dir))
    assert sorted(trial.indexes()) == [0, 2, 4, 6, 8, 10]
    assert [len(trial.names(step)) for step in (0, 2, 10)] == [11, 1, 11]


def test_get_hook_makes_one_if_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trial: WrittenTrial
) -> None:
    path = tmp_path / "hook.json"
    path.write_text(json.dumps({"LocalPath": str(tmp_path / "out")}))
    monkeypatch.setenv("SMDEBUG_CONFIG_FILE_PATH", str(path))
    hook = smd.get_hook()
    assert hook is not None
    assert hook is smd.get_hook()
    other = make_hook(trial)
    assert smd.get_hook() is other
    smd.del_hook()
    monkeypatch.setenv("SMDEBUG_CONFIG_FILE_PATH", str(tmp_path / "missing.json"))
    assert smd.get_hook() is None


def test_callbacks_of_old_versions_are_refused(trial: WrittenTrial) -> None:
    with pytest.raises(HookConfigurationError, match=r"callbacks=\[hook\]"):
        make_hook(trial)("env")


def test_without_xgboost_the_import_names_the_extra() -> None:
    code = "import sys; sys.modules['xgboost'] = None; import hook_layer.xgboost"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "ImportError: stepwatch.xgboost needs XGBoost" in done.stderr
    assert install_hint("xgboost") in done.stderr


def test_without_pandas_only_the_trees_are_missing(tmp_path: Path) -> None:
    out_dir, csv_file = tmp_path / "out", tmp_path / "train.csv"
    csv_file.write_text("1,2\n")
    code = f"""
import sys
sys.modules["pandas"] = None
from tests.hook_layer.xgboost.boosting import EVERY_ROUND, train
from hook_layer.xgboost import Hook
train(Hook({str(out_dir)!r}, True, save_config=EVERY_ROUND, save_all=True))
try:
    Hook({str(out_dir)!r}, train_data=({str(csv_file)!r}, "csv"))
except ValueError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": PYTHON_PATH},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(f"this needs pandas: {install_hint('xgboost')}") == 1
    assert "train_data: reading" in done.stdout
    names = WrittenTrial(str(out_dir)).names(3)
    assert "feature_importance/gain/f2" in names
    assert not any(name.startswith("trees/") for name in names)
