"""What the report about a job says, and how much of a run is read for it."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hook_layer.format.job_file import JobFile
from hook_layer.format.modes import ModeKeys
from hook_layer.format.paths import JOB_FILE
from hook_layer.storage.local import LocalStore
from hook_layer.storage.memory import MemoryStore
from rule_runtime.cli.evaluation import evaluate_run
from rule_runtime.engine.outcome import RuleStatus
from rule_runtime.engine.registry import create_rule
from rule_runtime.engine.result_file import RuleResult, result_place
from rule_runtime.reporting import job_report
from rule_runtime.reporting.html_report import report_of_store
from rule_runtime.reporting.job_verdicts import JobVerdict, verdicts_of
from rule_runtime.reporting.run_reader import ReadLimits, read_run
from rule_runtime.testing import TrialBuilder
from tests.rule_runtime.counting_store import CountingStore
from tests.rule_runtime.reporting.sick_run import JUMP

RULES = ("NonFinite", "StalledTrainingRule", "TreeDepth")
OF_THE_PAGE = {
    *("html", "head", "meta", "link", "title", "style", "body", "header", "main", "footer", "h1"),
    *("h2", "h3", "p", "ul", "ol", "li", "dl", "div", "dt", "dd", "section", "article", "span"),
    *("figure", "svg", "line", "text", "polyline", "circle", "path", "rect", "b", "i", "bdi"),
    *("table", "thead", "tbody", "tr", "th", "td", "details", "summary", "code"),
}


class Elements(HTMLParser):
    """The elements of a page, and the attributes that could run something."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.active: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.active += [name for name, value in attrs if name.startswith("on") or name == "src"]
        self.active += [
            value or "" for name, value in attrs if name == "href" and value != "data:,"
        ]


@pytest.fixture(scope="module")
def judged(sick: Path) -> dict[str, Any]:
    rules = [(name, create_rule(name, {})) for name in RULES]
    return dict(evaluate_run(str(sick), rules))


def test_it_tells_what_was_found_where_and_what_to_do(sick: Path, judged: dict[str, Any]) -> None:
    report = job_report(sick, judged)
    page, evidence = report.html, judged["NonFinite"].evidence
    assert evidence.sentence in page
    assert evidence.remedy.split(",")[0] in page
    assert f"found at step {evidence.step}" in page
    order = [page.index(f"<h3>{RULES[0]}</h3>"), page.index("<h2>Losses</h2>")]
    assert order == sorted(order), "verdicts come first"
    assert "Rules that were not evaluated" in page
    assert judged["TreeDepth"].reason in page
    assert "CrossEntropyLoss_output_0 (EVAL)" in page
    assert "mnist-7" in page


def test_its_numbers_are_those_that_were_saved(sick: Path, judged: dict[str, Any]) -> None:
    numbers = json.loads(json.dumps(job_report(sick, judged).numbers, allow_nan=False))
    found = {each["RuleConfigurationName"]: each for each in numbers["verdicts"]}
    assert numbers["verdicts"][0]["RuleConfigurationName"] == "NonFinite", "findings come first"
    assert found["TreeDepth"]["NotJudged"] is True
    assert found["StalledTrainingRule"]["RuleEvaluationStatus"] == "NoIssuesFound"
    store = LocalStore(sick)
    reading = read_run(store)
    from rule_runtime import create_trial

    trial = create_trial(sick)
    (train,) = (each for each in numbers["curves"]["Losses"] if each["name"].endswith("(TRAIN)"))
    values = trial.tensor("CrossEntropyLoss_output_0").values(ModeKeys.TRAIN)
    kept = [np.nan if value is None else value for value in train["values"]]
    np.testing.assert_allclose(kept, list(values.values()), rtol=1e-6)
    assert reading.num_steps_read == numbers["steps"]["saved"] == len(trial.steps())
    gradients = numbers["gradients"]
    row = gradients["rows"].index("Sequential_0.weight")
    first = trial.tensor("gradient/Sequential_0.weight").value(0)
    assert gradients["values"][row][0] == pytest.approx(np.linalg.norm(first), rel=1e-4)
    assert gradients["not_finite"], "the cells after the jump"
    updates = numbers["updates"]
    row = updates["rows"].index("Sequential_0.weight")
    weight = trial.tensor("Sequential_0.weight").value(0)
    expected = 0.1 * np.linalg.norm(first) / np.linalg.norm(weight)
    assert updates["values"][row][0] == pytest.approx(expected, rel=1e-4)
    worst = {each["tensor"]: each for each in numbers["worst_tensors"]}
    assert all(each["first_not_finite_step"] > JUMP for each in worst.values())


def test_without_verdicts_those_beside_the_tensors_are_reported(
    sick: Path, judged: dict[str, Any]
) -> None:
    run = read_run(LocalStore(sick)).run or ""
    assert "no rule was evaluated" in job_report(sick).html
    written = []
    for name, its_run in (("NonFinite", run), ("DeadRelu", "01AN0THERRUN")):
        evidence = judged["NonFinite"].evidence.to_json()
        result = RuleResult(
            training_job_name="mnist-7", run_id=its_run, root_uri="s3://b/mnist-7/", rule=name,
            status=RuleStatus.ISSUES_FOUND, details="x", changed_at_ms=1, evidence=evidence,
        )  # fmt: skip
        folder, key = result_place(LocalStore(sick).uri, name)
        written.append(Path(folder.removeprefix("file://")) / key)
        written[-1].parent.mkdir(parents=True)
        written[-1].write_text(json.dumps(result.to_json()))
    broken = written[0].parent.parent / "Broken" / "status.json"
    broken.parent.mkdir()
    broken.write_text("{")
    reported = job_report(sick).numbers["verdicts"]
    for file in (*written, broken):
        file.unlink()
    assert [each["RuleConfigurationName"] for each in reported] == ["NonFinite"], "of this run only"
    assert reported[0]["Evidence"]["step"] == judged["NonFinite"].evidence.step


def test_verdicts_may_be_the_json_of_the_command_line(judged: dict[str, Any]) -> None:
    from rule_runtime.reporting.run_verdicts import RunVerdicts
    from rule_runtime.reporting.verdicts import verdicts_json

    entries = json.loads(verdicts_json([RunVerdicts("", "path", judged)]))
    as_json = [each.to_json() for each in verdicts_of(entries)]
    assert as_json == [each.to_json() for each in verdicts_of(judged)]
    with pytest.raises(ValueError, match="stepwatch evaluate --output json"):
        verdicts_of([{"RuleConfigurationName": "x", "RuleEvaluationStatus": "Fine"}])


def write_long_run(store: MemoryStore, steps: int, *, every: int = 100) -> TrialBuilder:
    builder = TrialBuilder(store)
    for step in range(steps):
        mode = ModeKeys.EVAL if step % every == every - 1 else ModeKeys.TRAIN
        tensors = {"Loss_output_0": np.float32(1 / (1 + step)), "gradient/a": np.ones(2)}
        builder.step(step, tensors, mode=mode, save_values=step % 7 == 0)
    return builder


def test_of_a_long_run_a_bounded_number_of_files_is_read_and_no_event_file() -> None:
    store = CountingStore()
    write_long_run(store, 3000)
    store.reset()
    report = report_of_store(store, [], limits=ReadLimits(steps=200))
    index_files = store.gets("index/")
    assert len(index_files) == len(set(index_files)) + 1 <= 201, "one tells the run"
    assert not store.gets("events/")
    assert store.calls.count("LIST index/") <= 2
    assert "200 of 3000 saved steps" in report.html
    curves = {each["name"]: each for each in report.numbers["curves"]["Losses"]}
    assert curves["Loss_output_0 (EVAL)"]["steps"], "steps that come regularly are met at times"
    train = curves["Loss_output_0 (TRAIN)"]["steps"]
    assert (min(train), max(train) // 100) == (0, 29)
    assert np.diff(train).max() < 60


def test_around_a_finding_every_step_is_read() -> None:
    store = MemoryStore()
    builder = write_long_run(store, 400)
    builder.step(400, {"Loss_output_0": np.float32(np.nan), "gradient/a": np.ones(2)})
    builder.step(401, {"Loss_output_0": np.float32(1.0), "gradient/a": np.ones(2)})
    state = builder.evaluate(create_rule("NonFinite", {}))
    verdicts = verdicts_of({"NonFinite": state})
    report = report_of_store(store, verdicts, limits=ReadLimits(steps=10))
    (verdict,) = report.numbers["verdicts"]
    plot = verdict["Plot"]
    steps_of_mode = [step for step in range(360, 402) if step % 100 != 99]
    (line,) = plot["lines"]
    assert line["steps"] == steps_of_mode
    assert line["values"] == [float(step == 400) for step in steps_of_mode]
    assert (plot["what"], plot["unit"], plot["threshold"]) == ("number of NaN", "elements", 0.0)


def test_reading_ends_when_time_is_over_with_steps_of_the_whole_run() -> None:
    store = MemoryStore()
    write_long_run(store, 1000)
    now = iter(range(1000))
    reading = read_run(store, limits=ReadLimits(seconds=4), clock=lambda: float(next(now)))
    assert reading.num_steps_read == 128
    steps = sorted(reading.history.norms.entries)
    assert (steps[0], steps[-1]) == (0, 999)
    assert np.diff(steps).max() < 30
    assert "because of the time limit" in reading.notes[0]
    assert read_run(store, limits=ReadLimits(bytes=1)).num_steps_read == 64


def test_files_of_the_original_client_and_broken_ones_are_reported() -> None:
    builder = TrialBuilder(run=None)
    for step in range(3):
        builder.step(step, {"Loss_output_0": np.float32(3 - step), "fc.weight": np.ones((3, 4))})
    builder.store.put("index/000000000/000000000003_worker_0.json", b"{")
    report = report_of_store(builder.store, [])
    assert "3 files hold no statistics" in report.html
    assert "an index file cannot be read" in report.html
    assert report.numbers["tensors"] == 2
    (curve,) = report.numbers["curves"]["Losses"]
    assert curve["values"] == [3.0, 2.0, 1.0]


def test_an_empty_folder_has_a_report_too(tmp_path: Path) -> None:
    report = job_report(tmp_path)
    assert "nothing saved yet" in report.html
    assert report.numbers["steps"] == {"saved": 0, "looked_at": 0, "first": None, "last": None}


def test_files_of_another_run_in_the_folder_are_left_out() -> None:
    store = MemoryStore()
    old = TrialBuilder(store, run="01OLD")
    new = TrialBuilder(store, run="01NEW")
    for step in range(6):
        old.step(step + 10, {"old_Loss_output": np.float32(1)})
        new.step(step, {"Loss_output_0": np.float32(1)})
    job = JobFile("job", "01NEW", "local", "2026-11-21T10:00:00Z")
    store.put(JOB_FILE, job.encode())
    (line,) = report_of_store(store, []).numbers["curves"]["Losses"]
    assert (line["name"], line["steps"]) == ("Loss_output_0", [0, 1, 2, 3, 4, 5])


def test_many_layers_share_rows_that_have_the_norm_of_all_of_it() -> None:
    builder = TrialBuilder()
    names = [f"Net_layer{n}.{part}" for n in range(45) for part in ("weight", "bias")]
    builder.step(0, {f"gradient/{name}": np.full(4, at + 1.0) for at, name in enumerate(names)})
    gradients = report_of_store(builder.store, []).numbers["gradients"]
    assert len(gradients["rows"]) == 40
    norms = 2.0 * np.arange(1, 91)
    total = np.sqrt(np.square(np.array(gradients["values"], float)).sum())
    assert total == pytest.approx(np.sqrt(np.square(norms).sum()), rel=1e-4)
    last_two_layers = np.sqrt(np.square(norms[-4:]).sum())  # a backward pass begins there
    assert gradients["values"][-1][0] == pytest.approx(np.hypot(norms[0], norms[1]), rel=1e-4)
    assert gradients["values"][0][0] == pytest.approx(last_two_layers, rel=1e-4)


@settings(max_examples=40, deadline=None)
@given(name=st.text(min_size=1, max_size=60), text=st.text(max_size=80))
def test_no_name_or_text_becomes_part_of_the_page(name: str, text: str) -> None:
    builder = TrialBuilder()
    tensors = {f"{name}Loss_output_0": np.float32(1), f"gradient/{name}": np.full(2, np.inf)}
    builder.step(0, {key.replace("\x00", "0"): value for key, value in tensors.items()})
    builder.store.put(
        JOB_FILE,
        JobFile(name, "run-1", text or "x", text or "y", actions=({"name": text},)).encode(),
    )
    verdict = JobVerdict(name=name, status=RuleStatus.ERROR, details=text, is_not_judged=True)
    elements = Elements(report_of_store(builder.store, [verdict]).html)
    assert elements.names <= OF_THE_PAGE
    assert elements.active == []


def test_it_is_saved_as_a_page_or_as_numbers(sick: Path, tmp_path: Path) -> None:
    report = job_report(sick, [])
    assert report.save(tmp_path / "report.html") == str(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text() == report.html
    report.save(tmp_path / "numbers.json")
    assert json.loads((tmp_path / "numbers.json").read_text()) == report.numbers
    with pytest.raises(ValueError, match="names no file"):
        report.save(f"{tmp_path}/")


def test_a_notebook_shows_it_in_a_frame_without_scripts(sick: Path) -> None:
    shown = job_report(sick, [])._repr_html_()
    elements = Elements(shown)
    assert elements.names == {"iframe"}
    assert shown.startswith("<iframe sandbox srcdoc=")


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_norm_beyond_single_precision_is_reported_without_a_warning() -> None:
    builder = TrialBuilder(MemoryStore())
    builder.collections(gradients=("^gradient",))
    for step, size in enumerate((1.0, 1e200)):
        builder.step(step, {"gradient/a": np.full(3, size), "loss": np.float32(size > 1)})
    builder.end()
    gradients = report_of_store(builder.store, ()).numbers["gradients"]
    assert gradients["not_finite"] == []
    assert gradients["values"] == [[pytest.approx(3**0.5), pytest.approx(3.4e38, rel=0.01)]]
