"""Who gets the live page, and what its answers say; asked as a browser asks."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hook_layer.format.job_file import JobFile
from hook_layer.format.paths import JOB_FILE
from hook_layer.storage.local import LocalStore
from rule_runtime.live_page.server import AllowedHosts, is_loopback
from rule_runtime.testing import TrialBuilder
from tests.rule_runtime.processes import completed

STEPWATCH = Path(sys.executable).parent / "stepwatch"


@contextmanager
def served(root: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Serve a folder by the command; the process and its port."""
    command = [str(STEPWATCH), "ui", str(root), "--port", "0", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        line = run.stdout.readline()
        found = re.search(r"http://[^/]+:(\d+)/", line)
        assert found is not None, line + (run.stderr.read() if run.stderr else "")
        try:
            yield run, int(found[1])
        finally:
            run.send_signal(signal.SIGINT)
            run.wait(20)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    root = tmp_path_factory.mktemp("live")
    builder = TrialBuilder(LocalStore(root))
    builder.store.put(JOB_FILE, JobFile("job", "run-1", "local", "2026-11-21T10:00:00Z").encode())
    for step in range(3):
        builder.step(step, {"Loss_output_0": np.float32(step)})
    with served(root, "--rule", "NonFinite") as (_, port):
        yield port


def asked(port: int, path: str = "/", host: str | None = None) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", path, headers={} if host is None else {"Host": host})
    return connection.getresponse()


def first_event(answer: http.client.HTTPResponse) -> dict[str, object]:
    assert answer.readline().strip() == b"event: parts"
    parsed: dict[str, object] = json.loads(answer.readline().removeprefix(b"data: "))
    return parsed


def test_the_page_runs_no_script_but_its_own(page: int) -> None:
    answer = asked(page)
    policy = answer.headers["Content-Security-Policy"]
    text = answer.read().decode()
    nonce = re.search(r"script-src 'nonce-([\w-]+)'", policy)
    assert nonce is not None
    assert text.count(f'nonce="{nonce[1]}"') == 2
    assert text.count("<script") == text.count("<style") == 1
    assert not re.search(r"\sstyle=|\son\w+=", text), "its policy forbids both"
    assert {part.split()[0] for part in policy.split("; ")} == {
        *("default-src", "script-src", "style-src", "img-src", "connect-src", "base-uri"),
        *("form-action", "frame-ancestors"),
    }
    assert "unsafe" not in policy
    assert nonce[1] not in asked(page).headers["Content-Security-Policy"], "a new one each time"
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Access-Control-Allow-Origin"] is None


@pytest.mark.parametrize("path", ["/", "/events"])
def test_a_name_that_others_lead_here_is_refused(page: int, path: str) -> None:
    for host in (f"evil.example:{page}", "evil.example", "127.0.0.1", f"localhost:{page + 1}", ""):
        answer = asked(page, path, host)
        assert answer.status == 421, host
        assert b"Loss" not in answer.read()
    for host in (f"localhost:{page}", f"127.0.0.1:{page}", f"[::1]:{page}"):
        assert asked(page, "/", host).status == 200


def test_a_connection_gets_all_parts_at_once(page: int) -> None:
    for _ in range(100):
        answer = asked(page, "/events")
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        news = first_event(answer)
        parts: Any = news["parts"]
        if "Loss_output_0" in parts["curves"]:
            break
    assert parts.keys() == {"heading", "findings", "curves", "maps", "rules"}
    assert news["state"] == "live"


def test_other_machines_are_let_in_only_by_word(tmp_path: Path) -> None:
    done = completed([str(STEPWATCH), "ui", str(tmp_path), "--host", "0.0.0.0"], timeout=60)
    assert done.returncode == 2
    assert "--expose" in done.stderr
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "192.168.1.5", "gpu-box"))


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


def test_a_port_that_is_taken_is_said(page: int, tmp_path: Path) -> None:
    done = completed([str(STEPWATCH), "ui", str(tmp_path), "--port", str(page)], timeout=60)
    assert done.returncode == 2
    assert f"port {page} of 127.0.0.1 is in use" in done.stderr
    assert "--port 0 for any that is free" in done.stderr
    assert not done.stdout


def test_the_server_ends_by_a_signal_though_browsers_are_connected(tmp_path: Path) -> None:
    with served(tmp_path) as (run, port):
        answer = asked(port, "/events")
        first_event(answer)
        run.send_signal(signal.SIGTERM)
        rest = answer.read()
        assert b"event: bye" in rest
        assert run.wait(20) in {0, -signal.SIGTERM}
        assert run.stderr is not None
        assert run.stderr.read() == ""
