"""The benchmarks run and print results; no test depends on speed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from benchmarks import deployed_evaluator, reading, rules, training, writing
from benchmarks.__main__ import GROUPS
from benchmarks.measuring import Contender, Scale, added_per_step, in_turns
from benchmarks.page import MARKS, Machine, write_page
from benchmarks.result import Measured, Result, print_table, write_json
from tests.frameworks.unchanged.__main__ import MARKS as UNCHANGED

ROOT = Path(__file__).resolve().parents[2]
ROW = Result(
    "writing",
    "us",
    Measured(5.0, 4.0, 9.0),
    must=12,
    aim=6,
    limit=1.5,
    peers={"quick": Measured(10.0, 10.0, 10.0), "slow": Measured(300.0, 200.0, 400.0)},
)


@pytest.mark.parametrize(
    ("measure", "rows"),
    [
        (training.statistics, ["statistics: added wall time", "statistics: added CPU time"]),
        (training.raw, ["raw: added wall time", "raw: added CPU time"]),
        (training.losses, ["losses: added wall time", "losses: added CPU time"]),
        (writing.large, ["write 50 x 256 KiB a step"]),
        (writing.small, ["write 50 x 1 KiB a step"]),
        (reading.opening, ["open 1,000 steps, one statistic of each"]),
        (reading.values, ["all values of one tensor, 1,000 steps"]),
        (rules.vanishing_gradient, ["VanishingGradient, 50 tensors"]),
        (rules.evaluator, ["warm evaluator, ten events"]),
    ],
)
def test_every_group_runs(measure: Any, rows: list[str], tmp_path: Path) -> None:
    results = measure(Scale(1, 0.02, peers=False, folder=tmp_path))
    assert [result.row for result in results] == rows
    for result in results:
        assert result.ours.low <= result.ours.median <= result.ours.high
        assert not result.peers
        assert result.must is not None or result.row == "raw: added CPU time"


def test_the_evaluator_is_measured_by_batches_of_each_size(tmp_path: Path) -> None:
    results = deployed_evaluator.batches(Scale(1, 0.01, peers=False, folder=tmp_path))
    assert [(result.row.rpartition(": ")[2], result.unit) for result in results] == [
        ("steps a second", "steps/s"),
        ("peak memory", "MB"),
    ] * len(deployed_evaluator.RECORDS)
    assert all(0 < result.ours.low <= result.ours.median <= result.ours.high for result in results)
    assert all(result.ours.median < 512 for result in results[1::2])


def test_the_command_prints_a_table_and_writes_a_file(tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    command = [sys.executable, "-m", "benchmarks", "evaluator", "write-small"]
    options = ["--rounds", "1", "--size", "0.01", "--no-peers", "--output", str(output)]
    done = subprocess.run(
        [*command, *options], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    content = json.loads(output.read_text())
    assert [row["row"] for row in content] == [
        "warm evaluator, ten events",
        "write 50 x 1 KiB a step",
    ]
    for row in content:
        assert row.keys() >= {"row", "unit", "ours", "peers", "limit", "must", "better", "spread"}
        low, high = row["spread"]
        assert low <= row["ours"] <= high
        assert row["better"] in ("lower", "higher")
        assert row["row"] in done.stdout


def test_a_group_that_does_not_exist_is_reported() -> None:
    command = [sys.executable, "-m", "benchmarks", "statistic"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert all(group in done.stderr for group in GROUPS)


def test_results_are_the_same_after_a_file(tmp_path: Path) -> None:
    write_json([ROW], tmp_path / "results.json")
    (content,) = json.loads((tmp_path / "results.json").read_text())
    assert Result.from_json(content) == ROW
    assert content["peers"] == {"quick": 10.0, "slow": 300.0}


def test_the_table_compares_with_the_best_of_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    share = Result("share", "", Measured(0.5, 0.5, 0.5), 0.8, 0.95, better="higher",
                   peers={"a": Measured(0.25, 0, 1), "b": Measured(0.1, 0, 1)})  # fmt: skip
    print_table([ROW, share])
    first, second = capsys.readouterr().out.splitlines()[2:]
    assert "best peer / ours 2" in first
    assert " aim " in first
    assert "ours / best peer 2" in second
    assert " no " in second


def test_the_page_has_the_newest_table_only(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{MARKS[0]}\nold\n{MARKS[1]}\nbehind\n")
    machine = Machine("a CPU", 2, "3.11.7", "numpy 1.26.4", "abc1234", "2026-11-22")
    for _ in range(2):
        write_page(page, [ROW], machine)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("behind\n")
    assert "old" not in text
    assert text.count("2026-11-22, commit abc1234: a CPU, 2 cores, Python 3.11.7, numpy") == 1
    assert "| writing | us | **5** | 12 | 6 | aim | 1.5 | quick 10, slow 300 | 2 |" in text


def test_this_machine_is_named() -> None:
    machine = Machine.this()
    assert machine.cpu
    assert machine.cores >= 1
    assert "numpy" in machine.packages


def test_the_pages_about_speed_have_places_for_the_tables() -> None:
    text = (ROOT / "docs" / "reference" / "measurements.md").read_text()
    assert all(text.count(mark) == 1 for mark in (*MARKS, *UNCHANGED))


def test_what_is_added_is_found_beside_the_plain_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def advance(by: float) -> None:
        nonlocal now
        now += by

    monkeypatch.setattr("benchmarks.measuring.time.perf_counter", lambda: now)
    monkeypatch.setattr("benchmarks.measuring.time.process_time", lambda: 2 * now)
    tidied: list[int] = []
    hooked = Contender(
        step=lambda: advance(0.012), settle=lambda: advance(0.004), tidy=lambda: tidied.append(1)
    )
    plain = Contender(step=lambda: advance(0.010))
    (wall, cpu) = added_per_step(plain, {"ours": hooked}, rounds=3, steps=4)["ours"]
    assert wall.median == pytest.approx(2)  # ms a step; what runs behind the steps is CPU time only
    assert cpu.median == pytest.approx(2 * (2 + 4 / 4))
    assert len(tidied) == 1 + 3


def test_things_are_measured_in_turns_and_the_first_call_does_not_count() -> None:
    calls: list[str] = []

    def work(name: str) -> float:
        calls.append(name)
        return len(calls)

    found = in_turns({"a": lambda: work("a"), "b": lambda: work("b")}, 2)
    assert calls == ["a", "b"] * 3
    assert found == {"a": [3, 5], "b": [4, 6]}
