"""Sandboxes: each function runs in its own process, which is reused between invocations."""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
import threading
import time
import uuid
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from infra.local.functions import DeployedFunction

__all__ = ["Invocation", "Sandbox"]

logger = logging.getLogger(__name__)

CHECKOUT = Path(__file__).resolve().parent.parent.parent
WORKER = Path(__file__).with_name("worker.py")
INITIALISATION_LIMIT_S = 300
"""10 on AWS. Here all functions start together on a few processors. One that is ended during its
imports would start again, and none would ever be ready."""
LOG_GROUP = "/aws/lambda"


@dataclass(frozen=True)
class Invocation:
    """The result of one invocation; `error` is Lambda's description of a failure."""

    request_id: str
    payload: Any = None
    error: dict[str, Any] | None = None


class Sandbox:
    """Runs one function, one invocation at a time.

    A process that crashes or exceeds the function's timeout is replaced, and its invocation fails.
    """

    def __init__(
        self, function: DeployedFunction, *, service_environment: dict[str, str], logs: Path
    ) -> None:
        """Prepare a sandbox; `start` or the first invocation starts its process.

        `service_environment` contains endpoint, credentials and Region of the services. The log
        file in `logs` is `<name>.log`.
        """
        self.function = function
        self._environment = self._variables(service_environment)
        self._log = logs / f"{function.name}.log"
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._lifeline = -1
        self._initialised = False

    def start(self) -> None:
        """Start the process without waiting for the handler's import."""
        with self._lock:
            self._ensure_process()

    def invoke(self, event: Any) -> Invocation:
        """Call the handler with an event, and wait for the result."""
        request_id = str(uuid.uuid4())
        with self._lock:
            try:
                answer = self._exchange(event, request_id)
            except TimeoutError as error:
                self._discard()
                answer = _failure("Sandbox.Timedout", str(error))
            except (EOFError, OSError):
                status = self._discard()
                answer = _failure("Runtime.ExitError", f"the process ended with {status}")
        if "error" in answer:
            logger.warning("%s failed: %s", self.function.name, answer["error"]["errorMessage"])
            return Invocation(request_id, error=answer["error"])
        return Invocation(request_id, payload=answer["payload"])

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._discard()

    def _exchange(self, event: Any, request_id: str) -> dict[str, Any]:
        self._ensure_process()
        if not self._initialised:
            self._receive(INITIALISATION_LIMIT_S, "initialising")
            self._initialised = True
        timeout_s = self.function.timeout_s
        request = {
            "event": event,
            "request_id": request_id,
            "deadline_ms": time.time_ns() // 1_000_000 + timeout_s * 1000,
            "function_arn": self.function.arn,
        }
        if self._connection is None:
            raise EOFError
        self._connection.send_bytes(json.dumps(request).encode())
        return self._receive(timeout_s, request_id)

    def _receive(self, limit_s: float, what: str) -> dict[str, Any]:
        if self._connection is None:
            raise EOFError
        if not self._connection.poll(limit_s):
            raise TimeoutError(f"{what}: Task timed out after {limit_s:.2f} seconds")
        answer: dict[str, Any] = json.loads(self._connection.recv_bytes())
        return answer

    def _ensure_process(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self._discard()
        ours, theirs = socket.socketpair()
        read_end, self._lifeline = os.pipe()
        arguments = [self.function.handler, str(theirs.fileno()), str(read_end), str(CHECKOUT)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603
                [sys.executable, str(WORKER), *arguments],
                env=self._environment,
                cwd=self.function.code,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=(theirs.fileno(), read_end),
            )
        theirs.close()
        os.close(read_end)
        self._connection = Connection(ours.detach())
        self._initialised = False

    def _discard(self) -> int | None:
        status = None
        if self._process is not None:
            self._process.kill()
            status = self._process.wait()
            self._process = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
        return status

    def _variables(self, service_environment: dict[str, str]) -> dict[str, str]:
        function = self.function
        folders = [function.code, *(layer / "python" for layer in function.layers)]
        return {
            "PATH": os.environ.get("PATH", ""),
            "LANG": "en_US.UTF-8",
            "TZ": ":UTC",
            # A function of up to 1,769 MB has at most one CPU.
            "OPENBLAS_NUM_THREADS": "1",
            **service_environment,
            # The key distinguishes the functions' requests, like their roles on AWS.
            "AWS_ACCESS_KEY_ID": function.name,
            "AWS_LAMBDA_FUNCTION_NAME": function.name,
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function.memory_mb),
            "AWS_LAMBDA_LOG_GROUP_NAME": f"{LOG_GROUP}/{function.name}",
            "AWS_LAMBDA_LOG_STREAM_NAME": "local",
            "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
            "LAMBDA_TASK_ROOT": str(function.code),
            "_HANDLER": function.handler,
            "PYTHONPATH": os.pathsep.join(map(str, folders)),
            "PYTHONUNBUFFERED": "1",
            **function.environment,
        }


def _failure(error_type: str, message: str) -> dict[str, Any]:
    return {"error": {"errorType": error_type, "errorMessage": message}}
