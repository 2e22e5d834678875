"""The process inside a function's sandbox: imports the handler, and calls it per request.

`infra.local.sandbox` runs it as a script, with the function's own environment and without this
checkout on its path. It uses only the standard library, and ends when the poller has ended.

Arguments: the handler's dotted path, the descriptor of the connection for requests and responses,
the descriptor whose end of file shows that the poller has ended, and folders to import nothing from
(the checkout, which an editable installation puts on the path).
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

__all__ = ["LambdaContext", "main"]

Handler = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class LambdaContext:
    """A handler's context, named as in Lambda's Python runtime."""

    aws_request_id: str
    deadline_ms: int
    invoked_function_arn: str
    function_name: str = os.environ.get("AWS_LAMBDA_FUNCTION_NAME", "")
    memory_limit_in_mb: str = os.environ.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "128")

    def get_remaining_time_in_millis(self) -> int:
        """Return the milliseconds until the invocation times out."""
        return max(0, self.deadline_ms - time.time_ns() // 1_000_000)


def main(arguments: list[str]) -> None:
    """Serve invocations until the poller goes away."""
    path, channel, lifeline, *excluded = arguments
    threading.Thread(target=_end_with_poller, args=(int(lifeline),), daemon=True).start()
    folders = {str(Path(__file__).parent), *excluded}
    sys.path[:] = [entry for entry in sys.path if entry not in folders]
    connection = Connection(int(channel))
    failure: dict[str, Any] | None = None
    handler: Handler | None = None
    try:
        handler = _import_handler(path)
    except BaseException as error:  # noqa: BLE001 - Lambda reports any error of an import, too
        failure = _describe(error)
    _answer(connection, {"initialised": failure is None})
    while True:
        request = json.loads(connection.recv_bytes())
        _answer(connection, failure or _invoke(handler, request))  # type: ignore[arg-type]


def _import_handler(path: str) -> Handler:
    module, _, name = path.rpartition(".")
    handler: Handler = getattr(importlib.import_module(module.replace("/", ".")), name)
    return handler


def _invoke(handler: Handler, request: dict[str, Any]) -> dict[str, Any]:
    context = LambdaContext(request["request_id"], request["deadline_ms"], request["function_arn"])
    try:
        return {"payload": json.loads(json.dumps(handler(request["event"], context)))}
    except Exception as error:  # noqa: BLE001 - the invocation failed, the sandbox continues
        return _describe(error)


def _describe(error: BaseException) -> dict[str, Any]:
    traceback.print_exc()
    return {
        "error": {
            "errorMessage": str(error),
            "errorType": type(error).__name__,
            "stackTrace": traceback.format_tb(error.__traceback__),
        }
    }


def _answer(connection: Connection, answer: dict[str, Any]) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    connection.send_bytes(json.dumps(answer).encode())


def _end_with_poller(lifeline: int) -> None:
    os.read(lifeline, 1)  # returns when the last process that could write has ended
    os._exit(1)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except EOFError:
        sys.exit(0)
