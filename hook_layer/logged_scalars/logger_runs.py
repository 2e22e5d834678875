"""Records to which runs of logging libraries a script logs, so that findings can join them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Final

from hook_layer.run.session_log import LoggerRun, SessionLog

__all__ = ["LoggerRuns"]

_NameRun = Callable[[Any, Any], dict[str, str]]


class LoggerRuns:
    """The runs of the logging libraries in this process.

    Args:
        reader: Name of the function in `readers.py` that reads the arguments of the calls.
    """

    def __init__(self, reader: str) -> None:
        self._library, self._run = _RUNS.get(reader, _NO_RUN)
        self._seen: set[tuple[int, int, Any]] = set()

    def note(self, *args: Any, **kwargs: Any) -> None:
        """Record the run of a call at its first call."""
        if self._run is None:
            return
        positional = args[1] if self._library == _MLFLOW and len(args) > 1 else None
        run_id = kwargs.get("run_id", positional)
        key = os.getpid(), id(args[0]), run_id
        if key in self._seen:
            return
        self._seen.add(key)
        log = SessionLog.of_environment()
        run = None if log is None else self._run(args[0], run_id)
        if log is not None and run:
            log.note_logger(LoggerRun(os.getpid(), self._library, run))


def _wandb(run: Any, _: Any) -> dict[str, str]:
    if run.disabled:
        return {}
    names = {"id": run.id, "project": run.project, "entity": run.entity}
    return {**names, "dir": run.settings.root_dir, "mode": run.settings.mode}


def _mlflow(client: Any, run_id: Any) -> dict[str, str]:
    return {"id": run_id, "tracking_uri": client.tracking_uri}


def _summary_writer(writer: Any, _: Any) -> dict[str, str]:
    folder = str(getattr(writer, "log_dir", None) or writer.logdir)  # torch, tensorboardX
    return {"folder": folder if "://" in folder else os.path.abspath(folder)}  # noqa: PTH100


_MLFLOW: Final = "mlflow"
_NO_RUN: Final = "", None
_RUNS: Final[Mapping[str, tuple[str, _NameRun | None]]] = {
    "mlflow_batch": (_MLFLOW, _mlflow),
    "mlflow_metric": (_MLFLOW, _mlflow),
    "summary_scalar": ("tensorboard", _summary_writer),
    "summary_scalars": ("tensorboard", _summary_writer),
    "wandb": ("wandb", _wandb),
}
"""Library, and the function that names the run, by the reader of its calls."""
