"""Watches training scripts that have no hook, without a change to them.

`startup.py` calls `watch_frameworks` when Python starts. As soon as the script has imported a
framework, the framework's adapter looks for trainings; nothing else of ours is imported before.
A script that makes a hook keeps it, and errors are logged and leave the script alone. Each training
gets one hook: the first adapter that finds the training has it.
"""

from __future__ import annotations

from hook_layer.autopatch.imports import call_after_import
from hook_layer.frameworks import WATCHED
from hook_layer.logged_scalars.libraries import LIBRARIES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final

__all__ = ["UNWATCHED", "watch_frameworks"]

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
    """Look for trainings and logged scalars of everything that is imported, now or later."""
    for imported, adapter in WATCHED.items():
        call_after_import(imported, _watching(imported, adapter))
    for imported in UNWATCHED:
        call_after_import(imported, _noting(imported))
    for imported in LIBRARIES:
        call_after_import(imported, _reading(imported))


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


def _reading(imported: str) -> Callable[[], None]:
    def read() -> None:
        from hook_layer.autopatch.adapters import watch_logger  # noqa: PLC0415 - imports a lot

        watch_logger(imported)

    return read
