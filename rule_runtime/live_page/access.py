"""Decides which requests are answered: those of this machine, or those that have the token.

A website in the same browser must not read the page: requests with another `Host` are refused,
which prevents DNS rebinding.
"""

from __future__ import annotations

import ipaddress
import secrets
import socket
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs

from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["Access", "AllowedHosts", "is_loopback"]

_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_WILDCARDS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - the user gave it
_TOKEN_BYTES: Final = 24


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
        if name in _LOOPBACK_NAMES:  # `ssh -L` forwards another port
            return True
        if port != str(self.port) or is_loopback(self.host):
            return False
        return name in self._own or _is_address(name)

    @property
    def shown(self) -> str:
        """The host name in the address for browsers."""
        host = socket.gethostname() if self.host in _WILDCARDS else self.host
        return f"[{host}]" if ":" in host else host

    @cached_property
    def _own(self) -> frozenset[str]:
        names = (self.host, socket.gethostname(), socket.getfqdn())
        return frozenset(name.lower() for name in names)


class Access:
    """Refuses requests for another host, and those without the token if there is one.

    Args:
        app: The application.
        hosts: The allowed host names.

    Attributes:
        token: The token; empty for an address that only this machine reaches.
    """

    def __init__(self, app: ASGIApp, hosts: AllowedHosts) -> None:
        self._app = app
        self._hosts = hosts
        self._cookie = f"stepwatch_{hosts.port}"
        self.token = "" if is_loopback(hosts.host) else secrets.token_urlsafe(_TOKEN_BYTES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        await (self._app if refusal is None else refusal)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        hosts = _header(scope, b"host")
        if len(hosts) != 1 or not self._hosts.allows(hosts[0]):
            return PlainTextResponse("this server answers under its own name only\n", 421)
        if not self.token or self._is_known(_cookie(scope, self._cookie)):
            return None
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if not self._is_known(given):
            return PlainTextResponse(
                "open the address that `stepwatch ui` printed: it has the token of this page\n", 403
            )
        redirect = RedirectResponse("/", 303, {"Referrer-Policy": "no-referrer"})
        redirect.set_cookie(self._cookie, self.token, httponly=True, samesite="lax")
        return redirect

    def _is_known(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(), self.token.encode())


def is_loopback(host: str) -> bool:
    """Return whether a host is reachable only from this machine."""
    if host.lower() == "localhost":
        return True
    return _is_address(host) and ipaddress.ip_address(host).is_loopback


def _header(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def _cookie(scope: Scope, name: str) -> str:
    return cookie_parser("; ".join(_header(scope, b"cookie"))).get(name, "")


def _has_port(header: str) -> bool:
    return header.rpartition(":")[2].isdigit() and not header.endswith("]")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
