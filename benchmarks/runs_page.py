"""The page over all runs in Chromium: a run of 2,000 steps x 5,000 tensors, and 2,000 runs."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.measuring import Scale
from benchmarks.result import Measured, Result
from hook_layer.format.index import STATISTICS_COLUMNS, IndexFile, Statistics, TensorShape
from hook_layer.format.job_file import JobFile
from hook_layer.format.modes import ModeKeys
from hook_layer.format.paths import JOB_FILE, index_key
from hook_layer.storage.base import Store, open_store
from rule_runtime.embedded.result_writer import ResultWriter
from rule_runtime.engine.registry import create_rule
from rule_runtime.live_page.opened_run import OpenedRun
from rule_runtime.live_page.run_data import Range, curves
from rule_runtime.testing import TrialBuilder

__all__ = ["page"]

_CHROMIUM = "/usr/bin/chromium"
_RUN, _LOSS = "run-1", "Loss_output_0"
_STEPS, _TENSORS, _RUNS, _UPDATES, _SPIKES = 2000, 5000, 2000, 20, 1000
_WIDTHS = (1, 10, 100, 390, 1200, 4000)
_WATCH = """selector => new MutationObserver((_, watching) => {
  if (!document.querySelector(selector)) return;
  window.shownAt = performance.now();
  watching.disconnect();
}).observe(document, {childList: true, subtree: true})"""
_ZOOM = """async () => {
  const box = [...document.querySelectorAll(".chart-box")].find((each) => !each.hidden);
  const drawn = new Promise((done) => new MutationObserver(done).observe(
    box.querySelector(".plot-place"), {childList: true}));
  const began = performance.now();
  box.dispatchEvent(new KeyboardEvent("keydown", {key: "+"}));
  await drawn;
  return performance.now() - began;
}"""


def page(scale: Scale) -> list[Result]:
    """Measure first paint, zoom, live updates, the list, and spikes that are answered."""
    runs, big = scale.folder / "runs", scale.folder / "big"
    spikes = _write_large(open_store(big / "large"), scale)
    _write_many(runs, scale)
    with _browser() as browser:
        with _served(big) as address:
            first, zooms = _large_run(browser, address, scale)
        live = _begun(scale.folder / "live" / "run")
        with _served(scale.folder / "live") as address:
            updates = _live(browser, address, live, scale.of(_UPDATES, 3))
        with _served(runs) as address:
            listed = _timed(browser, address, ".runs td.id a", scale.rounds)
    kept = sum(_num_kept(big / "large", spikes, width) for width in _WIDTHS) / len(_WIDTHS)
    return [
        Result("page of a run, 10^7 numbers: first chart", "ms", Measured.of(first), 300),
        Result("page of a run, 10^7 numbers: zoom", "ms", Measured.of(zooms), 50),
        Result("page of a run: from an index file to the page", "ms", Measured.of(updates), 600),
        Result("page over 2,000 runs: first row", "ms", Measured.of(listed), 300),
        Result(
            f"page: one-step spikes kept of {len(spikes)}",
            "spikes",
            Measured.of([kept]),
            len(spikes),
            better="higher",
        ),
    ]


def _write_large(store: Store, scale: Scale) -> list[int]:
    """Write the run; return the steps of its spikes."""
    num, steps = scale.of(_TENSORS, 10), scale.of(_STEPS, 20)
    names = (_LOSS, *(f"{'gradient/' * (at % 2)}layer{at // 2}.weight" for at in range(num - 1)))
    shapes = tuple(TensorShape(name, name, (10,)) for name in names)
    random = np.random.default_rng(0)
    spikes = sorted(random.choice(steps, min(_SPIKES, steps // 2), replace=False).tolist())
    store.put(JOB_FILE, JobFile("large", _RUN, "local", "2026-11-21T10:00:00Z").encode())
    for step in range(steps):
        values = random.random((num, len(STATISTICS_COLUMNS)))
        values[:, :3] = 10, 0, 0
        values[0, 3:] = 1e6 + step if step in set(spikes) else 1.0
        unknown = ("float32",) * num, ((10,),) * num
        block = Statistics(STATISTICS_COLUMNS, names, *unknown, values, (None,) * num)
        rest = {"run": _RUN, "workers": 1, "sequence": step + 1}
        index = IndexFile(ModeKeys.TRAIN, step, None, (), shapes, block, **rest)
        store.put(index_key(step, "worker_0"), index.encode())
    _write_verdict(store)
    return spikes


def _write_many(folder: Path, scale: Scale) -> None:
    for number in range(scale.of(_RUNS, 5)):
        builder = _begun(folder / f"run-{number:04d}")
        for step in range(1, 3):
            builder.step(step, {_LOSS: np.float32(1 / (number + step))}, save_values=False)


def _begun(folder: Path) -> TrialBuilder:
    builder = TrialBuilder(folder)
    job = JobFile(folder.name, _RUN, "local", "2026-11-21T10:00:00Z")
    builder.store.put(JOB_FILE, job.encode())
    builder.step(0, {_LOSS: np.float32(1)}, save_values=False)
    _write_verdict(builder.store)
    return builder


def _write_verdict(store: Store) -> None:
    """Store a finding, so that the page evaluates nothing."""
    state = TrialBuilder()
    state.step(0, {_LOSS: np.float32(np.nan)})
    found = state.evaluate(create_rule("NonFinite", {}))
    ResultWriter(store, time.time).write(_RUN, {}, {"NonFinite": found})


def _large_run(browser: Browser, address: str, scale: Scale) -> tuple[list[float], list[float]]:
    with _opened(browser) as shown:
        shown.goto(address)
        shown.wait_for_selector(".uplot")
        shown.wait_for_function("() => !document.body.textContent.includes(', reading')", timeout=0)
    first = _timed(browser, f"{address}#/run?run=large", ".uplot", scale.rounds)
    with _opened(browser) as shown:
        shown.goto(address)
        shown.wait_for_selector("canvas[role=img]")
        shown.wait_for_timeout(1000)
        zooms = [float(shown.evaluate(_ZOOM)) for _ in range(scale.rounds)]
    return first, zooms


def _live(browser: Browser, address: str, builder: TrialBuilder, num: int) -> list[float]:
    found = []
    with _opened(browser) as shown:
        shown.goto(address)
        shown.wait_for_selector(".uplot")
        for step in range(1, num + 1):
            shown.wait_for_timeout(50 * (step % 7))  # at any time of the server's rounds
            began = time.perf_counter()
            builder.step(step, {_LOSS: np.float32(1)})
            shown.wait_for_function(
                "text => document.querySelector('.pills').textContent.includes(text)",
                arg=f"{step + 1} steps",
            )
            found.append(1e3 * (time.perf_counter() - began))
    return found


def _timed(browser: Browser, address: str, selector: str, rounds: int) -> list[float]:
    """Return when an element is there, ms since the navigation began, in new profiles."""
    found = []
    for _ in range(rounds):
        with _opened(browser) as shown:
            shown.add_init_script(f"({_WATCH})({selector!r})")
            shown.goto(address)
            shown.wait_for_function("() => window.shownAt")
            found.append(float(shown.evaluate("() => window.shownAt")))
    return found


def _num_kept(folder: Path, spikes: Sequence[int], width: int) -> int:
    """Return how many spikes are seen in the columns that are answered for a width.

    Each is looked for in the whole run if it is the highest, and zoomed in on otherwise.
    """
    run = _read(folder)
    kept = 0
    for spike in spikes:
        shown = [Range(-1, spike + 0.5, width), Range(spike, spike, width)]
        parts = [curves(run, [_LOSS], "max", [], each)[0]["high"] for each in shown]
        kept += all(max(part) >= 1e6 + spike for part in parts)
    return kept


_READ: dict[Path, OpenedRun] = {}


def _read(folder: Path) -> OpenedRun:
    if folder not in _READ:
        run = _READ[folder] = OpenedRun(open_store(folder), lambda _: [])
        run.refresh()
        while run.num_unread:
            run.refresh()
    return _READ[folder]


@contextmanager
def _browser() -> Iterator[Browser]:
    with sync_playwright() as started:
        arguments = ["--headless", "--no-sandbox", "--disable-gpu"]
        browser = started.chromium.launch(executable_path=_CHROMIUM, args=arguments)
        yield browser
        browser.close()


@contextmanager
def _opened(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    yield context.new_page()
    context.close()


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    command = [str(Path(sys.executable).parent / "stepwatch"), "ui", str(folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        found = re.search(r"http://\S+", server.stdout.readline())
        assert found is not None
        try:
            yield found[0]
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(30)
