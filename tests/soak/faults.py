"""Failing services: a share of what the functions ask of S3, DynamoDB and EventBridge goes wrong.

It stands in front of the emulator and answers as the services do, so that nothing of the product is
replaced: SDK and functions see real answers, or none. Whose request it is tells the access key; the
training jobs and the checks have another one, and are left alone.
"""

from __future__ import annotations

import io
import json
import random
import re
import socket
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from infra.local.emulator import StartResponse, WsgiApplication
from infra.local.service_environment import CREDENTIAL

SERVICES = ("s3", "dynamodb", "events")
LASTING = 0.1
"""Share of the calls that meet a fault at the first attempt of which every later one fails, too."""
SILENCE_S = 12.0
"""Longer than the functions wait for an answer."""

_CREDENTIAL = re.compile(r"Credential=([^/]+)/\d+/[^/]+/([^/]+)/")


class Fault(Enum):
    """What becomes of a request."""

    THROTTLED = "throttled"
    BROKEN = "error 500"
    BROKEN_AFTERWARDS = "error 500, carried out"
    CUT_OFF = "connection lost"
    CUT_OFF_AFTERWARDS = "connection lost, carried out"
    SILENT = "no answer"
    REFUSED_ENTRY = "entry refused"

    @property
    def is_carried_out(self) -> bool:
        """Whether the service does what it was asked to, all the same."""
        return self in (Fault.BROKEN_AFTERWARDS, Fault.CUT_OFF_AFTERWARDS)


_WEIGHTS = {
    Fault.THROTTLED: 30,
    Fault.BROKEN: 19,
    Fault.BROKEN_AFTERWARDS: 20,
    Fault.CUT_OFF: 15,
    Fault.CUT_OFF_AFTERWARDS: 15,
    Fault.SILENT: 1,
}
_REFUSED_ENTRIES = 20
"""Weight of an answer of EventBridge that is one of success, and has a failed entry in it."""


@dataclass(frozen=True)
class Request:
    """A request of a function.

    Attributes:
        service: Name of the service.
        call: Id of the call, which all attempts at it share.
        attempt: Number of the attempt.
    """

    service: str
    call: str
    attempt: int = 1

    @classmethod
    def of(cls, environ: dict[str, Any]) -> Request | None:
        """Return what a request is, None if it is no function's, or asks another service."""
        found = _CREDENTIAL.search(environ.get("HTTP_AUTHORIZATION", ""))
        if found is None or found[1] == CREDENTIAL or found[2] not in SERVICES:
            return None
        attempt = re.search(r"attempt=(\d+)", environ.get("HTTP_AMZ_SDK_REQUEST", ""))
        call = environ.get("HTTP_AMZ_SDK_INVOCATION_ID", "")
        return cls(found[2], call, int(attempt[1]) if attempt else 1)


@dataclass
class ServiceCounts:
    """What became of the requests to one service.

    Attributes:
        requests: All requests of functions.
        faults: Requests by what went wrong with them.
        lasting: Calls of which every attempt failed.
    """

    requests: int = 0
    faults: Counter[Fault] = field(default_factory=Counter)
    lasting: int = 0


class Misfortune:
    """Draws which requests fail, and keeps count.

    The draws come from the seed; which request gets which of them depends on how the functions take
    turns.

    Args:
        seed: Seed of the draws.
        share: Share of the requests that fail, from 0 to 1.
    """

    def __init__(self, seed: int, share: float) -> None:
        self.counts = {service: ServiceCounts() for service in SERVICES}
        self._random = random.Random(f"faults {seed}")
        self._share = share
        # A lasting fault is so many requests; the calls that begin one are fewer accordingly.
        self._begins = share / (1 + 3 * LASTING)
        self._lasting: dict[str, Fault] = {}
        self._lock = threading.Lock()

    @property
    def num_requests(self) -> int:
        """Requests of the functions so far."""
        return sum(counts.requests for counts in self.counts.values())

    def fault_of(self, request: Request) -> Fault | None:
        """Return what goes wrong with a request, None if nothing does."""
        with self._lock:
            counts = self.counts[request.service]
            counts.requests += 1
            fault = self._lasting.get(request.call)
            if fault is None and self._random.random() < self._begins:
                fault = self._drawn(request.service)
                if request.attempt == 1 and request.call and self._random.random() < LASTING:
                    self._lasting[request.call] = fault
                    counts.lasting += 1
            if fault is not None:
                counts.faults[fault] += 1
            return fault

    def _drawn(self, service: str) -> Fault:
        weights = dict(_WEIGHTS)
        if service == "events":
            weights[Fault.REFUSED_ENTRY] = _REFUSED_ENTRIES
        return self._random.choices(list(weights), list(weights.values()))[0]


class FaultyServices:
    """The emulator's application behind one that lets requests fail.

    Args:
        application: The emulator's.
        misfortune: Which requests fail.
    """

    def __init__(self, application: WsgiApplication, misfortune: Misfortune) -> None:
        self._application = application
        self._misfortune = misfortune
        self._silence = threading.Event()

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        request = Request.of(environ)
        fault = None if request is None else self._misfortune.fault_of(request)
        if request is None or fault is None:
            return self._application(environ, start_response)
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        if fault.is_carried_out:
            environ["wsgi.input"] = io.BytesIO(body)
            self._carry_out(environ)
        if fault is Fault.SILENT:
            self._silence.wait(SILENCE_S)
        if fault in (Fault.CUT_OFF, Fault.CUT_OFF_AFTERWARDS, Fault.SILENT):
            # Else the server waits for the next request on the same connection.
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise ConnectionAbortedError("the answer is lost")  # which the server takes for normal
        status, content_type, answer = _answer(request.service, fault, body)
        headers = [("Content-Type", content_type), ("Content-Length", str(len(answer)))]
        start_response(status, headers)
        return [b"" if environ["REQUEST_METHOD"] == "HEAD" else answer]

    def _carry_out(self, environ: dict[str, Any]) -> None:
        answer = self._application(environ, lambda *_: lambda _: None)
        for _ in answer:
            pass
        getattr(answer, "close", lambda: None)()


def _answer(service: str, fault: Fault, body: bytes) -> tuple[str, str, bytes]:
    """Return status, content type and content of what a service answers."""
    if fault is Fault.REFUSED_ENTRY:
        entries = len(json.loads(body)["Entries"])
        refused = {"ErrorCode": "InternalFailure", "ErrorMessage": "Try again."}
        content = {"FailedEntryCount": entries, "Entries": [refused] * entries}
        return "200 OK", "application/x-amz-json-1.1", json.dumps(content).encode()
    is_throttled = fault is Fault.THROTTLED
    if service == "s3":
        status = "503 Slow Down" if is_throttled else "500 Internal Server Error"
        code = "SlowDown" if is_throttled else "InternalError"
        text = f"<Error><Code>{code}</Code><Message>Try again.</Message></Error>"
        return status, "application/xml", text.encode()
    throttling = {"dynamodb": "ProvisionedThroughputExceededException"}
    code = throttling.get(service, "ThrottlingException") if is_throttled else "InternalServerError"
    status = "400 Bad Request" if is_throttled else "500 Internal Server Error"
    content = {"__type": f"com.amazonaws.{service}#{code}", "message": "Try again."}
    return status, "application/x-amz-json-1.0", json.dumps(content).encode()
