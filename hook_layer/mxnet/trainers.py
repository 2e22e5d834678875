"""What a Trainer updates parameters with: gradients, and the state of its optimiser.

The state of `dense0_weight` is `optimizer_variables/dense0_weight/0`, `.../1` and so on, as many
arrays as the optimiser keeps. The original client does not save it for MXNet.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from mxnet import cpu
from mxnet.gluon import Parameter, Trainer
from mxnet.ndarray import NDArray

from hook_layer.configuration.collections import CollectionKeys
from hook_layer.mxnet.calls import arrays_in

__all__ = ["own_gradient", "state_arrays", "updated_gradient"]

_NAME: Final = CollectionKeys.OPTIMIZER_VARIABLES


def own_gradient(parameter: Parameter) -> NDArray | None:
    """Return the sum over contexts of gradients of backward passes; None without any."""
    return _sum(_fresh_gradients(parameter))


def updated_gradient(trainer: Trainer, parameter: Parameter) -> NDArray | None:
    """Return the gradient that a Trainer updates a parameter with; None if it is left out.

    It is not divided by the batch size, as in MXNet itself. With several contexts it is the sum
    over them: the Trainer put it in every context, or its store computes it. With a loss that
    `mxnet.contrib.amp` scales, it is unscaled.
    """
    gradients = _fresh_gradients(parameter)
    if trainer._kvstore is None or not trainer._update_on_kvstore:  # noqa: SLF001 - no public way
        gradients = gradients[:1]
    gradient = _sum(gradients)
    original_scale = getattr(trainer, "_amp_original_scale", None)
    if gradient is None or original_scale in {None, trainer._scale}:  # noqa: SLF001 - as above
        return gradient
    return gradient.astype("float32") * (trainer._scale / original_scale)  # noqa: SLF001


def state_arrays(trainer: Trainer, names: Iterable[str]) -> dict[str, NDArray]:
    """Return the state of a Trainer's optimiser by name."""
    # None of the three is public.
    store, indexes = trainer._kvstore, trainer._param2idx  # noqa: SLF001
    on_store = store is not None and trainer._update_on_kvstore  # noqa: SLF001
    updater: Any = getattr(store, "_updater", None) if on_store else trainer._updaters[0]  # noqa: SLF001
    states = getattr(updater, "states", {})  # a store on other machines shows none
    found = {}
    for name in names:
        arrays = arrays_in(states.get(indexes.get(name)))
        found.update({f"{_NAME}/{name}/{i}": array for i, array in enumerate(arrays)})
    return found


def _fresh_gradients(parameter: Parameter) -> list[NDArray]:
    """Return the gradients of those contexts in which a backward pass reached the parameter."""
    try:
        pairs = zip(parameter.list_data(), parameter.list_grad(), strict=True)
    except RuntimeError:  # no value yet, or a sparse one
        return []
    return [gradient for data, gradient in pairs if data._fresh_grad]  # noqa: SLF001 - no public way


def _sum(arrays: list[NDArray]) -> NDArray | None:
    if len(arrays) <= 1:
        return arrays[0] if arrays else None
    total = arrays[0].copyto(cpu())
    for array in arrays[1:]:
        total = total + array.as_in_context(cpu())
    return total
