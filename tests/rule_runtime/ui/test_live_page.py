"""The page of a run in a browser, while a real training runs."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.rule_runtime.browser import DESK, PHONE, watched_page
from tests.rule_runtime.ui.test_server import served

SCRIPT = Path(__file__).resolve().parent / "scripts" / "training_on_demand.py"


def test_it_follows_a_training(browser: Browser, tmp_path: Path) -> None:
    root = tmp_path / "runs" / "mlp"
    root.parent.mkdir()
    with (
        subprocess.Popen(
            [sys.executable, str(SCRIPT), str(root)], stdin=subprocess.PIPE, text=True
        ) as training,
        served(root.parent, "--rule", "NonFinite") as (server, port),
        watched_page(browser) as watched,
        watched_page(browser, width=PHONE, scheme="dark") as phone,
    ):
        page = watched.page

        def train(command: str) -> None:
            assert training.stdin is not None
            training.stdin.write(command + "\n")
            training.stdin.flush()

        def wait_for_steps(count: int) -> None:
            expect(page.locator(".pills")).to_contain_text(f"{count} steps saved", timeout=60_000)

        page.goto(f"http://127.0.0.1:{port}/")
        page.wait_for_selector(".state.live")
        train("20")
        page.locator(".runs a").click(timeout=60_000)
        wait_for_steps(20)
        expect(page.locator(".chart-box:visible .uplot")).to_have_count(1)
        page.locator("summary", has_text="Other rules").click()
        train("15")
        wait_for_steps(35)
        assert page.locator("details[open]").count() == 1, "what was opened stays open"
        assert page.locator(".card").count() == 0
        watched.check()
        watched.shoot(tmp_path, f"live-{DESK}-light")
        train("sick")
        train("5")
        page.wait_for_selector(".card")
        wait_for_steps(40)
        page.locator(".mark").first.press("Enter")
        expect(page.locator("dialog")).to_contain_text("NonFinite")
        page.keyboard.press("Escape")
        phone.page.goto(f"http://127.0.0.1:{port}/")
        phone.page.wait_for_selector(".card")  # the only run of a folder opens
        phone.page.wait_for_selector(".state.live")
        for each, name in ((watched, "found"), (phone, f"{PHONE}-dark")):
            each.check()
            each.shoot(tmp_path, f"live-{name}")
        train("end")
        expect(page.locator(".pills")).to_contain_text("completed", timeout=20_000)
        assert training.wait(60) == 0
        assert not (root / "rule-output").exists(), "the page writes nothing"
        watched.check()
        server.send_signal(signal.SIGINT)
        page.wait_for_selector("text=the server has ended")
        assert server.wait(20) == 0
        watched.complaints.clear()  # requests to a server that has ended fail
        watched.check()
