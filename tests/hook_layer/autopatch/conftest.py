"""Runs of scripts that the tests of scripts without a hook share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hook_layer.autopatch.watched_scripts import ScriptRuns


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptRuns]:
    """Return what runs a script with and without a hook."""
    runs = ScriptRuns(tmp_path_factory.mktemp("runs"))
    yield runs
    runs.close()
