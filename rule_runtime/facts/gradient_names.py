"""Finds the parameter of a gradient by name.

* PyTorch and MXNet: `gradient/Net_fc.weight` is the gradient of `Net_fc.weight`.
* Keras: `gradients/dense/kernelGrad` is the gradient of `dense/weights/dense/kernel:0`. If several
  layers share a name, gradients are numbered in layer order: `kernelGrad_1` belongs to the second
  one, which may be called `dense_3`. Several gradients of one parameter in a step, as with several
  optimizers, are numbered from 0.
* TensorFlow 1: a gradient has the name of an operation, which shows no parameter.

Shape legend: R = rows of gradients, one for each (tensor, worker).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Final

from rule_runtime.facts.saved_tensors import declared
from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["declared_parameters", "parameters_by_name", "parameters_of"]

_PARAMETERS: Final = ("weights", "biases")
_PREFIX: Final = "gradient/"
_OF_KERAS: Final = "gradients/{}Grad"
_GRADIENT: Final = re.compile(r"gradients/(?P<tail>.+)Grad(?P<number>(_\d+)*)")
_WEIGHT: Final = re.compile(r"(?P<layer>.+?)/weights/(?P<tail>.+):0(_(?P<number>\d+))?")
_NUMBER: Final = re.compile(r"(?P<first>.+)_\d+")


def parameters_of(step: StepView, gradients: TensorRows) -> tuple[str, ...]:
    """Return the parameter of each gradient of a step; empty if its name does not show it [R]."""
    return parameters_by_name(gradients.names, step.tensors(collections=_PARAMETERS).names)


def declared_parameters(step: StepView) -> dict[str, frozenset[str]]:
    """Return the parameters that have `requires_grad`, by worker.

    They are the parameters with a gradient in the worker's collections file. Workers without
    gradients in it are omitted.
    """
    known = step.tensors(collections=_PARAMETERS).names
    return {
        worker: frozenset(parameters_by_name(tuple(names), known)) - {""}
        for worker, names in declared(step, "gradients").items()
    }


@lru_cache(maxsize=32)
def parameters_by_name(gradients: tuple[str, ...], parameters: tuple[str, ...]) -> tuple[str, ...]:
    """Return the parameter of each gradient; empty if its name does not show it [R].

    It needs all parameters of the step, because they order Keras layers of the same name. The
    result is cached, because names rarely change in a run.
    """
    owners, taken = _by_gradient(parameters), frozenset(gradients)
    return tuple(_parameter_of(name, owners, taken) for name in gradients)


def _parameter_of(name: str, owners: Mapping[str, str], taken: Collection[str]) -> str:
    if name.startswith(_PREFIX):
        return name.removeprefix(_PREFIX)
    found = _GRADIENT.fullmatch(name)
    if found is None or name in owners:
        return owners.get(name, "")
    numbered = _NUMBER.fullmatch(name)
    if numbered is not None and numbered["first"] in owners and f"{numbered['first']}_0" in taken:
        return owners[numbered["first"]]
    layer, tail = found["tail"].partition("/")[0], found["tail"]
    return f"{layer}{found['number']}/weights/{tail}:0"


def _by_gradient(parameters: tuple[str, ...]) -> dict[str, str]:
    """Return parameters of Keras by gradient name."""
    same: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for name in set(parameters):
        found = _WEIGHT.fullmatch(name)
        if found is not None:
            number = found["layer"].removeprefix(f"{found['tail'].partition('/')[0]}_")
            of_layer = int(number) if number.isdecimal() else 0
            same[found["tail"]].append((of_layer, int(found["number"] or 0), name))
    owners = {}
    for tail, members in same.items():
        for at, (*_, name) in enumerate(sorted(members)):
            owners[_OF_KERAS.format(tail) + (f"_{at}" if at else "")] = name
    return owners
