"""Plain runs that the tests of scripts without a hook compare with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hook_layer.autopatch.plain_runs import PlainRuns
from tests.hook_layer.autopatch.watched_scripts import SCRIPTS


@pytest.fixture(scope="module")
def unhooked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlainRuns]:
    """Return a function that runs a script without a hook."""
    runs = PlainRuns(SCRIPTS, tmp_path_factory.mktemp("plain"))
    yield runs
    runs.close()
