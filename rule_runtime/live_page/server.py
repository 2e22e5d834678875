"""Serves the page over all runs: its files, what it asks of runs, and events.

The server reads, and writes nothing.
"""

from __future__ import annotations

import asyncio
import errno
import json
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hook_layer.format.errors import FormatError
from hook_layer.storage.base import StorageError
from rule_runtime.optional_extra import require_extra

require_extra("ui", "the page over all runs", "starlette", "uvicorn")

import uvicorn  # noqa: E402
from starlette.applications import Starlette  # noqa: E402
from starlette.responses import Response, StreamingResponse  # noqa: E402
from starlette.routing import Route  # noqa: E402

from rule_runtime.live_page import run_data  # noqa: E402
from rule_runtime.live_page.access import Access, AllowedHosts  # noqa: E402
from rule_runtime.live_page.differences import differences, differing_arguments  # noqa: E402
from rule_runtime.live_page.watched_runs import WatchedRuns  # noqa: E402
from rule_runtime.trial.errors import TrialError  # noqa: E402

if TYPE_CHECKING:
    from starlette.datastructures import QueryParams
    from starlette.requests import Request

__all__ = ["RunsPage", "serve"]

_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_STATIC: Final = Path(__file__).parent / "static"
_TYPES: Final = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}
_MAX_STEP: Final = float(1 << 62)


class RunsPage:
    """The web application.

    Args:
        runs: The runs to show.
    """

    def __init__(self, runs: WatchedRuns) -> None:
        self._runs = runs
        self._files = {
            f"/{path.relative_to(_STATIC).as_posix()}": (path.read_bytes(), _TYPES[path.suffix])
            for path in _STATIC.rglob("*")
            if path.suffix in _TYPES
        }

    def app(self, hosts: AllowedHosts) -> Access:
        """Return the application for a server."""
        answers: dict[str, Callable[[QueryParams], Any]] = {
            "runs": self._list,
            "run": self._details,
            "curves": self._curves,
            "system": self._system,
            "map": self._map,
            "tensors": lambda given: run_data.search(self._run(given), given.get("text", "")),
            "histogram": self._histogram,
            "differences": self._differences,
        }
        routes = [
            *(Route(f"/api/{name}", _answer(answer)) for name, answer in answers.items()),
            Route("/api/events", self._events),
            Route("/{path:path}", self._file),
        ]
        return Access(Starlette(routes=routes, lifespan=self._lifespan), hosts)

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        following = asyncio.create_task(self._runs.follow())
        try:
            yield
        finally:
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following

    async def _file(self, request: Request) -> Response:
        path = "/index.html" if request.url.path == "/" else request.url.path
        if path not in self._files:
            return Response("there is no such page\n", 404, _HEADERS, "text/plain")
        content, kind = self._files[path]
        return Response(content, headers=_HEADERS, media_type=kind)

    async def _events(self, request: Request) -> Response:
        names = request.query_params.getlist("run")

        async def stream() -> AsyncIterator[str]:
            async for versions in self._runs.changes(names):
                yield _event("versions", versions)
            yield _event("bye", {})

        headers = {**_HEADERS, "X-Accel-Buffering": "no"}
        return StreamingResponse(stream(), media_type="text/event-stream", headers=headers)

    def _list(self, _: QueryParams) -> dict[str, Any]:
        catalogue = self._runs.catalogue
        if not catalogue.version:
            catalogue.scan(0.0)
        version = catalogue.version  # before the rows: a later change is asked for again
        rows = list(catalogue.rows.values())
        return {
            "root": catalogue.root,
            "version": version,
            "problem": catalogue.problem,
            "rows": differing_arguments(rows),
        }

    def _run(self, given: QueryParams) -> Any:
        return self._runs.opened(given.get("run", ""))

    def _details(self, given: QueryParams) -> dict[str, Any]:
        return run_data.details(self._run(given), self._runs.place(given.get("run", "")))

    def _curves(self, given: QueryParams) -> Any:
        run, workers = self._run(given), given.getlist("worker")
        run.has(workers)
        tensors, statistic = given.getlist("tensor"), given.get("statistic", "mean")
        return run_data.curves(run, tensors, statistic, workers, _range(given))

    def _system(self, given: QueryParams) -> Any:
        place = self._runs.place(given.get("run", ""))
        return run_data.system(self._run(given), place, _range(given))

    def _map(self, given: QueryParams) -> Any:
        kind, worker = given.get("kind", "gradients"), given.get("worker", "")
        return run_data.heat_map_of(self._run(given), kind, worker, _range(given))

    def _histogram(self, given: QueryParams) -> Any:
        step = int(_number(given, "step", _MAX_STEP))
        tensor, worker = given.get("tensor", ""), given.get("worker", "")
        return run_data.histogram(self._run(given), tensor, worker, step)

    def _differences(self, given: QueryParams) -> Any:
        names = given.getlist("run")
        places = [self._runs.place(name) for name in names]
        return differences([(self._runs.opened(place.name), place) for place in places])


def serve(
    runs: WatchedRuns,
    *,
    host: str,
    port: int,
    on_ready: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve the page until SIGINT or SIGTERM.

    Args:
        runs: The runs to show.
        host: Address to listen on. Other addresses than loopback get a token.
        port: The port; 0 for any free port.
        on_ready: Called with the URL of the page when it can be opened.

    Raises:
        OSError: The address is in use, or does not belong to this machine.
    """
    with _listening(host, port) as listening:
        port = listening.getsockname()[1]
        hosts = AllowedHosts(host, port)
        app = RunsPage(runs).app(hosts)
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, timeout_graceful_shutdown=5
        )
        server = uvicorn.Server(config)
        runs.is_ending = lambda: server.should_exit
        query = f"?token={app.token}" if app.token else ""
        on_ready(f"http://{hosts.shown}:{port}/{query}")
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
            f"port {port} of {host} is in use, maybe by another page: give another by --port, "
            "or --port 0 for any that is free"
        ) from error


def _answer(answer: Callable[[QueryParams], Any]) -> Callable[[Request], Any]:
    """Return a handler that answers JSON, and errors as JSON with a message."""

    async def handle(request: Request) -> Response:
        status = 200
        try:
            content = await asyncio.to_thread(answer, request.query_params)
        except asyncio.CancelledError:  # the server ends
            status, content = 503, {"error": "the server has ended"}
        except KeyError as error:
            status, content = 404, {"error": f"there is no run {error}; it may have been deleted"}
        except (StorageError, FormatError, TrialError, ImportError, ValueError) as error:
            status, content = 400, {"error": str(error)}
        return Response(json.dumps(content, allow_nan=False), status, _HEADERS, "application/json")

    return handle


def _range(given: QueryParams) -> run_data.Range:
    first, last = _number(given, "first", -1.0), _number(given, "last", _MAX_STEP)
    return run_data.Range(first, last, int(_number(given, "width", 800.0)))


def _number(given: Mapping[str, str], name: str, default: float) -> float:
    text = given.get(name, "")
    try:
        number = float(text) if text else default
    except ValueError:
        number = float("nan")
    if not -_MAX_STEP <= number <= _MAX_STEP:
        raise ValueError(f"{name}={text!r} is not a number; leave it out or give one")
    return number


def _event(name: str, data: Mapping[str, object]) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"
