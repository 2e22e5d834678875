from __future__ import annotations

import pytest

from rule_runtime import create_trial
from rule_runtime.trial.trial import Trial
from tests.rule_runtime.real_boosting import write_boosted_trial
from tests.rule_runtime.real_cnn import write_cnn_trial


@pytest.fixture(scope="session")
def cnn(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    root = tmp_path_factory.mktemp("cnn")
    write_cnn_trial(root)
    return create_trial(root, name="cnn")


@pytest.fixture(scope="session")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    root = tmp_path_factory.mktemp("binary")
    write_boosted_trial(root, "binary")
    return create_trial(root, name="binary")


@pytest.fixture(scope="session")
def multiclass(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    root = tmp_path_factory.mktemp("multiclass")
    write_boosted_trial(root, "multiclass")
    return create_trial(root, name="multiclass")
