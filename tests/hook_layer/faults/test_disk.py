"""Full disks, read-only folders and files that are too long neither hang nor break training."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.hook_layer.faults.training import stored_steps

TIMEOUT_S = 60


def run(*command: str) -> Any:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def run_mounted(scenario: str, folder: Path) -> Any:
    may_mount = subprocess.run(
        ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", str(folder)],
        capture_output=True,
        check=False,
    )
    if may_mount.returncode:
        pytest.skip(f"no mount namespace may be made here: {may_mount.stderr!r}")
    module = "tests.hook_layer.faults.mounted"
    return run("unshare", "-rm", sys.executable, "-m", module, scenario, str(folder))


def test_a_full_disk_is_waited_for_on_another_one(tmp_path: Path) -> None:
    result = run_mounted("full_disk", tmp_path)
    report = result["outcome"]["report"]
    assert result["outcome"]["longest_step_s"] < 1
    assert result["outcome"]["close_s"] < 3
    assert result["before"] == list(range(report["steps_written"]))
    assert 0 < report["steps_written"] < 12
    assert report["steps_in_spool"] == 12 - report["steps_written"]
    assert report["steps_undelivered"] == 0
    assert "No space left" in report["first_error"]
    assert result["status"] == 0
    assert result["after"] == list(range(12))
    assert result["has_end"]
    assert result["spools"] == []


def test_where_no_disk_has_room_steps_are_lost_and_counted(tmp_path: Path) -> None:
    result = run_mounted("full_everywhere", tmp_path)
    report = result["outcome"]["report"]
    assert result["outcome"]["longest_step_s"] < 1
    assert report["steps_written"] + report["steps_undelivered"] == 12
    assert report["steps_undelivered"] > 0
    assert len(result["after"]) == report["steps_written"]
    assert result["missing"] <= report["steps_undelivered"]
    assert result["last"] == [12]
    assert result["spools"] == []


def test_a_read_only_folder_is_reported_at_once_and_waited_for(tmp_path: Path) -> None:
    result = run_mounted("read_only", tmp_path)
    outcome = result["outcome"]
    assert outcome["longest_step_s"] < 1
    assert outcome["close_s"] < 3
    assert outcome["report"]["steps_in_spool"] == 12
    assert "Read-only file system" in outcome["report"]["first_error"]
    assert "mount it writable" in outcome["report"]["first_error"]
    assert any("python -m hook_layer.spool" in message for message in outcome["log"])
    assert result["status"] == 0
    assert result["after"] == list(range(12))
    assert result["job"]
    assert result["has_end"]


@pytest.mark.parametrize("spool_bytes", [0, 1 << 30])
def test_a_file_that_is_too_long_for_the_system_costs_its_own_step(
    tmp_path: Path, spool_bytes: int
) -> None:
    arguments = {
        "out_dir": str(tmp_path / "run"),
        "num_steps": 8,
        "sizes": [100_000, 4_000_000],
        "options": {"spool_dir": str(tmp_path), "spool_bytes": spool_bytes},
        "max_file_bytes": 2_000_000,
    }
    module = "tests.hook_layer.faults.training"
    outcome = run(sys.executable, "-m", module, json.dumps(arguments))
    assert outcome["longest_step_s"] < 1
    assert outcome["close_s"] < 3
    report = outcome["report"]
    assert (report["steps_written"], report["steps_undelivered"]) == (4, 4)
    assert "ulimit -f" in report["first_error"]
    assert stored_steps(str(tmp_path / "run")) == [0, 2, 4, 6]
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
