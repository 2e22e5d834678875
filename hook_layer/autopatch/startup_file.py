"""The start-up file that lets every Python of an environment watch unchanged scripts.

Python runs the lines of `.pth` files in its site-packages that begin with `import` whenever it
starts. Ours imports something only where an environment variable names a configuration, or
SageMaker has put one into the container: every other start costs a look at the environment.
"""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Final

__all__ = ["is_on", "switch_off", "switch_on"]

_NAME: Final = "stepwatch-autopatch.pth"
_LINE: Final = (
    "import os; "
    "any(os.environ.get(name) for name in ('STEPWATCH_CONFIG', 'SMDEBUG_CONFIG_FILE_PATH', "
    "'STEPWATCH_OUT_DIR', 'TRAINING_JOB_NAME')) "
    "and __import__('hook_layer.autopatch.startup')\n"
)


def is_on(folder: Path | None = None) -> bool:
    """Return whether the start-up file is installed."""
    return _file(folder).is_file()


def switch_on(folder: Path | None = None) -> Path:
    """Install the start-up file, and return its path.

    Raises:
        OSError: It cannot be written.
    """
    file = _file(folder)
    file.write_text(_LINE)
    return file


def switch_off(folder: Path | None = None) -> Path:
    """Remove the start-up file, if there is one, and return its path.

    Raises:
        OSError: It cannot be removed.
    """
    file = _file(folder)
    file.unlink(missing_ok=True)
    return file


def _file(folder: Path | None) -> Path:
    """Return the file in an environment's site-packages; None: in those of this Python."""
    return (folder or Path(sysconfig.get_path("purelib"))) / _NAME
