"""The process that calls deployed functions: `python -m infra.local.poller --endpoint URL`.

It does the work of Lambda's own pollers. It reads its configuration from the deployment: the event
source mappings, and the event rules whose targets are functions. It ends with its parent.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from infra.local.asynchronous import AsynchronousInvocations, queue_name
from infra.local.event_source import EventSource
from infra.local.functions import load_function
from infra.local.sandbox import Sandbox
from infra.local.service_environment import client_factory, service_environment

__all__ = ["READY", "Poller", "main"]

READY = "poller: ready"

PARENT_CHECK_S = 0.5
PAUSE_AFTER_ERROR_S = 0.2

logger = logging.getLogger(__name__)


class Poller:
    """Polls all queues of the deployment."""

    def __init__(self, endpoint: str, workdir: Path, *, retry_delay_s: int) -> None:
        """Read the deployment; `workdir` gets unpacked code (`code/`) and log files (`logs/`)."""
        self._environment = service_environment(endpoint)
        self._client = client_factory(endpoint)
        self._workdir = workdir
        self._retry_delay_s = retry_delay_s
        (workdir / "logs").mkdir(parents=True, exist_ok=True)
        self.sandboxes: dict[str, Sandbox] = {}
        self._loops: list[Callable[[], int]] = [*self._event_sources(), *self._asynchronous()]

    def start(self) -> None:
        """Start the functions' processes, and one thread per queue."""
        for sandbox in self.sandboxes.values():
            sandbox.start()
        for loop in self._loops:
            threading.Thread(target=_repeat, args=(loop,), daemon=True).start()

    def _sandbox(self, arn: str) -> Sandbox:
        if arn not in self.sandboxes:
            function = load_function(arn, self._client, self._workdir / "code")
            self.sandboxes[arn] = Sandbox(
                function,
                service_environment=self._environment,
                logs=self._workdir / "logs",
            )
        return self.sandboxes[arn]

    def _event_sources(self) -> Iterator[Callable[[], int]]:
        sqs = self._client("sqs")
        listing = self._client("lambda").get_paginator("list_event_source_mappings")
        for page in listing.paginate():
            for mapping in page["EventSourceMappings"]:
                if mapping["State"] != "Enabled":
                    continue
                name = mapping["EventSourceArn"].rpartition(":")[2]
                url = sqs.get_queue_url(QueueName=name)["QueueUrl"]
                yield EventSource(mapping, url, self._sandbox(mapping["FunctionArn"]), sqs).run_once

    def _asynchronous(self) -> Iterator[Callable[[], int]]:
        sqs = self._client("sqs")
        for arn in sorted(self._functions_of_event_rules()):
            sandbox = self._sandbox(arn)
            url = sqs.create_queue(QueueName=queue_name(sandbox.function.name))["QueueUrl"]
            configuration = self._event_invoke_config(arn)
            yield AsynchronousInvocations(
                url, configuration, sandbox, sqs, retry_delay_s=self._retry_delay_s
            ).run_once

    def _functions_of_event_rules(self) -> set[str]:
        events = self._client("events")
        return {
            target["Arn"]
            for page in events.get_paginator("list_rules").paginate()
            for rule in page["Rules"]
            for target in events.list_targets_by_rule(Rule=rule["Name"])["Targets"]
            if target["Arn"].split(":")[2] == "lambda"
        }

    def _event_invoke_config(self, arn: str) -> dict[str, Any]:
        functions = self._client("lambda")
        try:
            found: dict[str, Any] = functions.get_function_event_invoke_config(FunctionName=arn)
        except functions.exceptions.ResourceNotFoundException:
            return {}
        return found


def _repeat(loop: Callable[[], int]) -> None:
    while True:
        _attempt(loop)


def _attempt(loop: Callable[[], int]) -> None:
    try:
        loop()
    except (BotoCoreError, ClientError) as error:
        logger.warning("poller: %s", error)
        time.sleep(PAUSE_AFTER_ERROR_S)
    except Exception:  # a dead thread would leave its queue full forever
        logger.exception("poller: received messages reappear after their visibility timeout")
        time.sleep(PAUSE_AFTER_ERROR_S)


def _end_with_parent(parent: int) -> None:
    """End this process when the parent closes its pipe or has changed."""
    closed = threading.Event()

    def wait_for_pipe() -> None:
        sys.stdin.buffer.read()
        closed.set()

    threading.Thread(target=wait_for_pipe, daemon=True).start()
    while not closed.wait(PARENT_CHECK_S):
        if os.getppid() != parent:
            break
    os._exit(0)  # the functions' processes end with this one


def main(arguments: list[str] | None = None) -> None:
    """Poll until the parent process ends."""
    parent = os.getppid()
    parser = argparse.ArgumentParser(prog="python -m infra.local.poller", description=main.__doc__)
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--workdir", type=Path, required=True)
    parser.add_argument("--retry-delay-s", type=int, required=True)
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    Poller(options.endpoint, options.workdir, retry_delay_s=options.retry_delay_s).start()
    print(READY, flush=True)  # noqa: T201
    _end_with_parent(parent)


if __name__ == "__main__":
    main()
