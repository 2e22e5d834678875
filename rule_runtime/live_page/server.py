"""Serves the live page to browsers on this machine.

By default, only this machine can open the page. A website in the same browser must not read it:
requests with another `Host` are refused, which prevents DNS rebinding.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import json
import logging
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hook_layer.storage.base import StorageError
from rule_runtime.optional_extra import require_extra

require_extra("ui", "the live page", "starlette", "uvicorn", "jinja2")

import uvicorn  # noqa: E402
from starlette.applications import Starlette  # noqa: E402
from starlette.responses import HTMLResponse, PlainTextResponse, StreamingResponse  # noqa: E402
from starlette.routing import Route  # noqa: E402

from rule_runtime.live_page.content import page, parts  # noqa: E402

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

    from rule_runtime.live_page.follower import RunFollower

__all__ = ["LivePage", "is_loopback", "serve"]

_logger: Final = logging.getLogger(__name__)

_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_WAIT_S: Final = 0.5
"""Maximum seconds until a connection notices the server's end."""
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass
class LivePage:
    """The web application: one page, and the events that update it.

    Attributes:
        follower: The displayed run.
        interval_s: Seconds between two reads of the storage.
        is_ending: Returns whether the server is about to end.
    """

    follower: RunFollower
    interval_s: float = 1.0
    is_ending: Callable[[], bool] = lambda: False
    _shown: Mapping[str, str] = field(default_factory=dict)
    _name: str = ""
    _problem: str = ""
    _version: int = 0
    _changed: asyncio.Event | None = None

    def app(self, hosts: AllowedHosts) -> ASGIApp:
        """Return the application for a server."""
        routes = [Route("/", self._page), Route("/events", self._events)]
        return _HostCheck(Starlette(routes=routes, lifespan=self._lifespan), hosts)

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        self._changed = asyncio.Event()
        await asyncio.to_thread(self._render)
        following = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following

    async def _follow(self) -> None:
        while not self.follower.has_ended:
            is_new = await asyncio.to_thread(self._look)
            if is_new:
                await asyncio.to_thread(self._render)
                self._notify()
            await asyncio.sleep(self.interval_s)

    def _look(self) -> bool:
        before = self._problem
        try:
            is_new = self.follower.look()
            self._problem = ""
        except (StorageError, ValueError) as error:
            self._problem, is_new = str(error), False
            if self._problem != before:
                _logger.warning("cannot follow the run, and tries again: %s", error)
        return is_new or self._problem != before

    def _render(self) -> None:
        numbers = self.follower.numbers()
        self._name = numbers.name
        self._shown = parts(numbers)

    def _notify(self) -> None:
        self._version += 1
        if self._changed is not None:
            self._changed.set()
            self._changed = asyncio.Event()

    async def _page(self, _: Request) -> Response:
        nonce = secrets.token_urlsafe(16)
        policy = (
            f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; "
            "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
            "frame-ancestors 'none'"
        )
        headers = {**_HEADERS, "Content-Security-Policy": policy}
        return HTMLResponse(page(self._name, self._shown, nonce), headers=headers)

    async def _events(self, _: Request) -> Response:
        headers = {**_HEADERS, "X-Accel-Buffering": "no"}
        return StreamingResponse(self._stream(), media_type="text/event-stream", headers=headers)

    async def _stream(self) -> AsyncIterator[str]:
        """Yield the parts that a connection lacks, until the server ends."""
        sent: dict[str, str] = {}
        version = -1
        while not self.is_ending():
            changed = self._changed
            if version != self._version:
                version, shown = self._version, self._shown
                news = {name: text for name, text in shown.items() if sent.get(name) != text}
                sent = dict(shown)
                state = "ended" if self.follower.has_ended else "live"
                yield _event("parts", {"parts": news, "state": state, "problem": self._problem})
            if changed is not None:
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(changed.wait(), _WAIT_S)
        yield _event("bye", {})


@dataclass(frozen=True)
class AllowedHosts:
    """The host names that browsers may use for the page.

    Attributes:
        host: Address of the server.
        port: Port of the server.
    """

    host: str
    port: int

    def allows(self, header: str) -> bool:
        """Return whether a request is for this server.

        DNS rebinding needs a name that is not in this list. It cannot use a numeric address.
        """
        name, _, port = header.rpartition(":") if _has_port(header) else (header, "", "80")
        name = name.strip("[]").lower()
        if port != str(self.port):
            return False
        if name in _LOOPBACK_NAMES:
            return True
        own = {self.host.lower(), socket.gethostname().lower()}
        return not is_loopback(self.host) and (name in own or _is_address(name))


def is_loopback(host: str) -> bool:
    """Return whether a host is reachable only from this machine."""
    if host.lower() == "localhost":
        return True
    return _is_address(host) and ipaddress.ip_address(host).is_loopback


def serve(
    follower: RunFollower,
    *,
    host: str,
    port: int,
    interval_s: float,
    on_ready: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve the page until SIGINT or SIGTERM.

    Args:
        follower: The displayed run.
        host: Address to listen on.
        port: The port; 0 for any free port.
        interval_s: Seconds between two reads of the storage.
        on_ready: Called with the URL of the page when it can be opened.

    Raises:
        OSError: The address is in use, or does not belong to this machine.
    """
    with _listening(host, port) as listening:
        port = listening.getsockname()[1]
        live = LivePage(follower, interval_s)
        config = uvicorn.Config(
            live.app(AllowedHosts(host, port)),
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=5,
        )
        server = uvicorn.Server(config)
        live.is_ending = lambda: server.should_exit
        shown = f"[{host}]" if ":" in host else host
        on_ready(f"http://{shown}:{port}/")
        with suppress(KeyboardInterrupt):
            server.run(sockets=[listening])


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise OSError(
            f"port {port} of {host} is in use, maybe by another live page: give another by --port, "
            "or --port 0 for any that is free"
        ) from error


class _HostCheck:
    """Refuses requests for another host."""

    def __init__(self, app: ASGIApp, hosts: AllowedHosts) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            given = [value for name, value in scope["headers"] if name == b"host"]
            header = given[0].decode("latin-1") if len(given) == 1 else ""
            if not self._hosts.allows(header):
                refusal = PlainTextResponse(
                    "this server answers under its own name only\n", status_code=421
                )
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _event(name: str, data: Mapping[str, object]) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"


def _has_port(header: str) -> bool:
    return header.rpartition(":")[2].isdigit() and not header.endswith("]")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
