"""Watching a training script that has no hook in it, without a change to it.

`python -m hook_layer [--config FILE] train.py ...` runs a script so; `stepwatch autopatch on`
installs a start-up file (`startup_file.py`) that does the same to every Python of an environment
for which a configuration is named; who watches a command has all Pythons that it starts do it, and
reads what they note (`hook_layer.session_notes`). As soon as a framework has been imported,
`watch_frameworks` lets its adapter look for trainings: `hook_layer.pytorch.unchanged`, and the
like. Nothing is imported that the script does not import.

Three promises: nothing happens where no configuration is found; a script that makes a hook itself
keeps it, and gets no second one; whatever goes wrong here is logged and leaves the script alone.

A training gets one hook. Where several adapters could watch the same training (Keras computes by
torch, Lightning trains modules of torch) the first that meets it has it: `fit` of the trainer is
called before any module of torch is.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from hook_layer.autopatch.hook_source import HookSource
from hook_layer.autopatch.imports import call_after_import
from hook_layer.autopatch.uncaptured import note_unwatched
from hook_layer.session_notes import SessionNotes

__all__ = ["FRAMEWORKS", "HookSource", "watch_frameworks"]

logger = logging.getLogger("stepwatch")

FRAMEWORKS: Final = {
    "keras": "hook_layer.keras.unchanged",
    "lightning": "hook_layer.lightning",
    "mxnet": "hook_layer.mxnet.unchanged",
    "pytorch_lightning": "hook_layer.lightning",
    "tensorflow": "hook_layer.tensorflow.unchanged",
    "torch": "hook_layer.pytorch.unchanged",
    "transformers.trainer": "hook_layer.huggingface",
    "xgboost": "hook_layer.xgboost.unchanged",
}
"""What a script imports of each framework, and the module that then looks for its training."""


def watch_frameworks(source: HookSource) -> None:
    """Look for trainings of every framework that is imported, now or later.

    Args:
        source: Where hooks come from.
    """
    for imported, module in FRAMEWORKS.items():
        call_after_import(imported, partial(_watch, imported, module, source))
    note_unwatched()


def _watch(imported: str, module: str, source: HookSource) -> None:
    notes = SessionNotes.of_environment()
    if notes is not None:
        notes.imported(imported.partition(".")[0])
    try:
        watch: Callable[[HookSource], None] = importlib.import_module(module).watch_unchanged
        watch(source)
    except Exception:
        logger.exception("no hook looks at trainings of %s: the script runs as it is", imported)
