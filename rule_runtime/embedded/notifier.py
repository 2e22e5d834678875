"""Posts messages about a run to a chat webhook."""

from __future__ import annotations

import html
import http.client
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from queue import Queue
from typing import Any, Final
from urllib.parse import urlsplit

__all__ = ["Notifier", "message"]

_TIMEOUT_S: Final = 10.0
_PAUSES_S: Final = (1.0, 4.0)
"""Waiting times before each retry, seconds."""
_MAX_WAITING: Final = 100
_MAX_TEXT: Final = 1500
"""Maximum number of characters; chats accept about 2,000."""
_TOO_MANY_REQUESTS: Final = 429
_SERVERS_FAULT: Final = 500


def message(
    job: str, text: str, *, rule: str | None, status: str, step: int | None, details: str
) -> dict[str, Any]:
    """Return a message: `text` for readers, in Slack's format, and its parts for programs."""
    escaped = html.escape(f"{job}: {text}"[:_MAX_TEXT], quote=False)
    parts = {"job": job, "rule": rule, "status": status, "step": step}
    return {"text": escaped, **parts, "details": details[:_MAX_TEXT]}


class Notifier:
    """Posts messages as JSON in its own thread, so the sender never waits.

    The URL is secret and never printed. Failure to send is reported once.

    Args:
        url: The webhook.
        on_problem: Called once with the problem, from either thread.
        max_waiting: Maximum number of waiting messages; further ones are dropped.
        pause: Waits for a number of seconds between tries.

    Raises:
        ValueError: It is not an http or https URL.
    """

    def __init__(
        self,
        url: str,
        on_problem: Callable[[str], None],
        *,
        max_waiting: int = _MAX_WAITING,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        if not _is_web_address(url):
            raise ValueError(
                "--notify needs a URL such as https://HOST/... (it "
                "is not repeated here, because it may be secret)"
            )
        self._url = url
        self._on_problem = on_problem
        self._pause = pause
        self._opener = urllib.request.build_opener(_NoRedirect)
        self._waiting: Queue[Mapping[str, Any] | None] = Queue(max_waiting + 1)
        self._max_waiting = max_waiting
        self._has_reported = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="stepwatch-notify", daemon=True)
        self._thread.start()

    def send(self, content: Mapping[str, Any]) -> None:
        """Queue a message."""
        if self._waiting.qsize() >= self._max_waiting:  # one place is reserved for the end
            self._report(
                f"more messages wait for the address of --notify than {self._max_waiting}: the "
                "others are left out"
            )
        else:
            self._waiting.put_nowait(content)

    def close(self, timeout_s: float = _TIMEOUT_S) -> None:
        """Wait until all messages are sent, up to a timeout."""
        self._waiting.put_nowait(None)
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self._report("messages to the address of --notify were not sent in time")

    def _run(self) -> None:
        while (content := self._waiting.get()) is not None:
            problem = self._problem_of(json.dumps(content).encode())
            if problem is not None:
                self._report(
                    f"the --notify URL did not accept a message ({problem}); the run continues, "
                    "and this is reported once"
                )

    def _problem_of(self, body: bytes) -> str | None:
        """Post a message, and return the problem; None on success."""
        for pause_s in (*_PAUSES_S, None):
            problem, may_pass = self._try(body)
            if problem is None or not may_pass or pause_s is None:
                return problem
            self._pause(pause_s)
        return None

    def _try(self, body: bytes) -> tuple[str | None, bool]:
        """Post a message once; return the problem, and whether a retry may help."""
        request = urllib.request.Request(  # noqa: S310 - checked when this was made
            self._url, body, {"Content-Type": "application/json", "User-Agent": "stepwatch"}
        )
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S):
                return None, False
        except urllib.error.HTTPError as error:
            error.close()
            may_pass = error.code == _TOO_MANY_REQUESTS or error.code >= _SERVERS_FAULT
            return f"HTTP status {error.code}", may_pass
        except urllib.error.URLError as error:  # its text may contain the URL
            return type(error.reason).__name__, True
        except (OSError, ValueError, http.client.HTTPException) as error:
            return type(error).__name__, isinstance(error, OSError)

    def _report(self, problem: str) -> None:
        if self._has_reported.acquire(blocking=False):
            self._on_problem(problem)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: a message is only for the given URL."""

    def redirect_request(self, *_: object) -> None:
        return None


def _is_web_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        return False
