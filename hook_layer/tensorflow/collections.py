"""The collections that exist for sessions of TensorFlow 1, and how one puts tensors into them."""

from __future__ import annotations

from typing import Any, Final

from hook_layer.configuration.collections import Collection as BaseCollection
from hook_layer.configuration.collections import CollectionKeys
from hook_layer.configuration.hook_setup import FrameworkDefaults
from hook_layer.errors import HookConfigurationError

__all__ = ["DEFAULTS", "Collection", "name_of"]


class Collection(BaseCollection):
    """A collection that takes tensors and variables of a graph; else as the base class."""

    def add(self, arg: Any) -> None:
        """Add a tensor, a variable, the name of either, or several of these.

        Raises:
            HookConfigurationError: It is nothing of that.
        """
        if isinstance(arg, (list, tuple, set, frozenset)):
            for item in arg:
                self.add(item)
        else:
            self.add_tensor_name(name_of(arg))

    def add_for_mode(self, arg: Any, mode: Any = None) -> None:  # noqa: ARG002
        """Same as `add`: a tensor has the same name in all modes."""
        self.add(arg)

    add_tensor = add_variable = add_for_mode


def name_of(value: Any) -> str:
    """Return the name of a tensor or variable of a graph, e.g. `loss:0`.

    Of a gradient that is divided into slices, as of an embedding, it is that of their values.

    Raises:
        HookConfigurationError: It has none.
    """
    if isinstance(value, str):
        return value
    values = getattr(value, "values", None)
    name = getattr(value if values is None else values, "name", None)
    if not isinstance(name, str) or ":" not in name:
        raise HookConfigurationError(
            f"{value!r:.200} must be a tensor or variable of a graph, or the name of one"
        )
    return name


# Without regular expressions, as in the original: what is a loss or a gradient its name does not
# tell. The hook adds them by name.
_BUILT_IN: Final = (
    CollectionKeys.DEFAULT,
    CollectionKeys.ALL,
    CollectionKeys.WEIGHTS,
    CollectionKeys.BIASES,
    CollectionKeys.GRADIENTS,
    CollectionKeys.LOSSES,
    CollectionKeys.METRICS,
    CollectionKeys.INPUTS,
    CollectionKeys.OUTPUTS,
    CollectionKeys.LAYERS,
    CollectionKeys.OPTIMIZER_VARIABLES,
    CollectionKeys.SM_METRICS,
)
DEFAULTS: Final = FrameworkDefaults(
    built_in={name: () for name in _BUILT_IN},  # noqa: C420 - of one type
    always_saved=(CollectionKeys.METRICS, CollectionKeys.LOSSES, CollectionKeys.SM_METRICS),
    collection_type=Collection,
)
"""The collections of the hook for sessions."""
