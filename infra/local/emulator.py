"""The emulator: moto's server with our patches, in this process, on loopback only."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from moto.moto_api._internal.models import moto_api_backend
from moto.server import ThreadedMotoServer

from infra.local.moto_patches import apply_patches

__all__ = ["Emulator", "Middleware", "StartResponse", "WsgiApplication"]

LOOPBACK = "127.0.0.1"

StartResponse: TypeAlias = Callable[..., Callable[[bytes], object]]
WsgiApplication: TypeAlias = Callable[[dict[str, Any], StartResponse], Iterable[bytes]]
Middleware: TypeAlias = Callable[[WsgiApplication], WsgiApplication]
"""Makes an application that stands in front of another one."""


class Emulator:
    """A running server. Its state belongs to the process: one emulator at a time, started empty."""

    def __init__(self, middleware: Middleware | None = None) -> None:
        """Start the server; `middleware` stands in front of the services and sees every request."""
        apply_patches()
        logging.getLogger("werkzeug").setLevel(logging.ERROR)  # else one line a request
        self.reset()
        self._server = ThreadedMotoServer(ip_address=LOOPBACK, port=0, verbose=False)
        self._server.start()
        if middleware is not None:
            server = self._server._server  # noqa: SLF001 - it takes no application from outside
            server.app = middleware(server.app)
        host, port = self._server.get_host_and_port()
        self.endpoint_url = f"http://{host}:{port}"

    def reset(self) -> None:
        """Forget everything that was stored."""
        moto_api_backend.reset()

    def stop(self) -> None:
        """Stop the server; what it stored is gone."""
        self._server.stop()
        self.reset()
