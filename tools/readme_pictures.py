"""Take the pictures of the README: the report and `watch` of a training that goes wrong.

`python -m tools.readme_pictures` trains a small network that stops learning, and writes
`docs/images/report.png` and `docs/images/watch.png` with chromium. Run it when a page looks
different from its picture.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright
from rich.console import Console

from hook_layer.storage.base import open_store
from rule_runtime.cli.options import evaluated_or_stored
from rule_runtime.cli.watch import shown
from rule_runtime.live_page.follower import RunFollower
from tests.rule_runtime.browser import ARGUMENTS, CHROMIUM

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "images"
STEPWATCH = Path(sys.executable).parent / "stepwatch"
RULES = ("VanishingGradient", "LossDiverging", "PlateauedLoss", "LearningRateTooHigh", "DeadRelu")
WIDTH, HEIGHT, COLUMNS = 1100, 1000, 112
SCRIPT = """
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
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
for epoch in range(16):
    if epoch == 9:
        optimizer.param_groups[0]["lr"] = 3.0  # the warm restart that somebody mistyped
    for batch in torch.randperm(len(images)).split(64):
        optimizer.zero_grad()
        criterion(net(images[batch]), labels[batch]).backward()
        optimizer.step()
"""


def main() -> None:
    """Train, and take both pictures."""
    place = Path(tempfile.gettempdir()) / "stepwatch"  # the report names it
    place.mkdir()
    with sync_playwright() as playwright:
        (place / "train.py").write_text(SCRIPT)
        run(place, "run", *(f"--rule={rule}" for rule in RULES), "--stop=never", "--out-dir",
            "runs/digits", "--", sys.executable, "train.py")  # fmt: skip
        run(place, "report", "runs/digits", "--output-file", "report.html")
        (place / "watch.html").write_text(watched(str(place / "runs" / "digits")))
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        shoot(browser, place / "report.html", "report.png")
        shoot(browser, place / "watch.html", "watch.png", of="svg")
        browser.close()
    shutil.rmtree(place)


def run(place: Path, *arguments: str) -> None:
    """Run the command in a folder; 0 and 1 are its verdicts."""
    done = subprocess.run([str(STEPWATCH), *arguments], cwd=place, check=False)
    if done.returncode not in (0, 1):
        sys.exit(f"stepwatch {' '.join(arguments)} ended with {done.returncode}")


def watched(run_uri: str) -> str:
    """Return what `watch` shows of a run, as a page without web fonts."""
    store = open_store(run_uri)
    follower = RunFollower(store, evaluated_or_stored(store, None, None))
    while follower.look():
        pass
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(shown(follower.numbers()))
    picture = console.export_svg(title="stepwatch watch runs/digits")
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
