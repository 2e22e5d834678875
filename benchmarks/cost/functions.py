"""The functions' handlers in this process, each as many times as Lambda runs it."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Final

from benchmarks.cost.deployment import Evaluator
from lambdas.contracts import environment

__all__ = [
    "BUCKET",
    "REGION",
    "SURROUNDINGS",
    "TABLE",
    "Functions",
    "now_text",
    "object_created",
    "queue_url",
]

BUCKET: Final = "tensors"
TABLE: Final = "states"
REGION: Final = "us-east-1"
_LAMBDAS: Final = Path(__file__).resolve().parents[2] / "lambdas"
_TEST_EVENT: Final = _LAMBDAS / "contracts" / "test_events" / "evaluate_rule.json"
_RECORD: Final[dict[str, Any]] = json.loads(_TEST_EVENT.read_text())["Records"][0]
SURROUNDINGS: Final = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": REGION,
    environment.STATE_TABLE_NAME: TABLE,
    environment.TENSOR_BUCKET_NAMES: BUCKET,
}
"""Environment variables that all functions have here."""
_CONTEXT: Final = SimpleNamespace(
    function_name="function",
    memory_limit_in_mb=512,
    invoked_function_arn=f"arn:aws:lambda:{REGION}:123456789012:function:function",
    aws_request_id="52fdfc07-2182-154f-163f-5f0f9a621d72",
    get_remaining_time_in_millis=lambda: 60_000,
)


@dataclass
class Functions:
    """Calls handlers; each process of a function has the handler's module to itself.

    Attributes:
        queue_urls: The evaluators' queues by the evaluators' names.
        metrics: Namespace, dimensions and name of each metric that was written.
    """

    queue_urls: Mapping[str, str]
    metrics: set[tuple[str, ...]] = field(default_factory=set)
    _processes: dict[tuple[str, int], ModuleType] = field(default_factory=dict)
    _lines: io.StringIO = field(default_factory=io.StringIO)
    _log_bytes: int = 0
    _at: float = 0.0

    @property
    def log_bytes(self) -> int:
        """Length of what the functions have written to their logs so far."""
        return self._log_bytes

    def evaluate(
        self, evaluator: Evaluator, process: int, bodies: Iterable[str], at: float
    ) -> None:
        """Call an evaluator.

        Args:
            evaluator: The evaluator.
            process: Number of its process.
            bodies: Bodies of the messages.
            at: What its clock shows, seconds since the epoch.

        Raises:
            RuntimeError: A message was not dealt with.
        """
        variables = dict(evaluator.variables)
        variables[environment.QUEUE_URL] = self.queue_urls[evaluator.name]
        # The limit goes by real time, in which minutes of a simulation pass at once.
        variables[environment.JOB_FILES_PER_MINUTE] = "1000000"
        event = {
            "Records": [
                {**_RECORD, "messageId": str(n), "body": body} for n, body in enumerate(bodies)
            ]
        }
        name = ("evaluate_rule", evaluator.name, process)
        self._set_clock(name, at)
        answer = self._call(name, variables, event)
        if answer["batchItemFailures"]:
            raise RuntimeError(f"{evaluator.name} could not evaluate {answer['batchItemFailures']}")

    def finish(self, event: Mapping[str, Any]) -> None:
        """Call the function that finishes jobs."""
        self._call(("finish_job", "", 0), self._queues(), event)

    def sweep(self, now: float) -> None:
        """Call the function that looks after quiet runs.

        Args:
            now: What its clock shows, seconds since the epoch.
        """
        self._set_clock(("sweep", "", 0), now)
        self._call(("sweep", "", 0), self._queues(), {})

    def _set_clock(self, process: tuple[str, str, int], at: float) -> None:
        self._at = at
        self._module(process).__dict__["_now"] = lambda: self._at

    def _queues(self) -> dict[str, str]:
        return {environment.RULE_QUEUE_URLS: json.dumps(self.queue_urls)}

    def _call(
        self, process: tuple[str, str, int], variables: Mapping[str, str], event: Mapping[str, Any]
    ) -> Any:
        before = dict(os.environ)
        os.environ.update(SURROUNDINGS | dict(variables))
        try:
            with redirect_stdout(self._lines):
                answer = self._module(process).__dict__["lambda_handler"](event, _CONTEXT)
        finally:
            os.environ.clear()
            os.environ.update(before)
        self._read_lines()
        return answer

    def _read_lines(self) -> None:
        """Measure what was written, and note its metrics."""
        text = self._lines.getvalue()
        self._log_bytes += len(text.encode())
        for line in text.splitlines():
            for block in json.loads(line).get("_aws", {}).get("CloudWatchMetrics", []):
                content = json.loads(line)
                names = sorted(name for group in block["Dimensions"] for name in group)
                dimensions = [str(content[name]) for name in names]
                self.metrics |= {
                    (block["Namespace"], *dimensions, metric["Name"]) for metric in block["Metrics"]
                }
        self._lines.seek(0)
        self._lines.truncate()

    def _module(self, process: tuple[str, str, int]) -> ModuleType:
        function, rule, number = process
        key = (f"{function}/{rule}", number)
        if key not in self._processes:
            name = f"lambdas.{function}.handler_of_{len(self._processes)}"
            path = _LAMBDAS / function / "handler.py"
            spec = importlib.util.spec_from_file_location(name, path)
            if spec is None or spec.loader is None:
                raise ImportError(f"{path} cannot be loaded")
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module  # dataclasses look their module up
            spec.loader.exec_module(module)
            self._processes[key] = module
        return self._processes[key]


def queue_url(number: int) -> str:
    """Return the URL of a queue."""
    return f"https://sqs.{REGION}.amazonaws.com/123456789012/queue-{number}"


def now_text() -> str:
    """Return the time, ISO 8601."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def object_created(key: str) -> str:
    """Return the body of the message that an event of S3 becomes."""
    event = json.loads(_RECORD["body"])
    event |= {"time": now_text(), "region": REGION, "resources": [f"arn:aws:s3:::{BUCKET}"]}
    event["detail"]["bucket"]["name"] = BUCKET
    event["detail"]["object"]["key"] = key
    return json.dumps(event)
