"""Who gets the page over all runs, and what its answers say; asked as a browser asks."""

from __future__ import annotations

import hashlib
import http.client
import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest

import rule_runtime.live_page
from hook_layer.format.job_file import JobFile
from hook_layer.format.paths import JOB_FILE
from hook_layer.storage.base import Store
from hook_layer.storage.local import LocalStore
from rule_runtime.live_page.access import AllowedHosts, is_loopback
from rule_runtime.testing import TrialBuilder
from tests.rule_runtime.processes import completed

STEPWATCH = Path(sys.executable).parent / "stepwatch"
STATIC = Path(rule_runtime.live_page.__file__).parent / "static"
UPLOT_1_6_32 = {
    "uplot.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uplot.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "uplot.LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}
MAX_SCRIPT_BYTES = 100_000


@contextmanager
def served(root: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Serve a folder by the command; the process and its port."""
    command = [str(STEPWATCH), "ui", str(root), "--port", "0", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        run.url = run.stdout.readline()  # type: ignore[attr-defined]
        found = re.search(r"http://[^/]+:(\d+)/", run.url)  # type: ignore[attr-defined]
        assert found is not None, run.stderr.read() if run.stderr else ""
        try:
            yield run, int(found[1])
        finally:
            run.send_signal(signal.SIGINT)
            run.wait(20)


def write_run(root: Path, losses: list[float], **tensors: Any) -> TrialBuilder:
    """Write a run of a few steps; arrays are saved at each step."""
    return write_run_in(LocalStore(root), root.name, losses, **tensors)


def write_run_in(store: Store, name: str, losses: list[float], **tensors: Any) -> TrialBuilder:
    builder = TrialBuilder(store)
    job = JobFile(name, "run-1", "local", "2026-11-21T10:00:00Z")
    builder.store.put(JOB_FILE, job.encode())
    builder.collections(losses=("Loss_output",))
    for step, loss in enumerate(losses):
        builder.step(step, {"Loss_output_0": np.float32(loss), **tensors}, time=1e9 + step)
    return builder


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    root = tmp_path_factory.mktemp("runs")
    write_run(root / "one", [1.0, np.nan, 3.0], a=np.arange(4.0))
    write_run(root / "two", [1.0, 2.0]).end()
    with served(root, "--rule", "NonFinite") as (_, port):
        yield port


def asked(port: int, path: str = "/", **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", path, headers=headers)
    return connection.getresponse()


def answer(port: int, name: str, **query: Any) -> Any:
    return json.loads(asked(port, f"/api/{name}?{urlencode(query, doseq=True)}").read())


def first_event(response: http.client.HTTPResponse) -> dict[str, Any]:
    assert response.readline().strip() == b"event: versions"
    parsed: dict[str, Any] = json.loads(response.readline().removeprefix(b"data: "))
    return parsed


@pytest.mark.parametrize("path", ["/", "/app.js", "/api/runs", "/no-such-page"])
def test_the_page_loads_nothing_from_elsewhere(page: int, path: str) -> None:
    response = asked(page, path)
    policy = response.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'self'; ")
    assert "unsafe" not in policy
    assert response.headers["Cache-Control"] == "no-store"
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Access-Control-Allow-Origin"] is None


def test_its_scripts_are_small_and_the_vendored_one_is_unchanged() -> None:
    scripts = list(STATIC.rglob("*.js"))
    assert sum(path.stat().st_size for path in scripts) < MAX_SCRIPT_BYTES
    vendored = {path.name: path for path in (STATIC / "vendor").iterdir()}
    digests = {
        name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in vendored.items()
    }
    assert digests == UPLOT_1_6_32
    for path in {*scripts, STATIC / "index.html"} - {vendored["uplot.js"]}:
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacent|eval\(|https?:",
            path.read_text().replace("http://www.w3.org/", ""),
        )


@pytest.mark.parametrize("path", ["/", "/api/runs", "/api/events"])
def test_a_name_that_others_lead_here_is_refused(page: int, path: str) -> None:
    for host in (f"evil.example:{page}", "evil.example", "192.168.1.5", ""):
        response = asked(page, path, Host=host)
        assert response.status == 421, host
        assert b"Loss" not in response.read()
    for host in (f"localhost:{page}", f"127.0.0.1:{page + 1}", "[::1]"):
        assert asked(page, "/", Host=host).status == 200


def test_files_outside_of_the_page_are_not_served(page: int) -> None:
    for path in ("/../server.py", "/%2e%2e/server.py", "/vendor", "/vendor/uplot.LICENSE", "/etc"):
        assert asked(page, path).status == 404, path


@pytest.mark.parametrize(
    ("question", "query", "status", "message"),
    [
        ("run", {"run": "../secret"}, 404, "there is no run '../secret'"),
        ("run", {}, 404, "there is no run ''"),
        (
            "curves",
            {"run": "one", "tensor": "a", "statistic": "x"},
            400,
            "statistic='x' is none of",
        ),
        ("curves", {"run": "one", "tensor": "a", "first": "nan"}, 400, "first='nan' is not a"),
        ("map", {"run": "one", "kind": "x"}, 400, "kind='x' is none of"),
        ("curves", {"run": "one", "tensor": "a", "width": "-9"}, 200, None),
        ("curves", {"run": "one", "tensor": "nothing"}, 200, None),
        ("histogram", {"run": "one", "tensor": "nothing"}, 200, None),
    ],
)
def test_a_wrong_question_gets_a_message(
    page: int, question: str, query: dict[str, str], status: int, message: str | None
) -> None:
    response = asked(page, f"/api/{question}?{urlencode(query)}")
    content = json.loads(response.read())
    assert response.status == status
    assert message is None or content["error"].startswith(message)


def test_it_answers_runs_curves_and_histograms(page: int) -> None:
    assert {row["id"] for row in answer(page, "runs")["rows"]} == {"one", "two"}
    details = answer(page, "run", run="one")
    assert (details["steps"], details["last_step"], details["modes"]) == (3, 2, ["TRAIN"])
    assert details["curves"]["losses"] == ["Loss_output_0"]
    (curve,) = answer(page, "curves", run="one", tensor="Loss_output_0")
    assert (curve["low"], curve["bad"]) == ([1.0, None, 3.0], [1])
    assert answer(page, "tensors", run="one", text="LOSS output") == {
        "num": 1,
        "tensors": ["Loss_output_0"],
    }
    bars = answer(page, "histogram", run="one", tensor="a", step=1)
    assert (bars["step"], sum(bars["counts"]), bars["edges"][-1]) == (1, 4, 3.0)
    found = answer(page, "differences", run=["one", "two"])
    assert found["first"][0]["tensor"] == "Loss_output_0"
    assert found["first"][0]["step"] == 1


def test_a_connection_gets_the_versions_at_once(page: int) -> None:
    response = asked(page, "/api/events?run=one")
    assert response.headers["Content-Type"].startswith("text/event-stream")
    assert first_event(response)["runs"].keys() == {"one"}


def test_other_machines_need_the_token(tmp_path: Path) -> None:
    with served(tmp_path, "--host", "0.0.0.0") as (run, port):
        url = run.url  # type: ignore[attr-defined]
        token = url.strip().partition("?token=")[2]
        assert len(token) >= 32
        for path in ("/", "/api/runs", "/?token=wrong", "/?token=%ff"):
            response = asked(port, path)
            assert response.status == 403
            assert b"token" in response.read()
        entered = asked(port, f"/?token={token}")
        cookie = entered.headers["Set-Cookie"]
        assert entered.status == 303
        assert "HttpOnly" in cookie
        assert "SameSite=lax" in cookie
        assert socket.gethostname() in url
        cookies = f'odd[name]={{"a": 1}}; {cookie.partition(";")[0]}'
        assert asked(port, "/api/runs", Cookie=cookies).status == 200
        assert asked(port, "/api/runs", Cookie=f"stepwatch_{port}=wrong").status == 403


def test_an_exposed_page_answers_to_addresses_and_its_own_name() -> None:
    hosts = AllowedHosts("0.0.0.0", 8400)
    assert hosts.allows("192.168.1.5:8400")
    assert hosts.allows("[fe80::1]:8400")
    assert not hosts.allows("evil.example:8400")
    assert AllowedHosts("gpu-box", 80).allows("GPU-box")
    assert not AllowedHosts("127.0.0.1", 8400).allows("192.168.1.5:8400")
    assert [is_loopback(host) for host in ("127.3.2.1", "::1", "LOCALHOST", "localhost.evil")] == [
        *(True, True, True, False)
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no-such-folder"], "no-such-folder: there is no such folder; give one that holds runs"),
        ([".", "--rule", "NoSuchRule"], "NoSuchRule"),
        (["ftp://x/y"], "there is no store for ftp://"),
        ([".", "--host", "no.such.host.invalid"], "stepwatch: "),
    ],
)
def test_a_mistake_is_one_message(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = completed([str(STEPWATCH), "ui", *arguments], timeout=60, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not done.stdout


def test_a_port_that_is_taken_is_said(page: int, tmp_path: Path) -> None:
    done = completed([str(STEPWATCH), "ui", str(tmp_path), "--port", str(page)], timeout=60)
    assert done.returncode == 2
    assert f"port {page} of 127.0.0.1 is in use" in done.stderr
    assert "--port 0 for any that is free" in done.stderr
    assert not done.stdout


def test_the_server_ends_by_a_signal_though_browsers_are_connected(tmp_path: Path) -> None:
    with served(tmp_path) as (run, port):
        response = asked(port, "/api/events")
        first_event(response)
        run.send_signal(signal.SIGTERM)
        rest = response.read()
        assert b"event: bye" in rest
        assert run.wait(20) in {0, -signal.SIGTERM}
        assert run.stderr is not None
        assert run.stderr.read() == ""
