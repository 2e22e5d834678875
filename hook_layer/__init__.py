"""The part of Stepwatch that runs inside the training process.

Import hooks from a framework's package: `from hook_layer.pytorch import Hook`. This package imports
neither frameworks nor its own modules at first, because watched Python processes import it at
startup, see `hook_layer.autopatch`. Its names are imported on first use.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from hook_layer.capture.reductions import ReductionConfig
    from hook_layer.configuration.collections import CollectionKeys
    from hook_layer.configuration.save_config import SaveConfig, SaveConfigMode
    from hook_layer.format.modes import ModeKeys as modes  # noqa: N813 - the original's name

    __version__: str

__all__ = [
    "CollectionKeys",
    "ReductionConfig",
    "SaveConfig",
    "SaveConfigMode",
    "__version__",
    "modes",
]

_HOMES: Final = {
    "CollectionKeys": ("hook_layer.configuration.collections", "CollectionKeys"),
    "ReductionConfig": ("hook_layer.capture.reductions", "ReductionConfig"),
    "SaveConfig": ("hook_layer.configuration.save_config", "SaveConfig"),
    "SaveConfigMode": ("hook_layer.configuration.save_config", "SaveConfigMode"),
    "modes": ("hook_layer.format.modes", "ModeKeys"),
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib  # noqa: PLC0415 - seldom needed

    module, attribute = _HOMES[name]
    return getattr(importlib.import_module(module), attribute)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - slow to import

    try:
        return version("stepwatch")
    except PackageNotFoundError:  # a checkout, or a layer of a Lambda function
        return "0+unknown"
