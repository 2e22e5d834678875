"""One synthesis of the application for each setting, shared by all tests and test processes."""

from __future__ import annotations

import fcntl
import json
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from infra import app
from infra.build_folder import publish, reuse
from infra.local import deployment

__all__ = ["assembly_of", "template_of"]


def assembly_of(settings: Mapping[str, Any]) -> Path:
    """Return the assembly of a context, which is where `deployment.synthesise` keeps it.

    It is synthesised in this process: loading CDK takes longer than a synthesis.

    Args:
        settings: What `cdk.json` does not set, or sets otherwise.
    """
    return _assembly(json.dumps(settings))


def template_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the template of a context.

    Args:
        settings: What `cdk.json` does not set, or sets otherwise.
    """
    text = (assembly_of(settings) / "Stepwatch.template.json").read_text()
    template: dict[str, Any] = json.loads(text)
    return template


@cache
def _assembly(text: str) -> Path:
    settings = json.loads(text)
    folder = deployment.ASSEMBLIES / deployment._digest(settings)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another test process may be synthesising it
        if not reuse(folder):
            with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
                made = Path(temporary) / "assembly"
                context = {**app.project_context(), **settings}
                app.build_app(context, made, with_wheels=False)[0].synth()
                publish(made, folder)
    return folder
