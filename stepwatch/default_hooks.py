"""Hooks and callbacks that save by default what the pack `recommended` needs."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from hook_layer.lazy_names import lazy_names

if TYPE_CHECKING:
    from hook_layer.configuration.hook_json import HookConfiguration
    from hook_layer.configuration.hook_setup import FrameworkDefaults

__all__ = ["hook_names", "recommended_configuration"]

_OF_HOOKS: Final = "_defaults"
"""Attribute of hooks: the defaults of their framework."""
_OF_CALLBACKS: Final = "hook_type"
"""Attribute of callbacks: the class of their hooks."""


def hook_names(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a framework's module, whose names are imported lazily.

    Its hooks and callbacks are subclasses of those in `hook_layer`. Without configured collections
    they save what the pack `recommended` needs, as `stepwatch run` configures it.

    Args:
        package: Name of the module.
        homes: The module that has each name.
    """
    get, listed = lazy_names(package, homes)

    def get_name(name: str) -> Any:
        value = get(name)
        if isinstance(value, type) and value.__module__.startswith("hook_layer"):
            value = _with_default(value, package)
            setattr(sys.modules[package], name, value)
        return value

    return get_name, listed


@functools.cache
def recommended_configuration() -> HookConfiguration:
    """Return what a hook saves for the pack `recommended`."""
    from hook_layer.configuration.configuration_file import (  # noqa: PLC0415 - see `hook_names`
        ConfigurationFile,
    )
    from hook_layer.configuration.hook_json import (  # noqa: PLC0415 - as above
        parse_hook_configuration,
    )
    from rule_runtime.embedded.hook_configuration import (  # noqa: PLC0415 - loads every rule
        hook_configuration,
    )

    pack = "recommended"
    return parse_hook_configuration(ConfigurationFile(hook_configuration(pack), f"pack {pack}"))


@functools.cache
def _with_default(kind: type, package: str) -> type:
    """Return a subclass of a hook or a callback with the default; other classes as they are."""
    members: dict[str, Any] = {"__module__": package, "__doc__": kind.__doc__}
    if hasattr(kind, _OF_HOOKS):
        defaults: FrameworkDefaults = getattr(kind, _OF_HOOKS)
        members[_OF_HOOKS] = replace(defaults, unconfigured=recommended_configuration)
    elif hasattr(kind, _OF_CALLBACKS):
        members[_OF_CALLBACKS] = _with_default(getattr(kind, _OF_CALLBACKS), "stepwatch.torch")
    else:
        return kind
    return types.new_class(kind.__name__, (kind,), exec_body=lambda of: of.update(members))
