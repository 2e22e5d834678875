"""What an optimiser remembers of each parameter, as `optimizer_variables/Net_fc.weight/exp_avg`.

The expressions of the collections `weights` and `biases` leave this prefix out if it is saved.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from torch import Tensor, nn
from torch.optim.optimizer import Optimizer

from hook_layer.collections import CollectionKeys
from hook_layer.pytorch.amp import parameters_of

__all__ = ["state_tensors"]

_NAME: Final = CollectionKeys.OPTIMIZER_VARIABLES


def state_tensors(
    optimizer: Optimizer, named: Iterable[tuple[str, nn.Parameter]]
) -> dict[str, Tensor]:
    """Return the tensors of an optimiser's state by name, of the parameters that have names."""
    names: dict[int, list[str]] = {}
    for name, parameter in named:
        names.setdefault(id(parameter), []).append(name)
    found = {}
    for parameter in parameters_of(optimizer):
        state = optimizer.state.get(parameter) or {}
        tensors = {key: value for key, value in state.items() if isinstance(value, Tensor)}
        for name in names.get(id(parameter), ()):
            found.update({f"{_NAME}/{name}/{key}": value for key, value in tensors.items()})
    return found
