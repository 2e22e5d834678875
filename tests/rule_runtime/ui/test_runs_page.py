"""The table of runs, their comparison, and the page of a run, in a browser."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, Request, Route, expect

from hook_layer.format.modes import ModeKeys
from hook_layer.storage.base import open_store
from rule_runtime.embedded.result_writer import ResultWriter
from rule_runtime.engine.evidence import Evidence
from rule_runtime.engine.outcome import RuleStatus
from rule_runtime.engine.registry import create_rule
from rule_runtime.engine.result_file import RuleResult, result_place
from rule_runtime.testing import TrialBuilder
from tests.rule_runtime.browser import PHONE, watched_page
from tests.rule_runtime.ui.test_catalogue import write_session
from tests.rule_runtime.ui.test_server import served, write_run

HOSTILE = "<img src=x onerror=alert(1)><b>"
SIZES = [(1280, "light"), (1280, "dark"), (PHONE, "light"), (PHONE, "dark")]
NUM_STEPS, SICK_STEP = 40, 25


def write_layers(builder: TrialBuilder, rate: float, *, is_sick: bool) -> None:
    random = np.random.default_rng(round(rate * 1000))
    builder.collections(losses=("Loss_output",), weights=("weight",))
    for step in range(NUM_STEPS):
        tensors = {"Loss_output_0": np.float32(2 * np.exp(-rate * step) + random.random() / 9)}
        tensors["scalar/learning_rate"] = np.float32(rate)
        for layer in range(6):
            tensors[f"layer{layer}.weight"] = random.normal(size=9)
            scale = np.nan if is_sick and step >= SICK_STEP else 10.0**-layer
            tensors[f"gradient/layer{layer}.weight"] = random.normal(size=9) * scale
        mode = ModeKeys.EVAL if step % 10 == 9 else ModeKeys.TRAIN
        builder.step(step, tensors, mode=mode, time=1e9 + step)
    builder.end()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    for name, rate in (("slow", 0.05), ("good", 0.2), ("sick", 0.5)):
        write_session(root / name, "--lr", str(rate), "--note", HOSTILE)
        builder = write_run(root / name / "run-1", [])
        write_layers(builder, rate, is_sick=name == "sick")
        state = builder.evaluate(create_rule("NonFinite", {}))
        ResultWriter(builder.store, lambda: 0.0).write("run-1", {}, {"NonFinite": state})
        command = ["python", "train.py", "--lr", str(rate), "--note", HOSTILE]
        environment = {"Command": command, "Packages": {"torch": f"2.{rate}"}, "Cpus": 2}
        (root / name / "environment.json").write_text(json.dumps(environment))
        sample = '{{"Time": {}, "CpuPercent": {}, "Gpus": [{{"Percent": 40}}]}}\n'
        samples = "".join(sample.format(1e9 + at, at) for at in range(0, NUM_STEPS, 5))
        (root / name / "system_metrics.jsonl").write_text(samples)
        (root / name / "console.log").write_text(f"epoch 1\n{HOSTILE}")
    return root


@pytest.fixture(scope="module")
def address(runs: Path) -> Iterator[str]:
    with served(runs) as (_, port):
        yield f"http://127.0.0.1:{port}/"


def open_run(page: Page, address: str, name: str) -> None:
    page.goto(address)
    page.get_by_role("link", name=f"{name}/run-1").click()
    page.wait_for_selector(".chart-box:visible .u-over")


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_runs_are_listed_compared_and_opened(
    browser: Browser, address: str, tmp_path: Path, width: int, scheme: str
) -> None:
    def shoot(name: str) -> None:
        watched.check()
        watched.shoot(tmp_path, f"{name}-{width}-{scheme}")

    with watched_page(browser, width=width, scheme=scheme) as watched:
        page = watched.page
        page.goto(address)
        expect(page.locator(".pill.issue")).to_have_text("1 found")
        shoot("runs")
        for box in page.locator(".runs input").all():
            box.check()
        page.get_by_role("button", name="Compare 3 runs").click()
        expect(page.locator("main")).to_contain_text("first at TRAIN step 0 in", timeout=30_000)
        expect(page.locator(".chart-box:visible")).to_have_count(2)
        assert page.locator(".chart-box").first.locator(".legend li").count() == 7
        shoot("comparison")
        open_run(page, address, "sick")
        expect(page.locator(".card")).to_contain_text("step 25")
        expect(page.locator("canvas[role=img]")).to_be_visible()
        shoot("run")
        page.get_by_label("Search layers and tensors").fill("weight LAYER3")
        expect(page.locator(".found button")).to_have_count(2)
        page.locator(".found button").first.click()
        expect(page.locator(".histogram")).to_contain_text("Values of layer3.weight at step 39")
        shoot("search")


def test_a_layer_of_the_map_opens_its_series(browser: Browser, address: str) -> None:
    with watched_page(browser, width=1280) as watched:
        page = watched.page
        open_run(page, address, "good")
        cells = page.locator("canvas[role=img]")
        cells.hover(position={"x": 300, "y": 20})
        expect(page.locator(".readout")).to_contain_text("layer1.weight, step")
        cells.click(position={"x": 300, "y": 20})
        expect(page.locator(".chips")).to_contain_text("gradient/layer1.weight")
        cells.focus()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        expect(page.locator(".chips")).to_contain_text("gradient/layer2.weight")
        page.get_by_role("button", name="Updates").click()
        expect(page.locator(".heat-box")).to_contain_text("gradient / weight")
        watched.check()


def test_charts_zoom_together_and_show_all_again(browser: Browser, address: str) -> None:
    with watched_page(browser, width=1280) as watched:
        page = watched.page
        open_run(page, address, "good")
        shown = page.locator(".range-text")
        losses = page.get_by_role("group", name="Chart of Losses")
        plot = losses.locator(".u-over").bounding_box()
        assert plot is not None
        page.mouse.move(plot["x"] + plot["width"] / 4, plot["y"] + 50)
        expect(losses.locator(".legend")).to_contain_text("step")
        page.mouse.down()
        page.mouse.move(plot["x"] + plot["width"] / 2, plot["y"] + 60)
        page.mouse.up()
        expect(shown).to_have_text(re.compile("Steps 10 to (19|20)"))
        page.get_by_role("button", name="Show all steps").click()
        expect(shown).to_have_text("Drag over a chart to zoom")
        losses.focus()
        for key, text in (
            ("+", "Steps 10 to 29"),
            ("ArrowRight", "Steps 15 to 34"),
            ("0", "Drag over a chart to zoom"),
        ):
            page.keyboard.press(key)
            expect(shown).to_have_text(text)
        page.get_by_label("Smoothing").fill("0.8")
        page.get_by_label("Log scale").check()
        expect(page.locator(".controls")).to_contain_text("0.80")
        expect(losses).to_contain_text("validation")
        expect(page.get_by_role("group", name="Chart of Machine")).to_contain_text("GPU 0")
        watched.check()


def test_a_zoom_asks_once_for_each_chart_and_gets_few_bytes(browser: Browser, address: str) -> None:
    with watched_page(browser, width=1280) as watched:
        page = watched.page
        asked: list[Request] = []
        page.on("request", lambda request: asked.append(request))  # noqa: PLW0108 - not built in
        open_run(page, address, "good")
        expect(page.locator("canvas[role=img]")).to_be_visible()
        page.wait_for_load_state("load")
        assert len(asked) <= 13 + 6 + 8, "files of the page, the list, and what the run asks for"
        page.wait_for_selector(".state.live")
        del asked[:]
        page.get_by_role("group", name="Chart of Losses").focus()
        with page.expect_response("**/api/map?**"):
            page.keyboard.press("+")
        questions = [request.url.partition("/api/")[2].partition("?")[0] for request in asked]
        assert sorted(questions) == ["curves", "curves", "map", "system"]
        assert all("first=9&last=30" in request.url for request in asked)
        answers = [request.response() for request in asked]
        assert sum(len(answer.body()) for answer in answers if answer) < 20_000


def test_rows_are_found_filtered_and_sorted_by_keyboard(browser: Browser, address: str) -> None:
    with watched_page(browser, width=1280) as watched:
        page = watched.page
        page.goto(address)
        names = page.locator(".runs td.id a")
        page.locator("#sort-last_loss").focus()
        page.keyboard.press("Enter")
        expect(names).to_have_text(["sick/run-1", "good/run-1", "slow/run-1"])
        page.keyboard.press("Enter")
        expect(names).to_have_text(["slow/run-1", "good/run-1", "sick/run-1"])
        assert page.locator("th[aria-sort=descending]").inner_text().startswith("Last loss")
        page.get_by_label("Search runs").fill("lr 0.2")
        expect(names).to_have_text(["good/run-1"])
        page.get_by_label("Search runs").fill("")
        page.get_by_label("Show", exact=True).select_option("With findings")
        expect(names).to_have_text(["sick/run-1"])
        expect(page.locator(".runs td.differs")).to_have_text("--lr=0.5")
        watched.check()


def test_texts_of_files_stay_texts(browser: Browser, address: str) -> None:
    with watched_page(browser) as watched:
        page = watched.page
        open_run(page, address, "sick")
        page.locator("summary", has_text="Console output").click()
        page.locator("summary", has_text="Environment").click()
        expect(page.locator("pre")).to_contain_text(HOSTILE)
        expect(page.locator("main")).to_contain_text(f"--note {HOSTILE}")
        assert page.locator("main img, main script, main iframe").count() == 0
        watched.check()


def test_odd_names_and_numbers_that_are_all_bad_are_shown(browser: Browser, tmp_path: Path) -> None:
    name = "<b>&#1?%41+ \u202e"
    bad = np.full(3, -np.inf)
    write_run(tmp_path / name, [np.inf, np.nan, -np.inf], **{"gradient/<i>": bad, "<i>": bad}).end()
    write_run(tmp_path / "other", [3e38, -3e38, 0.0])
    with served(tmp_path) as (_, port), watched_page(browser, width=PHONE) as watched:
        page = watched.page
        page.goto(f"http://127.0.0.1:{port}/")
        expect(page.locator(".bad-number").first).to_have_text("not finite")
        for box in page.locator(".runs input").all():
            box.check()
        page.get_by_role("button", name="Compare 2 runs").click()
        page.wait_for_selector(".chart-box:visible .u-over")
        page.get_by_role("link", name=name).click()
        page.wait_for_selector(".card")
        page.get_by_label("Search layers and tensors").fill("<i>")
        page.locator(".found button").first.click()
        page.get_by_label("Log scale").check()
        expect(page.locator(".chips")).to_contain_text("<i>")
        assert page.locator("h1").inner_text() == name
        watched.check()


def store_result(
    run: Path, rule: str, status: RuleStatus, evidence: Mapping[str, Any] | None = None
) -> None:
    root = str(run)
    result = RuleResult(
        training_job_name=run.name, run_id="run-1", root_uri=root, rule=rule, status=status,
        details=f"details of {rule}", changed_at_ms=1, evidence=evidence,
    )  # fmt: skip
    folder, key = result_place(root, rule)
    open_store(folder).put(key, json.dumps(result.to_json()).encode())


def store_finding(run: Path, rule: str, step: int) -> None:
    place = {"step": step, "mode": "TRAIN", "worker": "worker_0", "tensor": "a"}
    texts = {"measure": "loss_rise_percent", "sentence": "a is large", "remedy": "Try less."}
    found = Evidence.from_json({**place, **texts, "value": "Infinity", "threshold": 2.0})
    store_result(run, rule, RuleStatus.ISSUES_FOUND, found.to_json())


def test_findings_follow_in_order_of_time_and_those_with_another_cause_below(
    browser: Browser, tmp_path: Path
) -> None:
    write_run(tmp_path / "a", [1.0, 2.0])
    for rule, step in (("LossDiverging", 9), ("LossSpike", 7), ("Custom", 1)):
        store_finding(tmp_path / "a", rule, step)
    with served(tmp_path) as (_, port), watched_page(browser, width=1280) as watched:
        page = watched.page
        page.goto(f"http://127.0.0.1:{port}/#/run?run=a")
        lists = page.locator(".card .findings")
        expect(lists.nth(0).locator("button")).to_have_text(["LossSpike", "LossDiverging"])
        expect(page.locator(".card")).to_contain_text("Also found:")
        expect(lists.nth(1).locator("button")).to_have_text(["Custom"])
        watched.check()


def test_every_finding_is_shown_and_errors_are_no_verdict(browser: Browser, tmp_path: Path) -> None:
    for name in "ab":
        write_run(tmp_path / name, [1.0, 2.0])
    store_finding(tmp_path / "a", "Custom", 1)
    store_result(tmp_path / "a", "Bare", RuleStatus.ISSUES_FOUND)
    store_result(tmp_path / "b", "Failing", RuleStatus.ERROR)
    with served(tmp_path) as (_, port), watched_page(browser, width=1280) as watched:
        page = watched.page
        page.goto(f"http://127.0.0.1:{port}/")
        expect(page.locator(".runs td.diagnosis")).to_contain_text(["2 found", "not evaluated"])
        page.get_by_role("link", name="b").click()
        expect(page.locator(".pills")).to_contain_text("no verdict")
        page.goto(f"http://127.0.0.1:{port}/#/run?run=a")
        expect(page.locator(".card")).to_contain_text("Bare: details of Bare")
        page.get_by_role("button", name="Custom at step 1: a is large").click()
        expect(page.locator("dialog")).to_contain_text("Infinity")
        watched.check()


def test_a_slow_view_and_a_live_update_disturb_nothing(browser: Browser, tmp_path: Path) -> None:
    builder = write_run(tmp_path / "a", [1.0, 2.0, 3.0, 4.0])
    write_run(tmp_path / "b", [1.0])
    with served(tmp_path) as (_, port), watched_page(browser, width=1280) as watched:
        page = watched.page
        late: list[Route] = []
        page.route("**/api/run?run=b", lambda route: late.append(route))  # noqa: PLW0108 - not built in
        page.goto(f"http://127.0.0.1:{port}/#/run?run=b")
        page.wait_for_function("location.hash.endsWith('b')")
        page.goto(f"http://127.0.0.1:{port}/#/run?run=a")
        plot = page.locator(".chart-box:visible .u-over")
        place = plot.bounding_box(timeout=20_000)
        assert place is not None
        expect(page.locator("h1")).to_have_text("a")
        late[0].continue_()
        page.mouse.move(place["x"] + place["width"] / 4, place["y"] + 50)
        page.mouse.down()
        page.mouse.move(place["x"] + place["width"] / 2, place["y"] + 50)
        with page.expect_response("**/api/map?**"):  # is asked after the charts are drawn
            builder.step(4, {"Loss_output_0": np.float32(5)})
        page.mouse.move(place["x"] + place["width"] * 0.9, place["y"] + 50)
        page.mouse.up()
        expect(page.locator(".range-text")).to_have_text(re.compile("Steps 1 to [34]"))
        assert page.locator("h1").inner_text() == "a"
        watched.check()


def test_a_deleted_run_leaves_a_message(browser: Browser, tmp_path: Path) -> None:
    for name in "ab":
        write_run(tmp_path / name, [1.0, 2.0])
    with served(tmp_path) as (server, port), watched_page(browser) as watched:
        page = watched.page
        page.goto(f"http://127.0.0.1:{port}/#/run?run=a")
        page.wait_for_selector(".chart-box:visible .u-over")
        shutil.rmtree(tmp_path / "a")
        expect(page.get_by_role("alert")).to_contain_text("there is no run 'a'", timeout=20_000)
        page.goto(f"http://127.0.0.1:{port}/#/")
        expect(page.locator(".runs td.id a")).to_have_text(["b"], timeout=20_000)
        page.goto(f"http://127.0.0.1:{port}/#/run?run=a")
        expect(page.get_by_role("alert")).to_contain_text("there is no run 'a'")
        server.kill()
        expect(page.locator("#state")).to_contain_text("the connection is lost")


def test_of_thousands_of_runs_some_are_drawn_and_all_are_searched(
    browser: Browser, tmp_path: Path
) -> None:
    for number in range(2000):
        (tmp_path / f"run-{number:04}" / "index").mkdir(parents=True)
    with served(tmp_path) as (_, port), watched_page(browser) as watched:
        page = watched.page
        page.goto(f"http://127.0.0.1:{port}/")
        rows = page.locator(".runs tbody tr")
        expect(page.locator("main")).to_contain_text("2000 of 2000 runs", timeout=30_000)
        expect(rows).to_have_count(200)
        page.get_by_label("Search runs").fill("run-1999")
        expect(rows).to_have_count(1)
        page.get_by_label("Search runs").fill("")
        page.get_by_role("button", name="Show all 2000").click()
        expect(rows).to_have_count(2000)
        assert watched.complaints == []


def test_an_empty_folder_says_how_to_start(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    with served(tmp_path / "runs") as (_, port), watched_page(browser, width=PHONE) as watched:
        watched.page.goto(f"http://127.0.0.1:{port}/")
        expect(watched.page.locator("main")).to_contain_text("No run is stored here yet")
        watched.check()
