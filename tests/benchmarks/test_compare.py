from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.detection import compare as module
from benchmarks.detection.compare import Comparison, compare, is_sampled, main
from benchmarks.detection.fitting import FITTING
from benchmarks.detection.plans import Plan, read_frozen, write_frozen
from benchmarks.detection.program import HEALTHY


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
    sample = [plan for plan in read_frozen() if is_sampled(plan)]
    faulty = [plan for plan in sample if not plan.is_healthy]
    assert len(faulty) >= 100
    assert len(sample) - len(faulty) >= 20
    assert {plan.fault for plan in faulty} == set(FITTING)


def test_all_planned_runs_are_frozen() -> None:
    assert all(found is not None for found in read_frozen().values())


def test_today_equals_what_was_frozen_today(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    frozen = tmp_path / "frozen.jsonl"
    monkeypatch.setattr(module, "FROZEN", frozen)
    plans = [p for p in read_frozen() if (p.part, p.fault) == ("calibration", "dead_relu")]
    write_frozen(dict.fromkeys(plans), frozen)
    options = ["--jobs=1", f"--folder={tmp_path}"]
    assert main(["--all", *options]) == 0
    assert f"0 of {len(plans)} runs are frozen" in capsys.readouterr().out
    assert main(["--freeze", "--fault=dead_relu", *options]) == 0
    first, *_, last = plans
    found = read_frozen(frozen)
    assert all("DeadRelu" in (rules or {}) for rules in found.values())
    write_frozen(found | {first: {"Mine": 1}, last: None}, frozen)
    assert main(["--freeze-new", *options]) == 0
    assert read_frozen(frozen) == found | {first: {"Mine": 1}}
    write_frozen(found, frozen)
    assert main(["--all", "--rule=DeadRelu", *options]) == 0
    printed = capsys.readouterr().out
    assert f"{len(plans)} of {len(plans)} runs are frozen" in printed
    assert "gate: passed" in printed


def test_the_gate_fails_if_a_rule_raises_an_error() -> None:
    failed = replace(
        _compared(alarms=1, found=20), failures={DEAD[0]: ["DeadRelu: TypeError: a number"]}
    )
    assert not failed.passes
    assert "failed: calibration/net_0/dead_relu: DeadRelu: TypeError: a number" in failed.as_text()
