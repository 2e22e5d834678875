"""Layers in the order in which they are called, and which of them get gradients.

Shape legend: R = rows of weights or gradients, one for each (tensor, worker); S = rows of signals,
the inputs and outputs of modules of one worker; L = layers (see `call_order`).
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.facts.call_order import INPUT, SIGNALS, call_order
from rule_runtime.facts.gradient_names import declared_parameters
from rule_runtime.facts.initial_weights import as_initialised
from rule_runtime.facts.loss_owners import loss_owners
from rule_runtime.numerics.row_memory import fingerprints

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["adapts_frozen", "are_cut_off", "count_later"]

_LATEST: Final = 100_000
_SEVERAL: Final = 2
_BIAS: Final = ".bias"
_REAL: Final = ("float", "bfloat")
_PRINTED: Final = ("size", "min", "max", "mean", "l2")


def are_cut_off(
    step: StepView,
    weights: TensorRows,
    absent: npt.NDArray[np.bool_],
    judged: npt.NDArray[np.bool_],
) -> npt.NDArray[np.bool_]:
    """Tell which weights [R] are cut off from the loss, where few lack their gradients.

    All that do, if the first layer that is called is among them; else those of layers that are
    called before others with gradients, of which no weight has one, and one looks as it was
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
    last = max((at for at, is_out in enumerate(calls.are_out) if not is_out), default=-1)
    for at, layer in enumerate(calls.layers[:last]):
        found[layer.rows] |= calls.are_out[at] and untouched[layer.rows].any()
    return found


def adapts_frozen(
    step: StepView,
    weights: TensorRows,
    frozen: npt.NDArray[np.bool_],
    chosen: npt.NDArray[np.bool_],
) -> bool:
    """Return whether most weights of a worker are frozen, and something before them is trained.

    So it is with adapters such as LoRA, with biases alone, and with prompts, whose weights are
    frozen on purpose. Where only a head is trained, nothing before frozen weights is.

    Args:
        step: The step.
        weights: The weights [R].
        frozen: Which of them are frozen [R].
        chosen: Which of them are the worker's [R].
    """
    sizes = np.nan_to_num(weights.column("size"))
    is_most = 2 * sizes[frozen].sum() >= sizes[chosen].sum()
    least = min(_SEVERAL, int(np.count_nonzero(chosen)))
    if np.count_nonzero(frozen) < least or not is_most:
        return False
    worker = weights.workers[int(np.flatnonzero(frozen)[0])]
    names = {name for name, is_own in zip(weights.names, chosen, strict=True) if is_own}
    held = {name for name, is_out in zip(weights.names, frozen, strict=True) if is_out}
    trained = {name.rpartition(".")[0] for name in names - held}
    others = declared_parameters(step).get(worker, frozenset()) - names
    # Biases and parameters of other names, not of a layer whose weight is trained.
    if any(name.rpartition(".")[0] not in trained for name in others):
        return True
    are_out = _Calls(step, weights, chosen, frozen).are_out
    return True in are_out and False in are_out[: len(are_out) - are_out[::-1].index(True)]


def count_later(step: StepView, gradients: TensorRows) -> npt.NDArray[np.bool_]:
    """Tell which gradients [R] are zero as of a part of the model whose loss does not count yet.

    That of an adversary, say, is multiplied by 0 at first. Then the layer that such a part ends
    with has gradients of zero throughout: its bias as well, or its weight although its input is not
    zero, which dead units before it would not do. So have those called before it, up to the first
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
    for worker in set(workers[is_zero].tolist()):
        calls = _Calls(step, gradients, workers == worker, is_zero)
        last, end = len(calls.layers) - 1, None
        for at in range(last, -1, -1):
            if not calls.are_out[at]:
                end = None
            elif end is None and calls.is_end(at):
                end = at
            if end is None:
                continue
            later[calls.layers[at].rows] = True
            if end < last and calls.is_fork(at):
                end = None
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
        at, out = np.flatnonzero(chosen).tolist(), is_out.tolist()
        self._worker = rows.workers[at[0]] if at else ""
        signals = step.tensors(regex=(SIGNALS,))
        self._signals = signals.select([of == self._worker for of in signals.workers])
        self._order = call_order(rows.names, tuple(at), self._signals.names)
        self.layers = self._order.layers
        self.are_out = [all(out[row] for row in layer.rows) for layer in self.layers]

    def is_end(self, at: int) -> bool:
        """Return whether a part of the model ends with a layer, whose gradients are zero.

        Args:
            at: Which of the layers.
        """
        layer, made = self.layers[at], self._order.made[at]
        is_fed = bool(layer.inputs) and all(self._is_fed[row] for row in layer.inputs)
        if not is_fed and not any(self._names[row].endswith(_BIAS) for row in layer.rows):
            return False
        varies = any(self._varies[row] for row in layer.outputs)
        if varies and any(self._is_one_number[row] for row in made):
            return False
        if at == len(self.layers) - 1:
            return True
        printed = self._printed(made if layer.is_shared else [layer.begin, *made])
        goes_on = self._last_fed.get(layer.root, at) > at
        returned = self._returned[layer.root] if goes_on else set()
        is_used = bool(printed & self._compared or printed & returned)
        return is_used and not printed & self._taken

    def is_fork(self, at: int) -> bool:
        """Return whether layers that have gradients take the same input as one.

        Args:
            at: Which of the layers.
        """
        return bool(self._printed(self.layers[at].inputs) & self._taken)

    def _printed(self, rows: list[int]) -> set[int]:
        """Return fingerprints of those signals [S] that are more than one number."""
        return {self._prints[row] for row in rows if self._varies[row]}

    @cached_property
    def _last_fed(self) -> dict[str, int]:
        """Which layer of each model is the last one that has gradients."""
        layers = enumerate(zip(self.layers, self.are_out, strict=True))
        return {layer.root: at for at, (layer, is_out) in layers if not is_out}

    @cached_property
    def _taken(self) -> set[int]:
        """Fingerprints of what layers that have gradients take."""
        layers = zip(self.layers, self.are_out, strict=True)
        fed = [layer.inputs for layer, is_out in layers if not is_out]
        return self._printed([row for inputs in fed for row in inputs])

    @cached_property
    def _returned(self) -> dict[str, set[int]]:
        """Fingerprints of what each model returns."""
        return {root: self._printed(rows) for root, rows in self._order.returned.items()}

    @cached_property
    def _columns(self) -> dict[str, npt.NDArray[np.float64]]:
        return {name: self._signals.column(name) for name in (*_PRINTED, "std")}

    @cached_property
    def _varies(self) -> list[bool]:
        varies: list[bool] = (self._columns["std"] > 0).tolist()
        return varies

    @cached_property
    def _is_fed(self) -> list[bool]:
        is_fed: list[bool] = (self._columns["l2"] > 0).tolist()
        return is_fed

    @cached_property
    def _is_one_number(self) -> list[bool]:
        """Which signals are one number throughout, as units make it: no masks, no classes."""
        is_real = [(dtype or _REAL[0]).startswith(_REAL) for dtype in self._signals.dtypes]
        is_one = (self._columns["std"] == 0) & (self._columns["size"] > 1)
        found: list[bool] = (is_one & np.array(is_real, dtype=bool)).tolist()
        return found

    @cached_property
    def _prints(self) -> list[int]:
        prints: list[int] = fingerprints([self._columns[name] for name in _PRINTED]).tolist()
        return prints

    @cached_property
    def _compared(self) -> set[int]:
        """Fingerprints of what losses compare."""
        owners = [owner for owner, of in loss_owners(self._step) if of == self._worker]
        return self._printed([row for owner in owners for row in self._order.of(owner, INPUT)])
