from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

import hook_layer
from benchmarks.detection.__main__ import main
from benchmarks.detection.digests import digest_of, digest_of_hook, digest_of_rules
from benchmarks.detection.faults import FAULTS
from benchmarks.detection.fitting import FITTING
from benchmarks.detection.judging import Verdict, judge
from benchmarks.detection.packs import class_of, packs
from benchmarks.detection.parts import PARTS, load_program, program_names
from benchmarks.detection.program import HEALTHY
from benchmarks.detection.report import tables
from benchmarks.detection.results_file import overview, part_results
from benchmarks.detection.runs import Plan, obtain, planned
from benchmarks.detection.scores import Judged, by_fault, by_rule, harms
from rule_runtime.cli.evaluation import evaluate_run
from rule_runtime.engine.rule import Rule
from rule_runtime.rules.vanishing_gradient import VanishingGradient


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


def test_a_healthy_run_and_one_with_a_fault_from_the_command_line(
    kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--part", "calibration", "--program", "digits_mlp", "--seeds", "1", "--jobs", "1"]
    command += ["--fault", HEALTHY, "--fault", "dead_relu", "--folder", str(kept), "--json"]
    main(command)
    found = json.loads(capsys.readouterr().out)
    healthy, sick = found["runs"]
    assert healthy["plan"]["fault"] == HEALTHY
    assert healthy["error"] < 0.1
    assert sick["error"] > 0.8
    for pack in packs():
        (score,) = found["packs"][pack]["faults"]
        assert (score["fault"], score["runs"], score["found"]) == ("dead_relu", 1, 1)
        assert score["rules"]["DeadRelu"] == 1


def test_a_run_is_trained_once_and_judged_as_the_command_evaluate_judges_it(kept: Path) -> None:
    plan = Plan("calibration", "digits_mlp", "dead_relu", 0)
    first = obtain(plan, "original", kept)
    written = first.trial.stat().st_mtime_ns
    assert obtain(plan, "original", kept) == first
    assert first.trial.stat().st_mtime_ns == written
    rules: dict[str, Rule] = {"mine": VanishingGradient(threshold=1e-6)}
    (verdict,) = judge(first.trial, rules).values()
    (state,) = evaluate_run(str(first.trial), list(rules.items())).values()
    assert state.evidence is not None
    assert (verdict.step, verdict.sentence) == (state.evidence.step, state.evidence.sentence)
    assert (verdict.count, verdict.evaluated) == (state.evidence.count, state.counts.evaluated)
    assert judge(first.trial, rules) == {"mine": verdict}  # from what was kept
    assert judge(first.trial, {"mine": VanishingGradient(threshold=0)})["mine"].step is None


def test_parts_have_all_kinds_of_faults_and_no_program_in_common() -> None:
    names = {part: program_names(part) for part in PARTS}
    assert len(set().union(*names.values())) == sum(map(len, names.values()))
    for part, of_part in names.items():
        kinds = {fault for name in of_part for fault in load_program(part, name).faults}
        if part in ("calibration", "fifteenth_held_out"):
            assert kinds == set(FAULTS), part
        else:
            assert kinds <= set(FAULTS), part
    assert set(FITTING) == set(FAULTS)


def test_planned_runs_can_be_chosen() -> None:
    plans = planned("calibration", healthy_seeds=2, fault_seeds=1)
    assert sum(plan.is_healthy for plan in plans) == 2 * len(program_names("calibration"))
    assert not planned(
        "fifteenth_held_out", healthy_seeds=1, fault_seeds=1, only_programs=["digits_mlp"]
    )
    with pytest.raises(SystemExit, match="no run"):
        main(["--part", "fifteenth_held_out", "--program", "digits_mlp"])


def _run(fault: str, seed: int, error: float, **steps: int | None) -> Judged:
    verdicts = {
        f"p/{name}": Verdict(step, "", int(step is not None), 1, "") for name, step in steps.items()
    }
    return Judged(Plan("calibration", "net", fault, seed), error, verdicts)


def test_only_fitting_rules_count_and_healthy_findings_are_false_alarms() -> None:
    runs = [
        _run(HEALTHY, 0, 0.1, DeadRelu=None, Overfit=None),
        _run(HEALTHY, 1, 0.2, DeadRelu=None, Overfit=7),
        _run("dead_relu", 0, 0.9, DeadRelu=5, Overfit=1),
        _run("dead_relu", 1, 0.8, DeadRelu=9, Overfit=None),
        _run("dead_relu", 2, 0.1, DeadRelu=None, Overfit=3),
        _run("stalled", 0, math.nan, DeadRelu=None, Overfit=None),
    ]
    rules = ["p/DeadRelu", "p/Overfit"]
    assert list(map(class_of, rules)) == ["DeadRelu", "Overfit"]
    dead, stalled = by_fault(runs, rules)
    assert (dead.runs, dead.found, dead.unfitting, dead.step) == (3, 2, 1, 7)
    assert dead.rules == {"DeadRelu": 2}
    assert (stalled.runs, stalled.found, stalled.unfitting) == (1, 0, 0)
    relu, overfit = by_rule(runs, rules)
    assert (relu.fitting, relu.detected, relu.step, relu.false_alarms) == (3, 2, 7, 0)
    assert (overfit.fitting, overfit.detected, overfit.false_alarms) == (0, 0, 1)
    assert {harm.fault: harm.is_clear for harm in harms(runs)} == {
        "dead_relu": True,
        "stalled": True,
    }
    shown = "\n".join(table.as_markdown() for table in tables(runs, {"p": rules}))
    assert "| dead_relu | 1 | 3 | 2 of 3 (67 %) |" in shown
    assert "| **all** | 2 | 1 of 2 (50 %) | - |" in shown


def test_harm_must_be_clear() -> None:
    healthy = [_run(HEALTHY, seed, error) for seed, error in enumerate((0.1, 0.11, 0.2))]
    for error, is_clear in ((0.19, False), (0.21, True), (math.inf, True)):
        (harm,) = harms([*healthy, _run("dead_relu", 0, error)])
        assert harm.is_clear is is_clear


def test_each_part_has_a_file_that_tells_which_rules_it_is_of(tmp_path: Path) -> None:
    runs = [_run(HEALTHY, 0, 0.1, DeadRelu=None), _run("dead_relu", 0, 0.9, DeadRelu=5)]
    folder = tmp_path / "results"
    folder.mkdir()
    text = part_results("calibration", runs, {"p": ["p/DeadRelu"]})
    (folder / "calibration.md").write_text(text)
    assert "| dead_relu | 1 | 1 | 1 of 1 (100 %) |" in text
    measured = f"SHA-256 of the rules' code and the packs begins with {digest_of_rules()}."
    assert measured in text
    short = overview(folder)
    assert f"{measured}\n[All its tables](results/calibration.md).\n\n| pack |" in short
    assert "| p | 0 of 1 (0 %) | - | 1 of 1 (100 %) | 1 of 1 (100 %) |  |" in short
    assert "(results/fifteenth_held_out.md)" not in short


def test_results_are_of_all_runs_of_a_part() -> None:
    with pytest.raises(SystemExit):
        main(["--write", "--program", "digits_mlp"])


def test_what_is_kept_is_of_the_code_that_made_it(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "hook.py").write_text("a = 1")
    before = digest_of(tmp_path)
    assert before == digest_of(tmp_path)
    (tmp_path / "inner" / "more.py").write_text("b = 2")
    assert before != digest_of(tmp_path)
    assert digest_of_hook() == digest_of(Path(hook_layer.__file__).parent)
