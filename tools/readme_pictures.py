"""Take the pictures of README and pages: what `run` prints, report, and the page over all runs.

`python -m tools.readme_pictures` trains a small network three times, once until it stops learning,
and writes `docs/images/*.png` with chromium. Run it when a page looks different from its picture.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright
from rich.console import Console
from rich.text import Text

from tests.rule_runtime.browser import ARGUMENTS, CHROMIUM
from tests.rule_runtime.ui.test_server import served

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "images"
STEPWATCH = Path(sys.executable).parent / "stepwatch"
WIDTH, HEIGHT, COLUMNS = 1100, 1000, 112
TRAININGS = {"digits": ("0.05", "3.0"), "slow": ("0.005", "0.005"), "good": ("0.05", "0.05")}
"""Learning rate before and after a restart, by name of the run."""
SCRIPT = """
import sys

import torch
from sklearn.datasets import load_digits
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
images, labels = (torch.tensor(part) for part in load_digits(return_X_y=True))
images = images.float().div(16).view(-1, 1, 8, 8)
net = nn.Sequential(
    nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Flatten(),
    nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 10),
)
criterion = nn.CrossEntropyLoss()
rate, restart = map(float, sys.argv[2::2])
optimizer = torch.optim.SGD(net.parameters(), lr=rate, momentum=0.9)
for epoch in range(16):
    if epoch == 9:
        optimizer.param_groups[0]["lr"] = restart  # somebody mistyped 3.0
    for batch in torch.randperm(len(images)).split(64):
        optimizer.zero_grad()
        criterion(net(images[batch]), labels[batch]).backward()
        optimizer.step()
"""


def main() -> None:
    """Train, and take the pictures."""
    place = Path(tempfile.gettempdir()) / "stepwatch"  # the report names it
    place.mkdir()
    with sync_playwright() as playwright:
        (place / "train.py").write_text(SCRIPT)
        for name, (rate, restart) in TRAININGS.items():
            command = [sys.executable, "train.py", "--lr", rate, "--restart-lr", restart]
            printed = run(place, "run", f"--out-dir=runs/{name}", "--stop=never", "--", *command)
            (place / f"{name}.html").write_text(terminal(printed, " ".join(command[1:])))
        run(place, "report", "runs/digits", "--output-file", "report.html")
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        shoot(browser, place / "report.html", "report.png")
        shoot(browser, place / "digits.html", "cause.png", of="svg")
        shoot_runs(browser, place / "runs")
        browser.close()
    shutil.rmtree(place)


def shoot_runs(browser: Browser, folder: Path) -> None:
    """Take pictures of the list of runs, of a comparison, and of a run."""
    with served(folder) as (_, port):
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(f"http://127.0.0.1:{port}/")
        page.wait_for_function("() => document.querySelectorAll('.pill').length === 3")
        page.wait_for_selector(".state.live")
        page.screenshot(path=PICTURES / "runs.png", clip=top(480))
        for box in page.locator(".runs input").all():
            box.check()
        page.locator("button.primary").click()
        page.wait_for_selector("text=first at")
        page.screenshot(path=PICTURES / "comparison.png", full_page=True)
        page.goto(f"http://127.0.0.1:{port}/#/run?run=digits%2Frun-1")
        page.wait_for_selector("canvas")
        page.wait_for_timeout(1000)
        page.screenshot(path=PICTURES / "run.png", clip=top(HEIGHT))
        page.close()


def top(height: int) -> Any:
    """Return the part of a page that a picture shows."""
    return {"x": 0, "y": 0, "width": WIDTH, "height": height}


def run(place: Path, *arguments: str) -> str:
    """Run the command in a folder, and return what it prints; 0 and 1 are its verdicts."""
    colours = {"FORCE_COLOR": "1", "COLUMNS": str(COLUMNS)}
    command = [str(STEPWATCH), *arguments]
    done = subprocess.run(
        command, cwd=place, env=os.environ | colours, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode not in (0, 1):
        sys.exit(f"stepwatch {' '.join(arguments)} ended with {done.returncode}")
    return done.stdout


def terminal(printed: str, command: str) -> str:
    """Return what a command printed, as a page without web fonts."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text.from_ansi(printed.rstrip()))
    picture = console.export_svg(title=f"stepwatch run -- python {command}")
    return "<body style='margin:0'>" + re.sub(r"@font-face \\{.*?\\}", "", picture, flags=re.DOTALL)


def shoot(browser: Browser, page_file: Path, name: str, of: str | None = None) -> None:
    """Take a picture of the top of a page, or of one element."""
    page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
    page.goto(page_file.as_uri())
    target = page if of is None else page.locator(of)
    target.screenshot(path=PICTURES / name)
    print(f"wrote {PICTURES / name}")
    page.close()


if __name__ == "__main__":
    main()
