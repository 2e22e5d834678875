"""One training job of the demo: the process, what it prints, and how it ended."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Job"]

ROOT = Path(__file__).resolve().parents[2]
_STEP = re.compile(r"step (?P<step>\d+)/(?P<num_steps>\d+)(?: loss (?P<loss>\S+))?")


@dataclass
class Job:
    """A training script in a process of its own.

    Attributes:
        name: Name of the training job.
        step: Last step that the script reported.
        num_steps: How many steps it was going to make.
        loss: Last loss that the script reported.
        last_line: What the script printed last.
        end: The line in which the script said how its loop ended.
    """

    name: str
    learning_rate: float
    epochs: int
    step: int = 0
    num_steps: int = 0
    loss: str = ""
    last_line: str = ""
    end: str = ""
    _process: subprocess.Popen[str] | None = None
    _reader: threading.Thread | None = None
    _output: list[str] = field(default_factory=list)

    def start(self, out_dir: str, environment: dict[str, str]) -> None:
        """Start training, with tensors going to `out_dir`."""
        command = [sys.executable, "-m", "examples.demo.train", "--out-dir", out_dir]
        command += ["--learning-rate", str(self.learning_rate), "--epochs", str(self.epochs)]
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **environment, "TRAINING_JOB_NAME": self.name},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def poll(self) -> int | None:
        """Return the exit status once the process ended, else None."""
        if self._process is None:
            return None
        status = self._process.poll()
        if status is not None and self._reader is not None:
            self._reader.join()
        return status

    def kill(self) -> None:
        """End the process if it still runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    @property
    def was_stopped(self) -> bool:
        """Whether the script's own loop ended on request."""
        return self.end.startswith("stopped at step")

    @property
    def output(self) -> str:
        """Everything that the script printed."""
        return "".join(self._output)

    def _read(self) -> None:
        if self._process is None or self._process.stdout is None:
            return
        for line in self._process.stdout:
            self._output.append(line)
            self.last_line = line.strip() or self.last_line
            if line.startswith(("stopped at step", "finished at step")):
                self.end = line.strip()
            found = _STEP.search(line)
            if found:
                self.step, self.num_steps = int(found["step"]), int(found["num_steps"])
                self.loss = found["loss"] or self.loss
