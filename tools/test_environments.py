"""Run the tests that need an environment of their own, each session in the environment for it.

`python -m tools.test_environments` runs all sessions and prints the summary of each, and the
output of a failed one. A session begins beside another one only while a core is idle. Then it
checks the table in hook_layer/ADAPTERS.md; `--write` writes it.
`python -m tools.test_environments NAME...` runs some sessions and leaves the table out.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

from tools import contract_table

__all__ = ["MARKER", "SESSIONS", "Session", "Turns", "main", "run", "without_session"]

ROOT: Final = Path(__file__).resolve().parents[1]
TESTS: Final = Path("tests")
FRAMEWORKS: Final = TESTS / "frameworks"
OUTPUT: Final = ROOT / ".build" / "sessions"
MARKER: Final = "other_environment"
"""Marks tests outside tests/frameworks that a session runs, and `make test` does not."""
TIMEOUT_S: Final = 1800
AT_A_TIME: Final = 2
IDLE_CORES: Final = 0.5
"""A session uses a whole core most of the time: with less idle, it would slow others down."""
IDLE_S: Final = 5.0
"""How long that has to last: tests wait for moments, too."""

_ENVIRONMENT: Final = {
    # Tests compile the same small models again and again.
    "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".build" / "jax"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    # Sessions run at the same time: threads of one would only wait for those of the other.
    "OMP_NUM_THREADS": "1",
    # Empty means unset: otherwise fifty processes would each compile a framework's sources.
    "PYTHONDONTWRITEBYTECODE": "",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_NUM_INTEROP_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
}


@dataclass(frozen=True)
class Session:
    """One run of pytest.

    Attributes:
        name: Its name.
        environment: Kind of the environment, as in tools/setup_environment.py. "dev" is the
            checkout's own, for tests that start processes in other environments.
        paths: What it runs, below tests/.
        variables: Environment variables that it runs with.
    """

    name: str
    environment: str
    paths: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def results(self) -> Path | None:
        """Where it writes how adapters keep the contract; None if it tests no adapter."""
        is_of_adapters = all(path.startswith("frameworks/") for path in self.paths)
        return OUTPUT / f"{self.name}.json" if is_of_adapters else None

    def command(self, root: Path = ROOT) -> list[str]:
        """Return the command that runs it.

        Args:
            root: The checkout.
        """
        folder = ".venv" if self.environment == "dev" else f".venv-{self.environment}"
        options = ["-q", "-p", "no:cacheprovider"]
        options += ["-m", MARKER] if self.results is None else []
        options += ["--contract-results", str(self.results)] if self.results else []
        paths = [f"{TESTS}/{path}" for path in self.paths]
        return [str(root / folder / "bin" / "python"), "-m", "pytest", *options, *paths]


def _frameworks(
    name: str, *paths: str, environment: str = "frameworks", **variables: str
) -> Session:
    return Session(name, environment, tuple(f"frameworks/{path}" for path in paths), variables)


def _keras(backend: str) -> Session:
    return _frameworks(f"keras-{backend}", "keras", "contract/test_keras.py", KERAS_BACKEND=backend)


INTEROP: Final = (
    "interop",
    "hook_layer/configuration/test_hook_json_interop.py",
    "hook_layer/test_smdebug_api.py",
    "rule_runtime/trial/test_smdebug_trial_api.py",
)

SESSIONS: Final = (
    _keras("tensorflow"),
    _keras("jax"),
    _frameworks("unchanged", "unchanged"),
    _frameworks("loggers", "loggers"),
    Session("interop", "dev", INTEROP),
    Session("sagemaker", "dev", ("sagemaker_sdk",)),
    Session("oldest", "dev", ("architecture/test_oldest.py",)),
    _frameworks("mxnet", "mxnet", "contract/test_mxnet.py", environment="mxnet"),
    _keras("torch"),
    Session("pipeline-keras", "dev", ("e2e/test_unchanged_keras.py",)),
    _frameworks("tensorflow", "tensorflow", "contract/test_tensorflow.py"),
    _frameworks(
        "trainers", "trainers", "contract/test_lightning.py", "contract/test_huggingface.py"
    ),
    _frameworks("pytorch-xgboost", "contract/test_pytorch.py", "contract/test_xgboost.py"),
)
"""All sessions, the longest first."""


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.test_environments", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the table of adapters")
    parser.add_argument("--at-a-time", type=int, default=AT_A_TIME, help="sessions at most")
    names = [session.name for session in SESSIONS]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}")
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(names):
        parser.error(f"no session is called {', '.join(sorted(unknown))}")
    lost = without_session(ROOT)
    if lost:
        print(f"no session runs {', '.join(lost)}: add it to SESSIONS", file=sys.stderr)
        return 1
    chosen = [session for session in SESSIONS if not options.names or session.name in options.names]
    OUTPUT.mkdir(parents=True, exist_ok=True)
    turns = Turns(idle_cores)
    with ThreadPoolExecutor(options.at_a_time) as pool:
        failed = [name for name, is_good in pool.map(turns.run, chosen) if not is_good]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
        return 1
    if options.names:
        return 0
    check = [] if options.write else ["--check"]
    results = [str(session.results) for session in SESSIONS if session.results]
    return contract_table.main([*check, *results])


def without_session(root: Path, sessions: Iterable[Session] = SESSIONS) -> list[str]:
    """Return the test files that neither `make test` nor a session runs.

    Args:
        root: The checkout.
        sessions: All sessions.
    """
    run = [root / TESTS / path for session in sessions for path in session.paths]
    files = sorted((root / TESTS).rglob("test_*.py"))
    return [
        str(file.relative_to(root))
        for file in files
        if root / FRAMEWORKS in file.parents or f"pytest.mark.{MARKER}\n" in file.read_text()
        if not any(file == path or path in file.parents for path in run)
    ]


def idle_cores() -> float:
    """Return how many cores are idle, over some seconds."""
    return (1 - psutil.cpu_percent(IDLE_S) / 100) * psutil.cpu_count()


class Turns:
    """Decides when a session may begin: alone at once, beside another one while a core is idle.

    Args:
        idle_cores: Measures how many cores are idle.
    """

    def __init__(self, idle_cores: Callable[[], float]) -> None:
        self._idle_cores = idle_cores
        self._begin = threading.Lock()
        self._running: list[str] = []

    def run(self, session: Session) -> tuple[str, bool]:
        """Run a session when its turn comes; return what `run` returns."""
        with self._begin:
            while self._running and self._idle_cores() < IDLE_CORES:
                pass
            self._running.append(session.name)
        try:
            return run(session)
        finally:
            self._running.remove(session.name)


def run(session: Session) -> tuple[str, bool]:
    """Run a session, print its summary, and return its name and whether it passed.

    Args:
        session: The session. It fails if no test passed.
    """
    log = OUTPUT / f"{session.name}.log"
    if session.results:
        session.results.unlink(missing_ok=True)
    started = time.monotonic()
    with log.open("wb") as file:
        try:
            status: int | str = subprocess.run(
                session.command(),
                cwd=ROOT,
                env={**os.environ, **_ENVIRONMENT, **session.variables},
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=TIMEOUT_S,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            status = f"no end within {TIMEOUT_S} s"
        except OSError as error:
            status = f"{error}: run `make setup-all`"
    lines = log.read_text(errors="replace").splitlines()
    seconds = time.monotonic() - started
    is_good = status == 0 and bool(lines) and " passed" in lines[-1]
    said = lines[-1:] if is_good else [f"status {status}", *lines]
    print(f"{session.name} ({seconds:.0f} s): " + "\n".join(said), flush=True)
    return session.name, is_good


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
