"""What SageMaker does behind CreateTrainingJob, which the emulator does not: the container."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from typing_extensions import Self

from examples.react_to_rules.output import print_line
from infra.local import LocalTarget
from stepwatch import PreparedJob

__all__ = ["Container"]

ROOT = Path(__file__).resolve().parents[2]


class Container:
    """A training in a process of this machine; its end is the end of the job.

    Args:
        prepared: The job.
        arn: Its ARN.
        target: The deployment on this machine.
    """

    def __init__(self, prepared: PreparedJob, arn: str, target: LocalTarget) -> None:
        self._name, self._target = prepared.job_name, target
        platform = {"TRAINING_JOB_NAME": self._name, "TRAINING_JOB_ARN": arn}
        self._environment = {**os.environ, **prepared.environment, **platform}
        self._thread = ThreadPoolExecutor(1)

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "examples.react_to_rules.train"],
            cwd=ROOT,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._ended = self._thread.submit(self._follow)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()  # it has ended already, unless something went wrong
        self._thread.shutdown()

    def wait(self, timeout_s: float) -> str:
        """Wait until the training has ended, and return the job's terminal status.

        Raises:
            TimeoutError: It has not ended in time.
        """
        return self._ended.result(timeout_s)

    def _follow(self) -> str:
        for line in self._process.stdout or ():
            print_line(f"train.py: {line.rstrip()}")
        return self._target.finish_training_job(self._name, self._process.wait())
