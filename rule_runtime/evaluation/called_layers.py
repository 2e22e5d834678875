"""Layers in the order in which they are called, and which of them get gradients.

Shape legend: R = rows of weights or gradients, one for each (tensor, worker); S = rows of signals,
the inputs and outputs of modules of one worker; L = layers.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rule_runtime.evaluation.initial_weights import as_initialised
from rule_runtime.evaluation.linear_layers import may_be
from rule_runtime.evaluation.loss_owners import loss_owners
from rule_runtime.numerics.row_memory import fingerprints

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["are_cut_off", "count_later"]

_LATEST: Final = 100_000
_OUTPUT: Final = "_output_"
_INPUT: Final = "_input_"
_SIGNALS: Final = "_(input|output)_[0-9]+$"
_OF_GRADIENTS: Final = "gradient/"
_BIAS: Final = ".bias"
_REAL: Final = ("float", "bfloat")
_PRINTED: Final = ("size", "min", "max", "mean", "l2")


class _Layer(NamedTuple):
    """A module with rows of its own.

    Attributes:
        rows: The rows [R] of its weights or gradients.
        module: Its name, as in `{module}_output_0`.
        root: Name of the model that it is a part of.
        begin: Where its first output is among the signals [S].
        is_shared: Whether another model has a module of the same name.
    """

    rows: list[int]
    module: str
    root: str
    begin: int
    is_shared: bool


def are_cut_off(
    step: StepView,
    weights: TensorRows,
    absent: npt.NDArray[np.bool_],
    judged: npt.NDArray[np.bool_],
) -> npt.NDArray[np.bool_]:
    """Tell which weights [R] are cut off from the loss, where few lack their gradients.

    All that do, if the first layer that is called is among them; else those of layers that are
    called ahead of others with gradients, of which no weight has one, and one looks as it was
    initialised.

    Args:
        step: The step.
        weights: The weights [R].
        absent: Which of them lack their gradients [R].
        judged: Which of them, of one worker, should have one [R].
    """
    calls = _Calls(step, weights, judged, absent)
    if calls.layers and calls.are_out[0]:
        return np.ones(len(weights), np.bool_)
    found, untouched = np.zeros(len(weights), np.bool_), as_initialised(weights)
    for at, layer in enumerate(calls.layers):
        is_gone = calls.are_out[at] and not all(calls.are_out[at:])
        found[layer.rows] |= is_gone and untouched[layer.rows].any()
    return found


def count_later(step: StepView, gradients: TensorRows) -> npt.NDArray[np.bool_]:
    """Tell which gradients [R] are zero as of a part of the model whose loss does not count yet.

    That of an adversary, say, is multiplied by 0 at first. Then the layer that such a part ends
    with has gradients of zero throughout: its bias as well, or its weight although its input is not
    zero, which dead units ahead of it would not do. So have those called before it, up to the first
    one that has others. A part ends with the layer that is called last; or with one whose output
    is what a loss compares, or what a model returns of which later layers have gradients, if none
    of these takes it. Where all that is made of that output is one number, units behind the layer
    are dead; and from training step 100,000 on nothing counts later.

    Args:
        step: The step; the outputs of its modules tell the order of calls.
        gradients: The gradients [R].
    """
    is_zero = gradients.column("l2") == 0
    later = np.zeros(len(gradients), np.bool_)
    if step.mode_step >= _LATEST or not is_zero.any():
        return later
    workers = np.array(gradients.workers)
    for worker in set(gradients.workers):
        calls = _Calls(step, gradients, workers == worker, is_zero)
        last = len(calls.layers) - 1
        for end in range(last, -1, -1):
            if not calls.are_out[end] or not calls.is_end(end):
                continue
            for at in range(end, -1, -1):
                if not calls.are_out[at]:
                    break
                later[calls.layers[at].rows] = True
                if end < last and calls.is_fork(at):
                    break
    return later


class _Calls:
    """The calls of modules at a step, as far as they are saved.

    Args:
        step: The step.
        rows: Weights or gradients [R].
        chosen: Which of them to look at, of one worker [R].
        is_out: Which of them lack a gradient, or are one of zero [R].

    Attributes:
        layers: The layers [L] in the order of calls, as far as that is known.
        are_out: Of which of them all rows are out [L].
    """

    def __init__(
        self,
        step: StepView,
        rows: TensorRows,
        chosen: npt.NDArray[np.bool_],
        is_out: npt.NDArray[np.bool_],
    ) -> None:
        self._step, self._names = step, rows.names
        at = np.flatnonzero(chosen)
        self._worker = rows.workers[at[0]] if len(at) else ""
        signals = step.tensors(regex=(_SIGNALS,))
        self._signals = signals.select([of == self._worker for of in signals.workers])
        self._where = {name: row for row, name in enumerate(signals.names)}
        self.layers = self._layers(at.tolist())
        self.are_out = [bool(is_out[layer.rows].all()) for layer in self.layers]

    def is_end(self, at: int) -> bool:
        """Tell whether a part of the model ends with a layer, whose gradients are zero.

        Args:
            at: Which of the layers.
        """
        layer, later = self.layers[at], self.layers[at + 1 :]
        inputs = self._of(layer.module, _INPUT)
        is_fed = bool(inputs) and bool((self._columns["l2"][inputs] > 0).all())
        if not is_fed and not any(self._names[row].endswith(_BIAS) for row in layer.rows):
            return False
        own = self._of(layer.module, _OUTPUT)
        made = [row for row in self._made_behind(at) if row not in own]
        if self._varies[own].any() and self._is_one_number[made].any():
            return False
        if not later:
            return True
        others = zip(later, self.are_out[at + 1 :], strict=True)
        goes_on = any(other.root == layer.root and not is_out for other, is_out in others)
        ends = self._compared | (self._printed(self._of(layer.root, _OUTPUT)) if goes_on else set())
        printed = self._printed(made if layer.is_shared else [layer.begin, *made])
        return bool(printed & ends) and not printed & self._taken

    def is_fork(self, at: int) -> bool:
        """Tell whether layers that have gradients take the same input as one.

        Args:
            at: Which of the layers.
        """
        inputs = self._of(self.layers[at].module, _INPUT)
        return bool(self._printed(inputs) & self._taken)

    def _layers(self, rows: list[int]) -> list[_Layer]:
        """Return the layers of rows [R], in the order of calls."""
        found: dict[tuple[str, str], list[int]] = {}
        for row in rows:
            owner = self._names[row].removeprefix(_OF_GRADIENTS).rpartition(".")[0]
            # A module `x` may be called beside `my_x`: the longest name is that of the weight.
            called = (of for of in may_be(owner) if f"{of}{_OUTPUT}0" in self._where)
            module = next(called, None)
            if module is not None:
                root = owner.removesuffix(f"_{module}")
                found.setdefault((module, root), []).append(row)
        num_models = Counter(module for module, _ in found)
        shared = {module for module, num in num_models.items() if num > 1}
        mixed = {root for module, root in found if module in shared}
        ordered = []
        for (module, root), own in found.items():
            begin, of_root = (self._where.get(f"{name}{_OUTPUT}0") for name in (module, root))
            # Which call is of which model is not known: models return in the order of their calls.
            known = of_root if root in mixed and of_root is not None else begin
            if begin is None or known is None or (module in shared and of_root is None):
                continue
            layer = _Layer(own, module, root, begin, is_shared=module in shared)
            ordered.append(((known, begin), layer))
        return [layer for _, layer in sorted(ordered, key=lambda pair: pair[0])]

    def _of(self, name: str, kind: str) -> list[int]:
        """Return the inputs or outputs [S] of a module, of all of its calls."""
        found: list[int] = []
        while (row := self._where.get(f"{name}{kind}{len(found)}")) is not None:
            found.append(row)
        return found

    def _made_behind(self, at: int) -> list[int]:
        """Return the outputs [S] ahead of those of the next layer, from a layer's own one on."""
        layer, later = self.layers[at], self.layers[at + 1 :]
        if layer.is_shared:
            is_last = not any(other.root == layer.root for other in later)
            return self._of(layer.root, _OUTPUT) if is_last else []
        names = self._signals.names
        next_one = min((other.begin for other in later if other.begin > layer.begin), default=None)
        end = len(names) if next_one is None else next_one
        return [row for row in range(layer.begin, end) if _OUTPUT in names[row]]

    def _printed(self, rows: list[int]) -> set[int]:
        """Return fingerprints of those signals [S] that are more than one number."""
        return {self._prints[row] for row in rows if self._varies[row]}

    @cached_property
    def _taken(self) -> set[int]:
        """Fingerprints of what layers that have gradients take."""
        layers = zip(self.layers, self.are_out, strict=True)
        taken = [self._of(layer.module, _INPUT) for layer, is_out in layers if not is_out]
        return self._printed([row for rows in taken for row in rows])

    @cached_property
    def _columns(self) -> dict[str, npt.NDArray[np.float64]]:
        return {name: self._signals.column(name) for name in (*_PRINTED, "std")}

    @cached_property
    def _varies(self) -> npt.NDArray[np.bool_]:
        varies: npt.NDArray[np.bool_] = self._columns["std"] > 0
        return varies

    @cached_property
    def _is_one_number(self) -> npt.NDArray[np.bool_]:
        """Which signals are one number throughout, as units make it: no masks, no classes."""
        is_real = [(dtype or _REAL[0]).startswith(_REAL) for dtype in self._signals.dtypes]
        is_one = (self._columns["std"] == 0) & (self._columns["size"] > 1)
        found: npt.NDArray[np.bool_] = is_one & np.array(is_real, dtype=bool)
        return found

    @cached_property
    def _prints(self) -> list[int]:
        prints: list[int] = fingerprints([self._columns[name] for name in _PRINTED]).tolist()
        return prints

    @cached_property
    def _compared(self) -> set[int]:
        """Fingerprints of what losses compare."""
        owners = [owner for owner, of in loss_owners(self._step) if of == self._worker]
        return self._printed([row for owner in owners for row in self._of(owner, _INPUT)])
