"""Run the tests of the adapters for frameworks, each session in the environment made for it.

`python -m tools.test_frameworks` runs all sessions, two at a time, prints the summary of each, and
the whole of what a failed one said; then it checks the table in hook_layer/ADAPTERS.md, or writes
it (`--write`). `python -m tools.test_frameworks NAME...` runs some of the sessions, and looks at no
table.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tools import contract_table

__all__ = ["SESSIONS", "Session", "main", "without_session"]

ROOT: Final = Path(__file__).resolve().parents[1]
TESTS: Final = Path("tests/frameworks")
OUTPUT: Final = ROOT / ".build" / "frameworks"
TIMEOUT_S: Final = 900
AT_A_TIME: Final = 2

_ENVIRONMENT: Final = {
    # Sessions run beside each other: threads of one would only wait for those of the other.
    "OMP_NUM_THREADS": "1",
    # As if it were not set: else some fifty processes would each compile a framework's sources.
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
        environment: Kind of the environment, as in tools/setup_environment.py.
        paths: What it runs, below tests/frameworks.
        variables: Environment variables that it runs with.
    """

    name: str
    environment: str
    paths: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def results(self) -> Path:
        """Where it writes how adapters keep the contract."""
        return OUTPUT / f"{self.name}.json"

    def command(self, root: Path = ROOT) -> list[str]:
        """Return the command that runs it.

        Args:
            root: The checkout.
        """
        python = root / f".venv-{self.environment}" / "bin" / "python"
        options = ["-q", "-p", "no:cacheprovider", "--contract-results", str(self.results)]
        return [str(python), "-m", "pytest", *options, *(f"{TESTS}/{path}" for path in self.paths)]


def _keras(backend: str) -> Session:
    paths = ("keras", "contract/test_keras.py")
    return Session(f"keras-{backend}", "frameworks", paths, {"KERAS_BACKEND": backend})


SESSIONS: Final = (
    _keras("tensorflow"),
    _keras("jax"),
    Session("unchanged", "frameworks", ("unchanged",)),
    Session("mxnet", "mxnet", ("mxnet", "contract/test_mxnet.py")),
    _keras("torch"),
    Session("tensorflow", "frameworks", ("tensorflow", "contract/test_tensorflow.py")),
    Session(
        "trainers",
        "frameworks",
        ("trainers", "contract/test_lightning.py", "contract/test_huggingface.py"),
    ),
    Session(
        "pytorch-xgboost", "frameworks", ("contract/test_pytorch.py", "contract/test_xgboost.py")
    ),
)
"""All sessions, those first that take long."""


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.test_frameworks", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the table of adapters")
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
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        failed = [name for name, is_good in pool.map(_run, chosen) if not is_good]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
        return 1
    if options.names:
        return 0
    check = [] if options.write else ["--check"]
    return contract_table.main([*check, *(str(session.results) for session in SESSIONS)])


def without_session(root: Path, sessions: Iterable[Session] = SESSIONS) -> list[str]:
    """Return the test files below tests/frameworks that no session runs.

    Args:
        root: The checkout.
        sessions: All sessions.
    """
    run = [root / TESTS / path for session in sessions for path in session.paths]
    files = sorted((root / TESTS).rglob("test_*.py"))
    return [
        str(file.relative_to(root))
        for file in files
        if not any(file == path or path in file.parents for path in run)
    ]


def _run(session: Session) -> tuple[str, bool]:
    """Run a session, print how it went, and return its name and whether it passed."""
    log = OUTPUT / f"{session.name}.log"
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
            status = f"{error}: run `make setup`"
    lines = log.read_text(errors="replace").splitlines()
    seconds = time.monotonic() - started
    is_good = status == 0
    said = lines[-1:] if is_good else [f"status {status}", *lines]
    print(f"{session.name} ({seconds:.0f} s): " + "\n".join(said), flush=True)
    return session.name, is_good


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
