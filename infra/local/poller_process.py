"""Starts, stops and kills the poller's process."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from infra.local.poller import READY
from infra.local.service_environment import service_environment

__all__ = ["PollerError", "PollerProcess"]

ROOT = Path(__file__).resolve().parent.parent.parent
READY_LIMIT_S = 60
END_LIMIT_S = 5


class PollerError(RuntimeError):
    """The poller did not start; the message contains the end of its log."""


class PollerProcess:
    """A poller in its own session, together with the functions' processes."""

    def __init__(self, endpoint_url: str, workdir: Path, *, retry_delay_s: int = 1) -> None:
        """Describe a poller; `start` starts it.

        `workdir` gets unpacked code and log files. A failed asynchronous invocation is retried
        after `retry_delay_s` seconds.
        """
        self._arguments = ["--endpoint", endpoint_url, "--workdir", str(workdir)]
        self._arguments += ["--retry-delay-s", str(retry_delay_s)]
        own = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
        self._environment = {**own, **service_environment(endpoint_url)}
        self._log = workdir / "poller.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """Whether the process is running."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start polling, and return when it has begun.

        Raises:
            PollerError: It does not begin.
        """
        if self.running:
            return
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", "infra.local.poller", *self._arguments],
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        if not self._wait_until_ready(self._process):
            self.kill()
            raise PollerError(f"the poller did not start: {self._log.read_text()[-2000:]}")

    def kill(self) -> None:
        """Kill the poller and the functions' processes immediately."""
        process, self._process = self._process, None
        if process is None:
            return
        # The process group contains only this poller and its children.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        self._clean_up(process)

    def stop(self) -> None:
        """End the poller and a running invocation, whose events stay in their queues."""
        process = self._process
        if process is None or process.stdin is None:
            return
        process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_LIMIT_S)
        self.kill()

    @staticmethod
    def _clean_up(process: subprocess.Popen[bytes]) -> None:
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()

    @staticmethod
    def _wait_until_ready(process: subprocess.Popen[bytes]) -> bool:
        if process.stdout is None:
            return False
        ends = time.monotonic() + READY_LIMIT_S
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if not selector.select(ends - time.monotonic()):
                return False
        return process.stdout.readline().decode().strip() == READY
