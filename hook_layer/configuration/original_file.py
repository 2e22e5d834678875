"""Writes SageMaker Debugger's configuration file into containers, for scripts that open it."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from importlib.machinery import PathFinder
from pathlib import Path

from hook_layer.configuration.configuration_file import SAGEMAKER_FILE, ConfigurationFile
from hook_layer.configuration.job import is_training_job

__all__ = ["write_original_file"]

logger = logging.getLogger("stepwatch")


def write_original_file(
    file: ConfigurationFile,
    environ: Mapping[str, str] = os.environ,
    path: Path | None = None,
) -> None:
    """Write the hook's configuration to where SageMaker Debugger writes it, unless it exists.

    It is written in jobs of SageMaker only, where Debugger is off. An image with the original
    client gets no file, because that client would make a second hook.

    Args:
        file: The configuration that `STEPWATCH_CONFIG` names; others are not written.
        environ: The environment.
        path: The file; None: SageMaker's.
    """
    path = Path(SAGEMAKER_FILE) if path is None else path
    is_due = file.is_own and is_training_job(environ) and path.parent.is_dir()
    if not is_due or PathFinder.find_spec("smdebug") is not None:
        return
    hook = file.document.get("DebugHookConfig", file.document)
    try:
        with path.open("x", encoding="utf-8") as target:
            json.dump({"LocalPath": "/opt/ml/output/tensors", **hook}, target)
    except FileExistsError:
        return
    except OSError as error:
        logger.info("%s cannot be written for scripts that open it: %s", path, error)
