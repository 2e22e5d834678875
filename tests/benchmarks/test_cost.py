"""The cost model: it reads the template, agrees with counted requests, and its table is fresh."""

from __future__ import annotations

import math
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import pytest

from benchmarks.cost import __main__ as command
from benchmarks.cost.bill import (
    DAYS_A_MONTH,
    SWEEP_METRICS,
    dollars,
    hour_of_training,
    idle_month,
    log_bytes,
    million_steps,
    num_metrics,
    written_units,
)
from benchmarks.cost.comparison import compared
from benchmarks.cost.deployment import Deployment
from benchmarks.cost.document import BEGIN, COMMAND, END, PAGE
from benchmarks.cost.jobs import Jobs
from benchmarks.cost.model import requests_of
from benchmarks.cost.pollers import calls_of
from benchmarks.cost.simulation import Counted, simulate
from benchmarks.cost.workload import POLLERS, Timing, Workload, batches_of
from hook_layer.testing.written_trial import WrittenTrial
from lambdas.contracts.prices import Prices
from tests.benchmarks.moto_simulation import simulate_on_moto
from tests.hook_layer.tiny_hook import W, make_hook
from tests.infra.synthesis import assembly_of
from tests.tables import table

ROOT = Path(__file__).resolve().parents[2]
TENSORS = 20
SMALL = Workload(jobs=20, steps=10)
TOLERANCE = 0.1
"""Share of the counted requests, of every kind that is at least a hundredth of all."""


@pytest.fixture(scope="module")
def assembly() -> Path:
    return assembly_of({})


@pytest.fixture(scope="module")
def deployment(assembly: Path) -> Deployment:
    return Deployment.of_assembly(assembly)


@pytest.fixture(scope="module")
def pair(deployment: Deployment) -> Deployment:
    """The same with two rules, and nothing that evaluates what jobs bring along."""
    few = deployment.with_rules(2)
    return replace(few, evaluators=tuple(e for e in few.evaluators if e.rules))


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Callable[..., Counted]]:
    """Calls functions in a process of its own: loggers are of the whole process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        yield lambda *call: pool.submit(*call).result()


@pytest.fixture(scope="module")
def counted(pair: Deployment, elsewhere: Callable[..., Counted]) -> Counted:
    return elsewhere(simulate, pair, Jobs(SMALL, TENSORS), Timing())


def assert_agrees(deployment: Deployment, workload: Workload, counted: Counted) -> None:
    predicted = requests_of(deployment, workload, Timing(), on_aws=False)
    rows = [row for row in compared(predicted, counted) if row.share >= 0.01]
    assert len(rows) >= 5
    apart = [row for row in rows if abs(row.predicted - row.counted) > allowed(row.counted)]
    assert not apart


def allowed(count: float) -> float:
    """Return by how much a model may miss a count: a tenth, and what is chance in a small one."""
    return TOLERANCE * count + math.sqrt(count)


def test_the_template_is_read(deployment: Deployment) -> None:
    assert "NonFinite" in deployment.rules
    first = deployment.evaluators[0]
    assert (first.batch_size, first.window_s, first.maximum_concurrency) == (10, 1, 10)
    assert first.memory_mb == 512
    assert all(evaluator.hears_of_steps for evaluator in deployment.evaluators if evaluator.rules)
    assert {function.calls_a_month for function in deployment.scheduled} == {43800}
    assert deployment.architecture == "arm64"
    assert deployment.num_keys == 1
    assert deployment.has_recovery
    assert not deployment.encrypts_data
    assert (deployment.retention_days, deployment.expiration_days) == (30, 90)
    watched = set(deployment.alarm_metrics) - {""}
    assert watched == set(deployment.rules)
    assert {rule for page in deployment.dashboards for rule in page} >= watched


def test_fewer_rules_have_fewer_of_everything_that_is_theirs(deployment: Deployment) -> None:
    one = deployment.with_rules(1)
    assert one.rules == deployment.rules[:1]
    assert len(deployment.evaluators) - len(one.evaluators) == len(deployment.rules) - 1
    assert set(one.alarm_metrics) == {"", one.rules[0]}
    assert dollars(idle_month(one, Prices())) < dollars(idle_month(deployment, Prices()))
    with pytest.raises(ValueError, match="name more of them in the setting stepwatch:rules"):
        deployment.with_rules(1000)


def test_without_a_maximum_concurrency_fewer_polls_are_paid_for(deployment: Deployment) -> None:
    unlimited = tuple(replace(e, maximum_concurrency=None) for e in deployment.evaluators)
    polls, fewer = (
        next(line.count for line in idle_month(found, Prices()) if line.what.startswith("polls"))
        for found in (deployment, replace(deployment, evaluators=unlimited))
    )
    assert polls == len(deployment.evaluators) * 5 * 3 * 60 * 730  # five of 20 s each
    assert fewer == pytest.approx(polls * 2 / 5)


def test_the_model_agrees_with_counted_requests(pair: Deployment, counted: Counted) -> None:
    assert_agrees(pair, SMALL, counted)


def test_it_agrees_for_jobs_of_several_workers(
    pair: Deployment, elsewhere: Callable[..., Counted]
) -> None:
    workload = Workload(jobs=15, workers=4, steps=4)
    counted = elsewhere(simulate, pair, Jobs(workload, TENSORS), Timing())
    assert_agrees(pair, workload, counted)


def test_functions_that_no_job_asks_are_counted_too(
    deployment: Deployment, elsewhere: Callable[..., Counted]
) -> None:
    all_kinds = deployment.with_rules(1)
    counted = elsewhere(simulate, all_kinds, Jobs(SMALL, TENSORS), Timing())
    assert_agrees(all_kinds, SMALL, counted)


def test_it_agrees_with_the_units_of_the_table(pair: Deployment, counted: Counted) -> None:
    predicted = requests_of(pair, SMALL, Timing(), on_aws=False)
    units = sum(u["write"] + u["index write"] for u in counted.units.values())
    assert written_units(pair, predicted, SMALL) == pytest.approx(units, rel=TOLERANCE)
    assert counted.item_bytes < SMALL.item_bytes


@table(
    "evaluators, rules, least",
    {"grouped": ("grouped", 29, 500), "per-rule": ("per_rule", 2, 50 * 29 / 2)},
)
def test_no_key_of_the_table_is_written_by_all_jobs_too_often(
    elsewhere: Callable[..., Counted], evaluators: str, rules: int, least: float
) -> None:
    """The job-steps a second of a deployment, at 1,000 write units a second and key."""
    assembly = assembly_of({"stepwatch:evaluators": evaluators, "stepwatch:per_job_rules": "false"})
    deployment = Deployment.of_assembly(assembly).with_rules(rules)
    workload = Workload(jobs=3, steps=40)
    counted = elsewhere(simulate, deployment, Jobs(workload, TENSORS), Timing())
    assert counted.job_steps_per_s(workload) >= least
    assert_agrees(deployment, workload, counted)


def test_it_agrees_with_logs_and_metrics(pair: Deployment, counted: Counted) -> None:
    predicted = requests_of(pair, SMALL, Timing(), on_aws=False)
    assert log_bytes(predicted) == pytest.approx(sum(counted.log_bytes.values()), rel=0.2)
    assert counted.metrics["evaluate_rule"] == num_metrics(pair)
    assert counted.metrics["sweep"] == SWEEP_METRICS


def test_moto_is_asked_for_the_same(
    pair: Deployment, assembly: Path, elsewhere: Callable[..., Counted]
) -> None:
    few, one = Workload(jobs=3, steps=2), pair.with_rules(1)
    in_memory = elsewhere(simulate, one, Jobs(few, TENSORS), Timing())
    on_moto = elsewhere(simulate_on_moto, one, assembly, Jobs(few, TENSORS), Timing())
    assert in_memory.requests == on_moto.requests


def test_a_hook_writes_as_many_objects_as_the_model_says(tmp_path: Path) -> None:
    hook = make_hook(WrittenTrial(str(tmp_path)))
    for _ in range(3):
        hook.train(W)
    hook.close()
    parts = [path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("*.*")]
    of_steps = [part for part in parts if part in {"events", "index"}]
    assert len(of_steps) == 3 * Workload().puts_a_step


@pytest.mark.parametrize(("batch_size", "window_s"), [(10, 1.0), (100, 5.0), (1, 0.0)])
@pytest.mark.parametrize(
    ("jobs", "workers"), [(1, 1), (50, 1), (200, 1), (1000, 1), (1, 8), (100, 2)]
)
def test_files_come_together_as_the_model_says(
    deployment: Deployment, batch_size: int, window_s: float, jobs: int, workers: int
) -> None:
    workload = Workload(jobs=jobs, workers=workers)
    evaluator = replace(deployment.evaluators[0], batch_size=batch_size, window_s=window_s)
    timing, generator = Timing(), random.Random(1)
    steps = max(8000 // (workload.jobs * workload.workers), 4)
    messages = sorted(
        (at + generator.uniform(0, 0.02), job)
        for job in range(workload.jobs)
        for start in [generator.uniform(0, workload.saved_every_s)]
        for number in range(steps)
        for at in [start + workload.saved_every_s * (number + generator.uniform(0, 0.1))]
        for _ in range(workload.workers)
    )
    calls = calls_of(
        evaluator,
        messages,
        lambda batch: timing.seconds(evaluator, len(batch), len(set(batch))),
        generator,
    )
    assert sorted(job for call in calls for job in call.messages) == sorted(j for _, j in messages)
    assert max(len(call.messages) for call in calls) <= evaluator.batch_size
    assert {call.process for call in calls} <= set(range(POLLERS))
    expected = batches_of(evaluator, workload, timing)
    assert len(messages) / len(calls) == pytest.approx(expected.files, rel=0.1)
    looks = sum(len(set(call.messages)) for call in calls)
    assert looks / len(calls) == pytest.approx(expected.jobs, rel=0.1)


def test_a_bill_grows_with_rules_and_workers_and_shrinks_with_larger_batches(
    deployment: Deployment,
) -> None:
    def cost(deployment: Deployment, **changes: int) -> float:
        lines = million_steps(deployment, Workload(jobs=200, **changes), Timing(), Prices())
        return dollars(line for line in lines if not line.is_hook)

    two, four = deployment.with_rules(2), deployment.with_rules(4)
    assert 1.5 * cost(two) < cost(four) < 2.1 * cost(two)
    assert cost(two, workers=8) > 4 * cost(two)
    slower = tuple(replace(e, window_s=10.0, batch_size=100) for e in two.evaluators)
    assert cost(replace(two, evaluators=slower)) < cost(two)


def test_the_table_is_not_stale() -> None:
    assert command.main(["--check"]) == 0, f"run `{COMMAND}`"


def test_a_stale_table_is_found_and_written_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stale = tmp_path / "cost.md"
    stale.write_text(f"before\n{BEGIN}\nof last year\n{END}\nafter\n")
    monkeypatch.setattr(command, "PAGE", stale)
    assert command.main(["--check"]) == 1
    assert command.main(["--write"]) == 0
    text = stale.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "of last year" not in text
    assert command.main(["--check"]) == 0


def test_the_command_of_the_page_prints_a_bill(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (options,) = re.findall(
        r"^.venv/bin/python -m benchmarks.cost (--rules .*)$", PAGE.read_text(), re.MULTILINE
    )
    contexts: list[dict[str, str]] = []

    def as_it_comes(context: dict[str, str]) -> Path:
        contexts.append(context)
        return assembly_of({})

    monkeypatch.setattr(command, "synthesise", as_it_comes)
    assert command.main(options.split()) == 0
    assert contexts == [{"stepwatch:batch_size": "100"}]
    printed = capsys.readouterr().out
    assert "jobs=50, workers=8, steps=1000, saved_every_s=100.0" in printed
    for expected in ("3 rules", "polls of the queues", "ml.t3.medium", "an idle month"):
        assert expected in printed
    hour, month = re.findall(r"(?:an hour of one job|a month, 24 hours .*?) +([\d.,]+) \$", printed)
    (idle,) = re.findall(r"an idle month\n(?:.*\n)+?  together +([\d.]+) \$", printed)
    together = 50 * 24 * DAYS_A_MONTH * float(hour) + float(idle)
    assert float(month.replace(",", "")) == pytest.approx(together, rel=0.02)


def test_an_hour_of_a_job_is_its_share_of_a_million_steps(deployment: Deployment) -> None:
    few = deployment.with_rules(2)
    load = Workload(jobs=4, steps=360, saved_every_s=10.0)
    million = dollars(million_steps(few, load, Timing(), Prices()))
    hour = hour_of_training(few, load, Timing(), Prices())
    assert hour == pytest.approx(million / 1e6 * 360)
    rarer = hour_of_training(few, replace(load, saved_every_s=100.0), Timing(), Prices())
    assert rarer < hour / 3


def test_the_help_tells_every_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--help"])
    reported = " ".join(capsys.readouterr().out.split())
    for expected in ("(default: all; 10 with", "(default: 10; 1000 with", "(default: 1000; 4 with"):
        assert expected in reported
    assert "steps from save to save (default: 100)" in reported
    assert "seconds that a step takes (default: 0.1)" in reported


def test_the_command_prints_a_comparison() -> None:
    options = ["--simulate", "--rules", "1", "--jobs", "3", "--steps", "3"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.cost", *options],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for expected in ("model / counted", "dynamodb.UpdateItem", "sqs.SendMessageBatch"):
        assert expected in done.stdout


def test_the_sums_in_the_texts_are_those_of_the_model(
    deployment: Deployment, pair: Deployment
) -> None:
    def cents(of: Deployment, saved_every_s: float) -> float:
        load = Workload(saved_every_s=saved_every_s)
        return 100 * hour_of_training(of, load, Timing(), Prices())

    dense, sparse = cents(deployment, 10), cents(deployment, 100)
    few_dense, few_sparse = cents(pair, 10), cents(pair, 100)
    reported = (
        f"With its {len(deployment.rules)} rules a job of one worker that saves every 10 s costs "
        f"some {dense:.0f} cents an hour, one that saves every 100 s about {sparse:.0f} cent; with "
        f"two rules {few_dense:.0f} cent and {few_sparse:.1f} cents."
    )
    assert reported in " ".join(PAGE.read_text(encoding="utf-8").split())


def test_the_page_has_the_cost_of_one_function_for_all_rules() -> None:
    deployment = Deployment.of_assembly(assembly_of({"stepwatch:evaluators": "grouped"}))

    def cost(rules: int, workers: int) -> float:
        lines = million_steps(
            deployment.with_rules(rules), Workload(workers=workers), Timing(), Prices()
        )
        return dollars(line for line in lines if not line.is_hook)

    sentence = (
        f"cost {cost(10, 1):.0f} dollars with 10 rules and {cost(29, 1):.0f} with 29. With 29 "
        f"rules and 8 ranks they cost {cost(29, 8):.0f}."
    )
    assert sentence in " ".join(PAGE.read_text(encoding="utf-8").split())
