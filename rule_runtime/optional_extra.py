"""Imports packages of optional extras."""

from __future__ import annotations

from importlib import import_module

from hook_layer.install_hint import install_hint

__all__ = ["require_extra", "require_report_extra"]


def require_report_extra(purpose: str, *modules: str) -> None:
    """Import modules of the extra `report`.

    Args:
        purpose: The feature that needs them, for the message.
        modules: Their names.

    Raises:
        ImportError: If one is not installed; names the extra.
    """
    require_extra("report", purpose, *modules)


def require_extra(extra: str, purpose: str, *modules: str) -> None:
    """Import modules of an extra.

    Args:
        extra: Name of the extra.
        purpose: The feature that needs them, for the message.
        modules: Their names.

    Raises:
        ImportError: If one is not installed; names the extra.
    """
    module = ""
    try:
        for module in modules:
            import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{purpose} needs {module}: {install_hint(extra)}", name=module
        ) from error
