"""What is not installed with the package itself, but with its extra `report`."""

from __future__ import annotations

from importlib import import_module

__all__ = ["require_report_extra"]


def require_report_extra(purpose: str, *modules: str) -> None:
    """Import modules of the extra `report`.

    Args:
        purpose: What needs them, for the message.
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
            f"{purpose} needs {module}: pip install 'stepwatch[report]'", name=module
        ) from error
