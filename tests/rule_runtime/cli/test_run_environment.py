"""What `stepwatch run` records of programs besides their tensors."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from subprocess import CompletedProcess

from tests.python_path import PYTHON_PATH
from tests.rule_runtime.cli.invoking import invoke
from tests.rule_runtime.processes import completed

SCRIPT = Path(__file__).resolve().parent / "scripts" / "sick_script.py"
STEPWATCH = Path(sys.executable).parent / "stepwatch"
PROGRAMS = (
    "train.py 3",
    "-Xutf8 -m train 3",
    "-c \"import runpy, sys; sys.argv[1:1] = ['3']; runpy.run_path('train.py')\"",
    "-m torch.distributed.run --standalone --nproc-per-node=1 train.py 3",
)


def test_each_run_says_what_it_was(tmp_path: Path) -> None:
    shutil.copy(SCRIPT, tmp_path / "train.py")
    lines = [f"{sys.executable} {program} --api-key hidden" for program in PROGRAMS]
    (tmp_path / "train.sh").write_text("\n".join(lines))
    watch(tmp_path, "bash", "train.sh", "--token", "hidden")
    session, *runs = (
        json.loads((tmp_path / "out" / place / "environment.json").read_text())
        for place in ("", *(f"run-{number}" for number in range(1, 5)))
    )
    assert session["Command"] == ["bash", "train.sh", "--token", "***"]
    assert "-Xutf8" in runs[1]["Command"]
    for run, argument in zip(runs, ["train.py", "-m", "-c", "train.py"], strict=True):
        assert argument in run["Command"]
        assert run["Command"][-2:] == ["--api-key", "***"]
        assert run["WorkingDirectory"] == session["WorkingDirectory"] == str(tmp_path)
        assert run["Packages"]["torch"]
        assert run["WorldSize"] == 1
    stored = (path for path in (tmp_path / "out").rglob("*.json") if path.is_file())
    assert not [path for path in stored if "hidden" in path.read_text()]


def test_output_and_use_of_the_machine_are_kept_until_the_session_is_removed(
    tmp_path: Path,
) -> None:
    script = tmp_path / "train.py"
    script.write_text("import sys\nprint('x' * 3_000_000)\nprint('last', file=sys.stderr)\n")
    done = watch(tmp_path, sys.executable, "train.py", options=["--log-console"])
    assert done.stdout.startswith("x" * 3_000_000)
    assert "last\n" in done.stderr
    folder = tmp_path / "out"
    kept = (folder / "console.log").read_text()
    assert len(kept) == 1 << 20
    assert "last\n" in kept
    (line,) = (folder / "system_metrics.jsonl").read_text().splitlines()
    sample = json.loads(line)
    assert 0 < sample["MemoryPercent"] < 100
    assert 0 < sample["DiskPercent"] <= 100
    assert 0 <= sample["CpuPercent"] <= 100
    assert sample["MemoryBytes"] > 1 << 20
    assert invoke("clean", folder, "--yes")[0] == 0
    assert not folder.exists()


def watch(folder: Path, *command: str, options: list[str] | None = None) -> CompletedProcess[str]:
    arguments = [STEPWATCH, "run", "--out-dir", "out", *(options or []), "--", *command]
    return completed(arguments, cwd=folder, env={**os.environ, "PYTHONPATH": PYTHON_PATH})
