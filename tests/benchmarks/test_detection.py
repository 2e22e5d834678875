"""The benchmark of detection: runs, verdicts, scores and tables."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import hook_layer
from benchmarks.detection import diagnoses as module
from benchmarks.detection.__main__ import main
from benchmarks.detection.diagnoses import ACCEPTED, Diagnosed, diagnosed, half_of, tables_of
from benchmarks.detection.digests import digest_of, digest_of_hook
from benchmarks.detection.evaluation import Verdict, evaluate
from benchmarks.detection.fitting import FITTING
from benchmarks.detection.packs import class_of
from benchmarks.detection.parts import PARTS, load_program, program_names
from benchmarks.detection.plans import Plan, planned, read_frozen
from benchmarks.detection.program import HEALTHY
from benchmarks.detection.report import tables
from benchmarks.detection.runs import obtain
from benchmarks.detection.scores import EvaluatedRun, by_fault, harms
from rule_runtime.cli.evaluation import evaluate_run
from rule_runtime.diagnosis.causes import CAUSES
from rule_runtime.engine.evidence import Evidence
from rule_runtime.engine.rule import Rule
from rule_runtime.rules.vanishing_gradient import VanishingGradient


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


def test_a_healthy_run_and_one_with_a_fault_from_the_command_line(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--part", "calibration", "--program", "digits_mlp", "--seeds", "1", "--jobs", "1"]
    command += ["--fault", HEALTHY, "--fault", "dead_relu", "--folder", str(cache)]
    main(command)
    printed = capsys.readouterr().out
    assert "=== calibration: 2 runs ===" in printed
    for pack in ("original", "recommended"):
        assert f"{pack:<11}  dead_relu  1         1 of 1 (100 %)" in printed
    (harm,) = (line for line in printed.splitlines() if line.startswith("digits_mlp"))
    assert harm.endswith("yes")


def test_a_run_is_trained_once_and_evaluated_as_by_the_command_evaluate(cache: Path) -> None:
    plan = Plan("calibration", "digits_mlp", "dead_relu", 0)
    first = obtain(plan, "original", cache)
    written = first.trial.stat().st_mtime_ns
    assert obtain(plan, "original", cache) == first
    assert first.trial.stat().st_mtime_ns == written
    rules: dict[str, Rule] = {"mine": VanishingGradient(threshold=1e-6)}
    (verdict,) = evaluate(first.trial, rules).values()
    (state,) = evaluate_run(str(first.trial), list(rules.items())).values()
    assert state.evidence is not None
    assert (verdict.evidence, verdict.evaluated) == (state.evidence, state.counts.evaluated)
    assert verdict.step == state.evidence.step
    assert evaluate(first.trial, rules) == {"mine": verdict}  # from the cache
    assert evaluate(first.trial, {"mine": VanishingGradient(threshold=0)})["mine"].step is None


def test_every_frozen_run_has_a_program_and_every_program_a_frozen_healthy_run() -> None:
    frozen = read_frozen()
    programs = [(part, name) for part in PARTS for name in program_names(part)]
    assert {(plan.part, plan.program) for plan in frozen} == set(programs)
    assert {(p.part, p.program) for p in frozen if p.is_healthy} == set(programs)
    assert len({name for _, name in programs}) == len(programs)
    assert all(callable(load_program(part, name)) for part, name in programs)
    assert {p.fault for p in frozen if p.part == "calibration"} == {HEALTHY, *FITTING}
    assert {p.fault for p in frozen if p.part == "regression"} == {HEALTHY, *FITTING}


def test_planned_runs_can_be_chosen() -> None:
    plans = planned("calibration", healthy_seeds=2, fault_seeds=1)
    assert sum(plan.is_healthy for plan in plans) == 2 * len(program_names("calibration"))
    assert not planned("regression", healthy_seeds=1, fault_seeds=1, only_programs=["digits_mlp"])
    with pytest.raises(SystemExit, match="no run"):
        main(["--part", "regression", "--program", "digits_mlp"])


def _evidence(step: int, measure: str = "check") -> Evidence:
    """Return a finding at a step."""
    texts = {"mode": "TRAIN", "worker": "worker_0", "tensor": "w", "sentence": "", "remedy": ""}
    return Evidence(step=step, measure=measure, value=1.0, threshold=0.0, **texts)


def _run(fault: str, seed: int, error: float, **steps: int | None) -> EvaluatedRun:
    verdicts = {
        f"p/{name}": Verdict(None if step is None else _evidence(step), 1, "")
        for name, step in steps.items()
    }
    return EvaluatedRun(Plan("calibration", "net", fault, seed), error, verdicts)


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
    assert (dead.runs, dead.found, dead.others, dead.step) == (3, 2, {"Overfit"}, 7)
    assert (stalled.runs, stalled.found, stalled.others) == (1, 0, frozenset())
    assert {harm.fault: harm.is_clear for harm in harms(runs)} == {
        "dead_relu": True,
        "stalled": True,
    }
    shown = {table.title: table.rows for table in tables(runs, {"p": rules})}
    assert shown["In short"][0][:4] == ("p", "1 of 2 (50 %)", "0", "2 of 4 (50 %)")
    assert shown["Faults found by a fitting rule"][0] == ("p", "dead_relu", "1", "2 of 3 (67 %)")
    assert shown["False alarms"] == [("p", "net 1", "Overfit", "7", "")]
    assert shown["Missed"][0] == ("p", "dead_relu", "net", "1 of 3 (33 %)", "7", "Overfit")


def test_a_diagnosis_is_right_if_its_cause_is_the_injected_fault() -> None:
    runs = [
        _run("dead_relu", 0, 0.1, DeadRelu=5, PlateauedLoss=1, LossSpike=None),
        _run("dead_relu", 1, 0.1, Overfit=3, DeadRelu=5),
        _run("overfit", 0, 0.1, DeadRelu=3),
        _run("overfit", 1, 0.1, Mine=3),
    ]
    found = [one for run in runs if (one := diagnosed(run)) is not None]
    assert found[0] == Diagnosed("dead_relu", ("inactive_relu", "not_learning"), "not_learning")
    assert found[3] == Diagnosed("overfit", (), "none")
    causes, confusion = tables_of(found)
    assert [row[1] for row in causes.rows] == ["2 of 4 (50 %)", "2 of 4 (50 %)", "0 of 4 (0 %)"]
    assert confusion.rows == [
        ("dead_relu", "inactive_relu", "yes", "2"),
        ("overfit", "inactive_relu", "NO", "1"),
        ("overfit", "none", "NO", "1"),
    ]
    assert diagnosed(_run("overfit", 0, 0.1, DeadRelu=None)) is None


def test_each_fault_but_a_hang_has_causes_of_the_table() -> None:
    assert {*ACCEPTED, "stalled"} == {*FITTING}
    accepted = {cause for causes in ACCEPTED.values() for cause in causes}
    assert accepted <= {cause.name for cause in CAUSES}


def test_diagnoses_from_the_command_line(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    half = half_of("digits_mlp")
    command = ["--half", half, "--program", "digits_mlp", "--jobs", "1", "--folder", str(cache)]
    module.main([*command, "--fault", "dead_relu"])
    printed = capsys.readouterr().out
    assert f"half {half}: 1 runs with one fault, 1 with a finding" in printed
    assert "dead_relu       inactive_relu  yes    1" in printed


def test_harm_must_be_clear_and_measured() -> None:
    healthy = [_run(HEALTHY, seed, error) for seed, error in enumerate((0.1, 0.11, 0.2))]
    for error, is_clear in ((0.19, False), (0.21, True), (math.inf, True)):
        (harm,) = harms([*healthy, _run("dead_relu", 0, error)])
        assert harm.is_clear is is_clear
    assert not harms([_run(HEALTHY, 0, math.nan), _run("dead_relu", 0, math.nan)])


def test_cached_runs_belong_to_the_code_that_made_them(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "hook.py").write_text("a = 1")
    before = digest_of(tmp_path)
    assert before == digest_of(tmp_path)
    (tmp_path / "inner" / "more.py").write_text("b = 2")
    assert before != digest_of(tmp_path)
    assert digest_of_hook() == digest_of(Path(hook_layer.__file__).parent)
