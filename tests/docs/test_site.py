"""The site: built strictly, with every README on it, and nothing that a reader has to fetch."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from html.parser import HTMLParser
from pathlib import Path
from posixpath import dirname, join, normpath

import pytest
from inclusions import directive_of, with_files_named
from playwright.sync_api import TimeoutError as PlaywrightTimeoutError

from tests.docs.page_blocks import DOCS, ROOT, pages
from tests.rule_runtime.browser import opened_browser, watched_page

MKDOCS = ROOT / ".venv-docs" / "bin" / "mkdocs"
LOADING = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}
EXTERNAL = re.compile(r"https://[a-z0-9.-]+\.[a-z]{2,}(/[\w./~%+-]*)?(#[\w-]+)?")
REPOSITORY = "https://github.com/stepwatch/stepwatch"
NO_NETWORK = dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")
"""Nobody listens there."""
IFRAME_WORKER_1_0_4 = "e8e412dbcfea9b7e31b5ffa288d7b6035915e714c542f4176a0cdbe262fc9609"
ANSWERS = {
    "loss is nan": "faq.html#my-loss-is-nan-where-does-it-come-from",
    "learning rate too high": "rules/learning_rate_too_high.html",
    "uninstall": "faq.html#how-do-i-uninstall-it",
    "stop a job": "how-to/stop-a-job.html",
    "hugging face": "tutorials/huggingface.html",
    "compare runs": "how-to/runs-page.html#compare-runs",
    "install": "troubleshooting.html#installation",
}
"""The page or section that each search must find first."""
# The best section of the first page that is found.
FOUND = """() => [...document.querySelectorAll(".md-search-result__item:first-child a")]
  .map((link) => [Number(link.querySelector("article").dataset.mdScore), link.href.split("?")[0]])
  .sort((a, b) => b[0] - a[0])[0]?.[1]"""


def build(configuration: Path, site: Path) -> subprocess.CompletedProcess[str]:
    assert MKDOCS.exists(), "run `make setup`: what builds the documentation is not installed"
    return subprocess.run(
        [str(MKDOCS), "build", "--strict", "-f", str(configuration), "-d", str(site)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", **NO_NETWORK},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", folder)
    reported = done.stdout + done.stderr
    assert done.returncode == 0, reported
    assert [line for line in reported.splitlines() if not line.startswith("INFO ")] == []
    return folder


class Page(HTMLParser):
    """What a page loads, where its links lead, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if (loaded := given.get(LOADING.get(tag, ""))) and given.get("rel") != "canonical":
            self.loaded.append(loaded)
        if tag == "a" and given.get("href"):
            self.links.append(given["href"] or "")
        if given.get("id"):
            self.anchors.add(given["id"] or "")


@pytest.fixture(scope="module")
def built(site: Path) -> dict[str, Page]:
    return {
        str(path.relative_to(site)): Page(path.read_text(encoding="utf-8"))
        for path in sorted(site.rglob("*.html"))
    }


def test_every_page_is_there(built: dict[str, Page]) -> None:
    assert {page.replace(".md", ".html") for page in pages()} | {"404.html"} == built.keys()


def test_a_page_loads_nothing_from_elsewhere(built: dict[str, Page], site: Path) -> None:
    for name, page in built.items():
        for loaded in page.loaded:
            assert "//" not in loaded, f"{name} loads {loaded}"
            place = site if loaded.startswith("/") else (site / name).parent
            assert (place / loaded.lstrip("/").partition("?")[0]).exists(), f"{name}: {loaded}"


def test_the_search_finds_the_right_page_first_without_a_server(site: Path) -> None:
    with opened_browser() as browser, watched_page(browser, width=1280) as watched:
        for text, address in ANSWERS.items():
            watched.page.goto((site / "index.html").as_uri())
            watched.page.locator("input[name=query]").press_sequentially(text)
            expected = f"{site.as_uri()}/{address}"
            with suppress(PlaywrightTimeoutError):
                watched.page.wait_for_function(
                    f"expected => ({FOUND})() === expected", arg=expected
                )
            assert watched.page.evaluate(FOUND) == expected, text
        assert watched.complaints == []


def test_what_is_vendored_for_the_search_is_unchanged() -> None:
    text = (DOCS / "javascripts" / "iframe-worker.js").read_bytes().partition(b" */\n")[2]
    assert hashlib.sha256(text).hexdigest() == IFRAME_WORKER_1_0_4


def test_links_lead_somewhere(built: dict[str, Page]) -> None:
    for name, page in built.items():
        if name == "404.html":  # is shown under any address
            continue
        for link in page.links:
            target, _, anchor = link.partition("#")
            if "//" in target:
                check_external(link, name)
                continue
            found = normpath(join(dirname(name), target)) if target else name
            if found == ".":
                found = "index.html"
            assert found in built, f"{name}: {link}"
            assert not anchor or anchor in built[found].anchors, f"{name}: {link}"


def check_external(link: str, page: str) -> None:
    """Check the form of an address; no test asks the network for it."""
    assert EXTERNAL.fullmatch(link), f"{page}: {link}"
    _, is_ours, path = link.partition(f"{REPOSITORY}/")
    if is_ours:
        assert (ROOT / path.partition("/main/")[2]).exists(), f"{page}: {link}"


def test_every_readme_is_on_the_site() -> None:
    texts = {
        str(path.relative_to(ROOT))
        for folder in ("hook_layer", "rule_runtime", "lambdas", "infra", "examples", "tests")
        for path in (ROOT / folder).rglob("*.md")
    } | {path.name for path in ROOT.glob("*.md")}
    taken = {
        found[0]
        for page in pages()
        for line in with_files_named(ROOT, (DOCS / page).read_text(encoding="utf-8")).splitlines()
        if (found := directive_of(line)) is not None
    }
    assert texts == taken


def test_nothing_is_written_twice() -> None:
    readmes = " ".join(
        " ".join(path.read_text(encoding="utf-8").split())
        for path in [ROOT / "README.md", *ROOT.glob("*/README.md")]
    )
    for page in pages():
        for paragraph in (DOCS / page).read_text(encoding="utf-8").split("\n\n"):
            text = " ".join(paragraph.split())
            is_prose = len(text) > 80 and not text.startswith(("```", "|", ":::", "<"))
            assert not (is_prose and text in readmes), f"{page}: {text[:100]}"


def test_the_repositorys_address_is_that_of_the_distribution() -> None:
    assert f'"{REPOSITORY}/' in (ROOT / "pyproject.toml").read_text()
    assert f"repository: {REPOSITORY}\n" in (ROOT / "mkdocs.yml").read_text()


def test_a_link_that_leads_nowhere_ends_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Page\n\n[x](nowhere.md) [y](#nothing)\n")
    shutil.copytree(DOCS / "hooks", tmp_path / "docs" / "hooks")
    kept = (ROOT / "mkdocs.yml").read_text()
    without = re.sub(
        r"^nav:\n(?:  .*\n)+\n|^  - mkdocstrings:\n(?:    .*\n)+", "", kept, flags=re.MULTILINE
    )
    (tmp_path / "mkdocs.yml").write_text(without)
    done = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode == 1
    assert "nowhere.md" in done.stderr
    assert "#nothing" in done.stderr
