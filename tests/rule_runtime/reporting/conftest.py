from __future__ import annotations

from pathlib import Path

import pytest

from tests.rule_runtime.reporting.sick_run import write_sick_trial


@pytest.fixture(scope="session")
def sick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("jobs") / "mnist-7" / "debug-output"
    write_sick_trial(root)
    return root
