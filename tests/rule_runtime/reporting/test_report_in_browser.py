"""The report as a browser shows it: light, dark, on a phone, and when names are hostile."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser

from rule_runtime.cli.evaluation import evaluate_run
from rule_runtime.configuration.packs import find_pack
from rule_runtime.engine.registry import create_rule
from rule_runtime.reporting import job_report
from rule_runtime.testing import TrialBuilder
from rule_runtime.trial.trial import Trial
from tests.rule_runtime.browser import DESK, PHONE, watched_page

HOSTILE = "<script>document.title='broken'</script>\"'><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def page_file(sick: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    states = evaluate_run(str(sick), list(find_pack("recommended").rules().items()))
    file = tmp_path_factory.mktemp("report") / "report.html"
    job_report(sick, states).save(file)
    return file


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [DESK, PHONE])
def test_it_reads_well(
    browser: Browser, page_file: Path, tmp_path: Path, width: int, scheme: str
) -> None:
    with watched_page(browser, width=width, scheme=scheme) as watched:
        watched.page.goto(page_file.as_uri())
        watched.check()
        watched.shoot(tmp_path, f"report-{width}-{scheme}")
        first = watched.page.locator("main section").first
        assert first.get_attribute("id") == "findings", "the verdicts come first"
        assert watched.page.locator(".card polyline").count() >= 1
        for row in watched.page.locator("#gradients .rows li").all():
            assert (row.bounding_box() or {})["height"] >= 15
        for text in watched.page.locator("svg .tick").all()[:20]:
            size = text.evaluate("e => parseFloat(getComputedStyle(e).fontSize)")
            assert size >= 11, "texts keep their size on a phone"


def test_rows_of_the_heat_map_stand_beside_their_cells(browser: Browser, page_file: Path) -> None:
    with watched_page(browser) as watched:
        watched.page.goto(page_file.as_uri())
        rows = [row.bounding_box() for row in watched.page.locator("#gradients .rows li").all()]
        cells = [tip.bounding_box() for tip in watched.page.locator("#gradients .tip").all()]
        assert len(rows) == len(cells) == 6
        for row, cell in zip(rows, cells, strict=True):
            assert row is not None
            assert cell is not None
            assert row["y"] == pytest.approx(cell["y"], abs=1.5)
            assert row["height"] == pytest.approx(cell["height"], abs=1.5)


def test_hostile_names_stay_texts(browser: Browser, tmp_path: Path) -> None:
    builder = TrialBuilder()
    loss = f"{HOSTILE}Loss_output_0"
    for step in range(5):
        tensors = {loss: np.float32(1.0), f"gradient/{HOSTILE}weight": np.full(3, np.nan)}
        builder.step(step, tensors)
    builder.collections(losses=("Loss_output",), **{HOSTILE: ("x",)})
    state = builder.evaluate(create_rule("NonFinite", {}))
    file = tmp_path / "report.html"
    job_report(Trial(builder.store, name=HOSTILE), {HOSTILE: state}).save(file)
    with watched_page(browser, width=PHONE) as watched:
        watched.page.goto(file.as_uri())
        watched.check()
        assert "broken" not in watched.page.title().split("<")[0]
        assert (
            watched.page.locator("script, img, iframe, object, link[rel=stylesheet]").count() == 0
        )
        assert HOSTILE[:30] in watched.page.locator("h3").first.inner_text()


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("<h1>x</h1><p style='width:900px'>wide</p>", "908 px wide"),
        ("<h1>x</h1><p style='color:#bbb'>faint</p>", "P"),
        ("<h1>x</h1><svg role=img></svg>", "picture"),
        ("<h1>x</h1><script>console.error('broken')</script>", "broken"),
    ],
)
def test_what_a_page_may_not_have_is_seen(browser: Browser, body: str, complaint: str) -> None:
    with watched_page(browser, width=PHONE) as watched:
        page = (
            f"<!doctype html><html lang=en><meta name=viewport content='width=device-width'>{body}"
        )
        watched.page.set_content(page)
        with pytest.raises(AssertionError, match=complaint):
            watched.check()
