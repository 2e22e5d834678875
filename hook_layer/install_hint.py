"""Commands that install Stepwatch and its extras, for messages."""

from __future__ import annotations

from typing import Final

__all__ = [
    "CPU_INDEX",
    "IS_PUBLISHED",
    "install_command",
    "install_hint",
]

IS_PUBLISHED: Final = False
"""Whether Stepwatch is in a package index. Until then, every hint names a checkout."""

CPU_INDEX: Final = "https://download.pytorch.org/whl/cpu"
"""The index of PyTorch's builds without CUDA.

Its versions end with `+cpu`, so pip prefers them to the builds of the same version with CUDA.
"""


def install_command(*extras: str, cpu: bool = False) -> str:
    """Return the command that installs Stepwatch with extras.

    Until Stepwatch is published, the command works in a checkout.

    Args:
        extras: Names of extras, as in `pyproject.toml`.
        cpu: True for a machine without a GPU: PyTorch comes without CUDA, about 3 GB less.
    """
    name = "stepwatch" if IS_PUBLISHED else "."
    index = f"--extra-index-url {CPU_INDEX} " if cpu else ""
    return f"pip install {index}'{name}[{','.join(extras)}]'"


def install_hint(*extras: str) -> str:
    """Return how to install missing extras, for the end of a message.

    Args:
        extras: Names of extras, as in `pyproject.toml`.
    """
    where = "" if IS_PUBLISHED else " in a checkout of Stepwatch"
    return f"{install_command(*extras)}{where}"
