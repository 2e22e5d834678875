"""Applies the original's environment variables for the log level and the log file.

Stepwatch logs with Python's `logging`, under the name `stepwatch`. Without these variables, only
the training script configures its output.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from hook_layer.configuration.json_values import as_choice

__all__ = ["apply_log_settings"]

_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "off": logging.CRITICAL + 1,
}


def apply_log_settings(environ: Mapping[str, str] = os.environ) -> None:
    """Apply `SMDEBUG_LOG_LEVEL` and `SMDEBUG_LOG_PATH`, if they are set.

    Raises:
        HookConfigurationError: The level is invalid.
    """
    log = logging.getLogger("stepwatch")
    level = environ.get("SMDEBUG_LOG_LEVEL", "").strip().lower()
    if level:
        log.setLevel(_LEVELS[as_choice("SMDEBUG_LOG_LEVEL", level, _LEVELS)])
    path = environ.get("SMDEBUG_LOG_PATH", "").strip()
    if not path or any(_writes_to(handler, path) for handler in log.handlers):
        return
    try:
        handler = logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        log.warning("SMDEBUG_LOG_PATH=%s: %s", path, error)
        return
    handler.setFormatter(logging.Formatter("[%(asctime)s %(levelname)s %(name)s] %(message)s"))
    log.addHandler(handler)


def _writes_to(handler: logging.Handler, path: str) -> bool:
    if not isinstance(handler, logging.FileHandler):
        return False
    return Path(handler.baseFilename) == Path(path).absolute()
