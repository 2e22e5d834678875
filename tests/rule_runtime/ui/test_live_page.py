"""The live page in a browser, while a real training runs."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.rule_runtime.browser import DESK, PHONE, opened_browser, watched_page
from tests.rule_runtime.ui.test_server import served

SCRIPT = Path(__file__).resolve().parent / "scripts" / "training_on_demand.py"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with opened_browser() as browser:
        yield browser


def test_it_follows_a_training(browser: Browser, tmp_path: Path) -> None:
    root = tmp_path / "run"
    with (
        subprocess.Popen(
            [sys.executable, str(SCRIPT), str(root)], stdin=subprocess.PIPE, text=True
        ) as training,
        served(root, "--rule", "NonFinite") as (server, port),
        watched_page(browser) as watched,
        watched_page(browser, width=PHONE, scheme="dark") as phone,
    ):
        page = watched.page

        def train(command: str) -> None:
            assert training.stdin is not None
            training.stdin.write(command + "\n")
            training.stdin.flush()

        def wait_for_steps(count: int) -> None:
            expect(page.locator("#heading dd").nth(1)).to_have_text(str(count), timeout=60_000)

        page.goto(f"http://127.0.0.1:{port}/")
        page.wait_for_selector(".state.live")
        train("20")
        wait_for_steps(20)
        page.wait_for_selector("#gradients .cells path")
        assert page.locator("#findings .card").count() == 0
        page.locator("#rules summary").click()
        train("15")
        wait_for_steps(35)
        assert page.locator("#rules details[open]").count() == 1, "what was opened stays open"
        watched.check()
        watched.shoot(tmp_path, f"live-{DESK}-light")
        train("sick")
        train("5")
        page.wait_for_selector("#findings .card")
        wait_for_steps(40)
        phone.page.goto(f"http://127.0.0.1:{port}/")
        phone.page.wait_for_selector("#findings .card")
        phone.page.wait_for_selector(".state.live")
        for each, name in ((watched, "found"), (phone, f"{PHONE}-dark")):
            each.check()
            each.shoot(tmp_path, f"live-{name}")
        train("end")
        page.wait_for_selector("text=the training has ended")
        assert training.wait(60) == 0
        server.send_signal(signal.SIGINT)
        page.wait_for_selector("text=the server has ended")
        assert server.wait(20) == 0
        watched.check()
