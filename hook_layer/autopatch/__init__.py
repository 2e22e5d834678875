"""Watching a training script that has no hook in it, without a change to it.

Python runs the script as it always does, and imports `startup.py` when it starts: since it was
started by `stepwatch run` or `python -m hook_layer` (see `hook_layer.child_processes`), or by the
start-up file that `stepwatch autopatch on` installs (`startup_file.py`). As soon as a framework has
been imported, `watch_frameworks` lets its adapter look for trainings:
`hook_layer.pytorch.unchanged`, and the like. Nothing of ours is imported before, and nothing ever
that the script does not import. Who watches a command reads what its Pythons note
(`hook_layer.session_notes`).

Three promises: nothing happens where no configuration is found; a script that makes a hook itself
keeps it, and gets no second one; whatever goes wrong here is logged and leaves the script alone.

A training gets one hook. Where several adapters could watch the same training (Keras computes by
torch, Lightning trains modules of torch) the first that meets it has it: `fit` of the trainer is
called before any module of torch is.
"""

from __future__ import annotations

from hook_layer.autopatch.imports import call_after_import

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final

__all__ = ["FRAMEWORKS", "UNWATCHED", "watch_frameworks"]

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
UNWATCHED: Final = {
    "catboost": "CatBoost",
    "flax": "Flax",
    "haiku": "Haiku",
    "jax": "JAX",
    "lightgbm": "LightGBM",
    "paddle": "PaddlePaddle",
    "sklearn": "scikit-learn",
}
"""Packages that train and have no hook, by what a script imports, and their names."""


def watch_frameworks() -> None:
    """Look for trainings of every framework that is imported, now or later."""
    for imported, adapter in FRAMEWORKS.items():
        call_after_import(imported, _watching(imported, adapter))
    for imported in UNWATCHED:
        call_after_import(imported, _noting(imported))


def _watching(imported: str, adapter: str) -> Callable[[], None]:
    def watch() -> None:
        from hook_layer.autopatch.adapters import watch_trainings  # noqa: PLC0415 - imports a lot

        watch_trainings(imported, adapter)

    return watch


def _noting(imported: str) -> Callable[[], None]:
    def note() -> None:
        from hook_layer.autopatch.uncaptured import note_unwatched  # noqa: PLC0415 - imports a lot

        note_unwatched(imported)

    return note
