"""Builds the assets of the functions, without Docker.

* The function asset is the package `lambdas`.
* The layer asset is `python/` with `hook_layer`, `rule_runtime` and their third-party packages for
  the platform of the functions, and a bill of materials. boto3 is part of the runtime.

Third-party wheels need the network once: `python -m infra.packaging` puts them into `.build/`,
verified with the digests in layer-requirements.txt. Later synthesis only copies files, so it works
offline. Folder names contain the digest of their content.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from infra.bill_of_materials import BILL_NAME, bill_of_materials
from infra.build_folder import BUILD, publish, reuse

__all__ = [
    "PYTHON_VERSION",
    "PackagingError",
    "digest_folder",
    "prepare_wheels",
    "stage_function",
    "stage_layer",
]

ROOT = Path(__file__).resolve().parent.parent
LAYER_REQUIREMENTS = ROOT / "infra" / "layer-requirements.txt"

PYTHON_VERSION = "3.14"
"""Python of the functions' runtime."""

# Amazon Linux 2023, the base of every runtime since Python 3.12, has glibc 2.34.
PLATFORMS = {"arm64": "aarch64-manylinux_2_28", "x86_64": "x86_64-manylinux_2_28"}
OWN_PACKAGES = ("hook_layer", "rule_runtime", "stepwatch")

# Parts of wheels that no function imports; they are half of numpy's files.
UNUSED = (
    *("bin", "**/__pycache__", "**/*.pyi", "numpy/**/tests", "numpy/f2py", "numpy/_core/include"),
    *("numpy/_core/lib", "numpy/random/lib", "numpy/random/_examples", "numpy/_pyinstaller"),
)
UNUSED_ROWS = "bin/"
"""Rows of RECORD to remove: the digests of scripts depend on the path of the interpreter."""
NOT_PACKAGED = shutil.ignore_patterns(
    "__pycache__", "*.pyc", "testing", "README.md", "schemas", "test_events"
)


class PackagingError(RuntimeError):
    """An asset cannot be built; the message says what to run."""


def prepare_wheels(architecture: str) -> Path:
    """Return the folder of third-party packages, built at the first call.

    Raises:
        PackagingError: The installer cannot get the wheels.
    """
    folder = _wheels_folder(architecture)
    if reuse(folder):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        target = Path(temporary) / "python"
        _install(target, architecture)
        for pattern in UNUSED:
            for path in sorted(target.glob(pattern)):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        for record in target.glob("*.dist-info/RECORD"):
            rows = record.read_text(encoding="utf-8").splitlines(keepends=True)
            kept = "".join(row for row in rows if not row.startswith(UNUSED_ROWS))
            record.write_text(kept, encoding="utf-8")
        publish(target, folder)
    return folder


def stage_function() -> Path:
    """Return a folder with the package `lambdas` for upload."""
    with _staging() as temporary:
        shutil.copytree(ROOT / "lambdas", temporary / "lambdas", ignore=NOT_PACKAGED)
        return _settle(temporary, "function")


def stage_layer(architecture: str, *, with_wheels: bool = True) -> Path:
    """Return a folder with the layer for upload.

    The local target omits third-party packages, because its interpreter has them.

    Raises:
        PackagingError: The third-party packages were not prepared.
    """
    with _staging() as temporary:
        python = temporary / "python"
        if with_wheels:
            wheels = _wheels_folder(architecture)
            if not reuse(wheels):
                raise PackagingError(
                    f"the layer's packages for {architecture} are missing in {wheels}. With "
                    "network, run .venv/bin/python -m infra.packaging --architecture "
                    f"{architecture}"
                )
            shutil.copytree(wheels, python, copy_function=_link_or_copy)
            bill = bill_of_materials(wheels)
            (temporary / BILL_NAME).write_text(bill, encoding="utf-8")
        for package in OWN_PACKAGES:
            shutil.copytree(ROOT / package, python / package, ignore=NOT_PACKAGED)
        return _settle(temporary, f"layer-{architecture}" if with_wheels else "layer-local")


def digest_folder(folder: Path) -> str:
    """Return a digest of the names and contents of all files under a folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            name = path.relative_to(folder).as_posix()
            digest.update(f"{name}\n{len(content)}\n".encode())
            digest.update(content)
    return digest.hexdigest()


def _wheels_folder(architecture: str) -> Path:
    requirements = LAYER_REQUIREMENTS.read_text(encoding="utf-8")
    wanted = "\n".join([PYTHON_VERSION, PLATFORMS[architecture], *UNUSED, UNUSED_ROWS])
    wanted += f"\n{requirements}"
    return BUILD / f"wheels-{architecture}-{hashlib.sha256(wanted.encode()).hexdigest()[:16]}"


def _install(target: Path, architecture: str) -> None:
    command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--target", str(target)]
    command += ["--python-platform", PLATFORMS[architecture], "--python-version", PYTHON_VERSION]
    command += ["--only-binary", ":all:", "--require-hashes", "-r", str(LAYER_REQUIREMENTS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode != 0:
        raise PackagingError(
            f"the layer's packages for {architecture} cannot be installed: {done.stderr.strip()}"
        )


@contextmanager
def _staging() -> Iterator[Path]:
    """Create a temporary folder beside the staged assets, so that it can be renamed."""
    BUILD.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=BUILD))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without hard links
        shutil.copy2(source, target)


def _settle(temporary: Path, name: str) -> Path:
    folder = BUILD / "assets" / f"{name}-{digest_folder(temporary)[:32]}"
    publish(temporary, folder)
    return folder


def main(arguments: list[str] | None = None) -> None:
    """Prepare the third-party packages of one architecture."""
    parser = argparse.ArgumentParser(prog="python -m infra.packaging", description=main.__doc__)
    parser.add_argument("--architecture", choices=sorted(PLATFORMS), default="arm64")
    architecture = parser.parse_args(arguments).architecture
    try:
        folder = prepare_wheels(architecture)
    except PackagingError as error:
        sys.exit(f"packaging: {error}")
    print(f"packaging: {folder.relative_to(ROOT)}")  # noqa: T201


if __name__ == "__main__":
    main()
