"""What the README shows of jobs works as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rule_runtime.jobs import DebugJob, PreparedJob
from tests.rule_runtime.jobs.conftest import Account

README = Path(__file__).resolve().parents[3] / "rule_runtime" / "README.md"


def section(title: str) -> str:
    _, _, rest = README.read_text().partition(f"\n## {title}\n")
    return rest.partition("\n## ")[0]


def test_the_examples_run_one_after_the_other(
    account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {}
    blocks = re.findall(r"^```python\n(.*?)^```", section("Jobs"), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, str(README), "exec"), names)
    # The emulator ends a job at once, and no hook has written anything.
    assert capsys.readouterr().out == "VanishingGradient: Error\nLossNotDecreasing: Error\n"
    prepared = names["prepared"]
    assert account.keys() == [f"output/{prepared.job_name}/stepwatch.json"]


def test_every_name_that_is_mentioned_exists() -> None:
    text = section("Jobs")
    for owner, prefix in ((PreparedJob, "prepared"), (DebugJob, "job")):
        mentioned = set(re.findall(rf"\b{prefix}\.(\w+)", text))
        assert mentioned
        for name in mentioned - {"json"}:
            assert name in {*dir(owner), *owner.__annotations__}, name
