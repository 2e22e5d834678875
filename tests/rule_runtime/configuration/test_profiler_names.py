"""Names of the profiler, which scripts that changed their import ask for."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("name", ["FrameworkProfile", "ProfilerConfig", "ProfilerRule"])
def test_importing_them_says_to_leave_them_out(name: str) -> None:
    with pytest.raises(ImportError, match=f"Stepwatch has no profiler, so {name} does"):
        exec(f"from rule_runtime.configuration import {name}")
