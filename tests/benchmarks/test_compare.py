from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.detection import compare as module
from benchmarks.detection.compare import Comparison, compare, is_sampled, main
from benchmarks.detection.faults import FAULTS
from benchmarks.detection.parts import PARTS
from benchmarks.detection.program import HEALTHY
from benchmarks.detection.runs import Plan, planned


def _plan(number: int, fault: str) -> Plan:
    return Plan("calibration", f"net_{number}", fault, 0)


def _findings(rule: str, plans: list[Plan], found: int) -> dict[Plan, dict[str, int]]:
    """Return findings of the first of some runs, and none of the others."""
    return {plan: {rule: 3} if i < found else {} for i, plan in enumerate(plans)}


HEALTHY_RUNS = [_plan(number, HEALTHY) for number in range(4)]
DEAD = [_plan(number, "dead_relu") for number in range(20)]


def _compared(alarms: int, found: int) -> Comparison:
    plans = HEALTHY_RUNS + DEAD
    before = _findings("LossSpike", HEALTHY_RUNS, 1) | _findings("DeadRelu", DEAD, 20)
    now = _findings("LossSpike", HEALTHY_RUNS, alarms) | _findings("DeadRelu", DEAD, found)
    return compare(plans, before, now)


def test_the_gate_passes_while_few_findings_are_lost() -> None:
    compared = _compared(alarms=1, found=19)
    assert compared.passes
    assert compared.lost == [DEAD[19]]
    text = compared.as_text()
    assert "20 found before, 19 now, 19 in both" in text
    assert "lost: calibration/net_19/dead_relu, was DeadRelu at 3" in text


def test_the_gate_fails_at_an_alarm_and_at_too_many_lost_findings() -> None:
    alarm = _compared(alarms=2, found=20)
    assert (alarm.passes, alarm.alarms) == (False, [HEALTHY_RUNS[1]])
    lost = _compared(alarms=1, found=18)
    assert (lost.passes, lost.lost_kinds) == (False, [])


def test_the_gate_fails_if_a_kind_is_not_found_any_more() -> None:
    assert _compared(alarms=1, found=16).lost_kinds == ["dead_relu"]


def test_findings_of_rules_that_do_not_fit_are_no_detection() -> None:
    before = _findings("DeadRelu", DEAD, 20)
    compared = compare(DEAD, before, _findings("ClassImbalance", DEAD, 20))
    assert compared.lost == DEAD


def test_the_sample_has_all_kinds_of_faults_and_enough_runs() -> None:
    sample = [
        plan
        for part in PARTS
        for plan in planned(part, healthy_seeds=1, fault_seeds=1)
        if is_sampled(plan)
    ]
    faulty = [plan for plan in sample if not plan.is_healthy]
    assert len(faulty) >= 100
    assert len(sample) - len(faulty) >= 20
    assert {plan.fault for plan in faulty} == set(FAULTS)
    rows = map(json.loads, module.FROZEN.read_text().splitlines())
    frozen = {Plan(row["part"], row["program"], row["fault"], row["seed"]) for row in rows}
    assert set(sample) <= frozen


def test_today_equals_what_was_frozen_today(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "FROZEN", tmp_path / "frozen.jsonl")
    monkeypatch.setattr(module, "PARTS", ("calibration",))
    options = ["--fault=dead_relu", "--jobs=1", f"--folder={tmp_path}"]
    assert main(["--freeze", *options]) == 0
    rows = [json.loads(line) for line in (tmp_path / "frozen.jsonl").read_text().splitlines()]
    assert {row["fault"] for row in rows} == {"dead_relu"}
    assert any("DeadRelu" in row["findings"] for row in rows)
    frozen = tmp_path / "frozen.jsonl"
    known, added = frozen.read_text().splitlines(keepends=True)[:-1], rows[-1]
    frozen.write_text("".join([*known, json.dumps({**added, "fault": "not planned"}), "\n"]))
    assert main(["--freeze-new", *options]) == 0
    *others, last = frozen.read_text().splitlines(keepends=True)
    assert others[: len(known)] == known
    assert json.loads(last) == added
    frozen.write_text("".join([*known, last]))
    assert main(["--all", "--rule=DeadRelu", *options]) == 0
    printed = capsys.readouterr().out
    assert f"{len(rows)} of {len(rows)} runs are frozen" in printed
    assert "gate: passed" in printed


def test_the_gate_fails_if_a_rule_raises_an_error() -> None:
    failed = replace(
        _compared(alarms=1, found=20), failures={DEAD[0]: ["DeadRelu: TypeError: a number"]}
    )
    assert not failed.passes
    assert "failed: calibration/net_0/dead_relu: DeadRelu: TypeError: a number" in failed.as_text()
