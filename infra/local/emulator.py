"""The emulator: moto's server with Stepwatch's patches, in this process, on loopback only."""

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
"""Wraps an application."""


class Emulator:
    """A running server with process-wide state: one emulator at a time, initially empty."""

    def __init__(self, middleware: Middleware | None = None) -> None:
        """Start the server; `middleware` wraps the services and sees every request."""
        apply_patches()
        logging.getLogger("werkzeug").setLevel(logging.ERROR)  # otherwise one line per request
        self.reset()
        self._server = ThreadedMotoServer(ip_address=LOOPBACK, port=0, verbose=False)
        self._server.start()
        if middleware is not None:
            server = self._server._server  # noqa: SLF001 - it accepts no application
            server.app = middleware(server.app)
        host, port = self._server.get_host_and_port()
        self.endpoint_url = f"http://{host}:{port}"

    def reset(self) -> None:
        """Delete all stored data."""
        moto_api_backend.reset()

    def stop(self) -> None:
        """Stop the server, which loses its stored data."""
        self._server.stop()
        self.reset()
