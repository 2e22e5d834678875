"""Copies a folder of training code and adds the hook's package.

So the training container has the same hook version that prepared the job.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

import hook_layer

__all__ = ["REQUIREMENTS", "REQUIREMENTS_FILE", "staged_source"]

REQUIREMENTS_FILE: Final = "requirements.txt"
REQUIREMENTS: Final = ("google-crc32c>=1.5", "numpy>=1.23", "typing-extensions>=4.5", "boto3>=1.35")
"""Dependencies of the hook for writing to S3, as in `pyproject.toml`."""

_LEFT_OUT: Final = shutil.ignore_patterns("__pycache__", "*.pyc", ".git", ".venv")


def staged_source(source_dir: str | os.PathLike[str]) -> Path:
    """Return a copy of a folder with the hook's package and its requirements.

    The copy exists until this process ends. The folder's own requirements are kept and come first.

    Raises:
        ValueError: It is not a local folder, or contains another `hook_layer` or `stepwatch`.
    """
    source = Path(source_dir).expanduser()
    if not source.is_dir():
        raise ValueError(f"source_dir is {os.fspath(source_dir)!r}, and no folder of this machine")
    packages = _packages()
    for package in packages:
        if (source / package.name).exists():
            raise ValueError(
                f"source_dir: {source / package.name} is there already, where the hook's package "
                "would go: remove it"
            )
    folder = Path(tempfile.mkdtemp(prefix="stepwatch-source-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    staged = folder / "code"
    shutil.copytree(source, staged, ignore=_LEFT_OUT)
    for package in packages:
        shutil.copytree(package, staged / package.name, ignore=_LEFT_OUT)
    own = source / REQUIREMENTS_FILE
    lines = own.read_text().splitlines() if own.is_file() else []
    (staged / REQUIREMENTS_FILE).write_text("\n".join([*lines, *REQUIREMENTS]) + "\n")
    return staged


def _packages() -> list[Path]:
    """Return the folders of the hook's package and of its import names."""
    hook = Path(hook_layer.__file__).resolve().parent
    names = hook.with_name("stepwatch")
    return [hook, names] if (names / "__init__.py").is_file() else [hook]
