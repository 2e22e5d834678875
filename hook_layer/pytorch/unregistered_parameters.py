"""Finds parameters that a model uses but does not list, such as those of layers in a plain list.

No optimizer trains them, and `state_dict` lacks them. The flat parameter of FSDP1 is ignored,
because the listed parameters are views of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from torch import nn

from hook_layer.pytorch.wrappers import wrapped_in

__all__ = ["unregistered_parameters"]

_OWN: Final = frozenset(vars(nn.Module()))


def unregistered_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return parameters in plain lists, tuples and dicts that the model does not list.

    Returns:
        The parameters by the names that they would have as submodules: `blocks.0.weight`.
    """
    seen = {id(parameter) for parameter in model.parameters()}
    found = {}
    for path, part in model.named_modules():
        if wrapped_in(part) is not None:  # FSDP keeps a list of flat parameters
            continue
        for attribute, value in vars(part).items():
            if attribute in _OWN:
                continue
            prefix = f"{path}.{attribute}" if path else attribute
            for name, parameter in _in_container(value, prefix):
                if id(parameter) not in seen and not getattr(parameter, "_is_flat_param", False):
                    seen.add(id(parameter))
                    found[name] = parameter
    return found


def _in_container(value: Any, prefix: str) -> Iterator[tuple[str, nn.Parameter]]:
    for key, item in _items(value):
        name = f"{prefix}.{key}"
        if isinstance(item, nn.Parameter):
            yield name, item
        elif isinstance(item, nn.Module):
            yield from item.named_parameters(name)


def _items(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, dict):
        return list(value.items())
    return enumerate(value) if isinstance(value, list | tuple) else ()
