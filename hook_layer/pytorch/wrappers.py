"""Wrappers of modules, which add nothing to the names of a model's parts."""

from __future__ import annotations

from typing import Final

from torch import nn

__all__ = [
    "is_a_key",
    "is_wrapper",
    "unwrapped_class",
    "unwrapped_path",
    "without_compile_wrapper",
    "wrapped_in",
]

_ATTRIBUTES: Final = {
    "OptimizedModule": "_orig_mod",
    "FullyShardedDataParallel": "_fsdp_wrapped_module",
    "ActivationWrapper": "_checkpoint_wrapped_module",
    "DistributedDataParallel": "module",
    "DataParallel": "module",
    "DeepSpeedEngine": "module",
    "Float16Module": "module",
}
"""Attribute of the wrapped module, by class name of the wrapper; no import is needed."""
_LEFT_OUT: Final = frozenset(_ATTRIBUTES.values())
_PUBLIC: Final = "module"
"""Attribute name that models use, too; it is removed from paths only for wrappers."""


def wrapped_in(module: nn.Module) -> nn.Module | None:
    """Return the module inside a wrapper; None if `module` is not a wrapper."""
    attribute = _attribute(module)
    return None if attribute is None else getattr(module, "_modules", {}).get(attribute)


def unwrapped_class(module: nn.Module) -> str:
    """Return the class name of a model without wrappers, as before `fully_shard`."""
    while (inner := wrapped_in(module)) is not None:
        module = inner
    kind = type(module)
    is_sharded = any(base.__name__ == "FSDPModule" for base in kind.__bases__)
    return kind.__bases__[-1].__name__ if is_sharded else kind.__name__


def unwrapped_path(root: nn.Module, path: str) -> str:
    """Return the path of a part or parameter without wrappers."""
    if not any(attribute in path for attribute in _LEFT_OUT):
        return path
    names: list[str] = []
    module: nn.Module | None = root
    for part in path.split("."):
        is_wrapped = module is not None and part == _attribute(module)
        # Some wrappers list parameters without their own path component.
        if not is_wrapped and (part == _PUBLIC or part not in _LEFT_OUT):
            names.append(part)
        module = None if module is None else module._modules.get(part)  # noqa: SLF001
    return ".".join(names)


def is_wrapper(module: nn.Module) -> bool:
    """Return whether a module is the wrapper of torch.compile."""
    # Importing the class from torch._dynamo takes seconds.
    return type(module).__name__ == "OptimizedModule"


def without_compile_wrapper(module: nn.Module) -> nn.Module:
    """Return the module that torch.compile wrapped, or else the module."""
    while is_wrapper(module):
        module = module.get_submodule(_ATTRIBUTES["OptimizedModule"])
    return module


def is_a_key(module: nn.Module) -> bool:
    """Return whether a module can be a dict key."""
    # The hash of a torchmetrics metric changes with its state, so a dict would not find it again.
    return type(module).__hash__ is nn.Module.__hash__


def _attribute(module: nn.Module) -> str | None:
    kinds = type(module).__mro__
    return next((_ATTRIBUTES[k.__name__] for k in kinds if k.__name__ in _ATTRIBUTES), None)
