"""A real browser for tests, and what every page of ours must be like in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
PHONE, DESK = 390, 1100
_ABORTED = "net::ERR_ABORTED"

# The ratio of luminances of WCAG 2.1, 1.4.3, of every piece of text and the ground below it.
LOW_CONTRAST = """() => {
  const rgba = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) =>
    v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const luminance = (color) => {
    const [r, g, b] = light(color);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = rgba(getComputedStyle(at).backgroundColor);
      if (color.length === 3 || color[3] > 0.99) return color;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    const box = element.getBoundingClientRect();
    const isShown = box.width && box.height && !["SCRIPT", "STYLE"].includes(element.tagName);
    if (!own || !isShown || element.tagName === "title") continue;
    const style = getComputedStyle(element);
    const ink = rgba(element instanceof SVGElement ? style.fill : style.color);
    const [a, b] = [luminance(ink), luminance(ground(element))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const wanted = element.classList.contains("bad") ? 3 : 4.5;
    const kind = element.className.baseVal ?? element.className;
    if (ratio < wanted) found.push(`${element.tagName} ${kind}: ${ratio.toFixed(2)}`);
  }
  return [...new Set(found)];
}"""
UNNAMED = """() => [
  ...[...document.querySelectorAll("[role=img]:not([aria-label])")].map(() => "picture"),
  ...[...document.querySelectorAll("[id]")].map((e) => e.id)
    .filter((id, at, all) => all.indexOf(id) !== at),
  ...(document.documentElement.lang ? [] : ["no language"]),
  ...(document.querySelectorAll("h1").length === 1 ? [] : ["not one h1"]),
]"""


@dataclass
class Watched:
    """A page, and what the browser complained of."""

    page: Page
    complaints: list[str] = field(default_factory=list)

    def check(self) -> None:
        """Fail on what no page of ours may have."""
        width, shown = self.page.evaluate(
            "() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        )
        problems = [*self.complaints, *self.page.evaluate(LOW_CONTRAST)]
        problems += self.page.evaluate(UNNAMED)
        if width > shown:
            problems.append(f"the page is {width} px wide on a screen of {shown} px")
        assert not problems, "; ".join(problems)

    def shoot(self, folder: Path, name: str) -> None:
        """Take a picture of the whole page."""
        kept = Path(os.environ.get("STEPWATCH_SCREENSHOTS", folder))
        kept.mkdir(parents=True, exist_ok=True)
        picture = self.page.screenshot(path=kept / f"{name}.png", full_page=True)
        assert len(picture) > 10_000


@contextmanager
def opened_browser() -> Iterator[Browser]:
    """Run chromium with a profile of its own; skip where it is not installed."""
    if not CHROMIUM.exists():
        reason = "needs Debian's chromium: apt-get install chromium"
        if os.environ.get("STEPWATCH_NEEDS_BROWSER"):
            pytest.fail(reason)
        pytest.skip(reason)
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=str(CHROMIUM), args=list(ARGUMENTS))
        yield browser
        browser.close()


@contextmanager
def watched_page(
    browser: Browser, *, width: int = DESK, scheme: Any = "light"
) -> Iterator[Watched]:
    """Open a page that nothing was stored for, and note every complaint of the browser."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    watched = Watched(context.new_page())

    def note(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            watched.complaints.append(message.text)

    def note_failure(request: Request) -> None:
        # A page that the server says goodbye to closes its stream, at times ahead of the server.
        is_goodbye = request.resource_type == "eventsource" and request.failure == _ABORTED
        if not is_goodbye:
            watched.complaints.append(request.url)

    watched.page.on("console", note)
    watched.page.on("pageerror", lambda error: watched.complaints.append(str(error)))
    watched.page.on("requestfailed", note_failure)
    yield watched
    context.close()
