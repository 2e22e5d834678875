from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rule_runtime import smdebug_alias
from tests.rule_runtime.custom_rules.smdebug_runs import write_run


@pytest.fixture(autouse=True)
def _without_alias() -> Iterator[None]:
    smdebug_alias.uninstall()
    yield
    smdebug_alias.uninstall()


@pytest.fixture(scope="session")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs: from step 25 on, gradients of `judged` vanish and its loss is behind `other`'s."""
    folder = tmp_path_factory.mktemp("jobs")
    for name in ("judged", "other"):
        write_run(folder / name, is_sick=name == "judged")
    return folder
