"""Finds the operations that keep gradients from parameters, in the first saved steps of a run.

An operation stops gradients if its result has no gradient although an argument has one (`detach`,
`argmax`, a comparison, `torch.no_grad()`), or one that is zero by definition (`round`). It matters
to parameters that the losses of these steps do not reach in another way.
"""

from __future__ import annotations

import re
import sys
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple
from weakref import ReferenceType, ref

import torch
from torch import Tensor, nn

from hook_layer.core import events
from hook_layer.core.hook import BaseHook
from hook_layer.pytorch import function_mode
from hook_layer.pytorch.amp import parameters_of
from hook_layer.pytorch.calls import tensors_in
from hook_layer.pytorch.function_mode import ObservedCalls
from hook_layer.pytorch.loop_state import LoopState, TorchPart

__all__ = ["GradientStops"]

_MAX_STEPS: Final = 2
"""Observed saved steps: a loop may alternate between losses, or drop layers at random."""
_MAX_NODES: Final = 20_000
"""Maximum visited nodes of graphs in a step, about 20 ms: larger graphs are not explained."""
_MAX_STOPS: Final = 64
"""Maximum stops: a loop over rows may have thousands, which one message cannot name."""
_PART: Final = "gradient stops"
_ZERO: Final = re.compile(
    r"(Round|Floor|Ceil|Trunc|Sign)Backward[01]|(Bernoulli|Normal|Poisson)Backward[0-3]"
    r"|DivBackward[23]"  # with a rounding mode
)
"""Nodes whose gradient is zero for all inputs."""
_LEAF: Final = "AccumulateGrad"
_OF_SHAPE: Final = re.compile(r"^(new_|is)|(_like|_as)$|^(grad|backward|requires_grad_)$")
"""Functions that use only the shape of an argument, check it, or return its gradient."""
_INTO_PYTHON: Final = frozenset(("item", "tolist", "numpy", "__float__", "__int__", "__array__"))
_OURS: Final = str(Path(__file__).parents[1])
_OBSERVERS: Final = (__file__, function_mode.__file__)
_TORCH: Final = str(Path(torch.__file__).parent)
_CHECKPOINT: Final = str(Path("utils", "checkpoint.py"))


class _Stop(NamedTuple):
    """An operation that stops gradients.

    Attributes:
        text: What it is, and its line in the script.
        layer: Id of a parameter of the layer before it; None: it is within layers.
        is_zero: Whether the gradient is zero, not absent.
    """

    text: str
    layer: int | None
    is_zero: bool


class GradientStops(TorchPart):
    """Finds what keeps gradients from parameters, and records it in the collections file."""

    def __init__(self, hook: BaseHook, loop: LoopState) -> None:
        super().__init__(hook, loop)
        self._manager = hook.collector.manager
        self._observed = ObservedCalls(self._on_call, hook.failures, _PART)
        self._num_steps = self._num_nodes = 0
        self._is_in_step = False
        self._stops: dict[_Stop, dict[int, None]] = {}  # ids of the parameters before each
        self._reached: set[int] = set()
        self._used: set[_Stop] = set()  # by losses
        self._newest: set[_Stop] = set()  # by losses since the latest step of an optimizer
        self._has_stepped = False
        self._of_own: dict[int, set[_Stop]] = {}  # by losses before a parameter's optimizer
        self._derived: dict[int, tuple[ReferenceType[Tensor], frozenset[_Stop]]] = {}
        subscribe = self.events.subscribe
        subscribe(events.PassBegins, self._on_pass_begins, _PART)
        subscribe(events.PassEnds, self._on_pass_ends, _PART)
        subscribe(events.BackwardBegins, self._on_backward_begins, _PART)
        subscribe(events.OptimizerBegins, self._on_optimizer_begins, _PART)
        subscribe(events.StepEnds, self._on_step_ends, _PART)
        subscribe(events.SavingPauses, self._on_saving_pauses, _PART)
        subscribe(events.ModelsRelease, self._on_release, _PART)

    # Events --------------------------------------------------------------------------------------

    def _on_pass_begins(self, event: events.PassBegins) -> None:
        if self._loop.steps.is_training and not self._observed.is_on:
            self._is_in_step |= self._observed.begin(event.model)

    def _on_pass_ends(self, event: events.PassEnds) -> None:
        if event.outputs is None:  # it raised an exception
            self._observed.end()

    def _on_backward_begins(self, event: events.BackwardBegins) -> None:
        self._observed.end()
        if self._is_in_step:
            roots = tensors_in(event.roots[:1])
            if self._has_stepped:
                self._newest, self._has_stepped = set(), False
            self._newest.update(*map(self._stops_before, roots))
            self._used |= self._newest
            self._reached.update(self._parameters_before(map(_node_of, roots)))

    def _on_optimizer_begins(self, event: events.OptimizerBegins) -> None:
        """Note which parameters have a gradient: graphs within custom functions are not visible."""
        self._observed.end()
        if self._is_in_step:
            zero = {at for stop, before in self._stops.items() if stop.is_zero for at in before}
            parameters = [*parameters_of(event.optimizer)]
            self._reached |= {id(p) for p in parameters if p.grad is not None} - zero
            self._has_stepped = True
            for parameter in parameters:
                self._of_own.setdefault(id(parameter), set()).update(self._newest)

    def _on_step_ends(self, _: events.StepEnds) -> None:
        self._observed.end()
        if not self._is_in_step:
            return
        is_too_large = self._num_nodes > _MAX_NODES
        self._manager.gradient_stops = {} if is_too_large else self._found()
        self._is_in_step, self._num_nodes = False, 0
        self._num_steps = _MAX_STEPS if is_too_large else self._num_steps + 1
        if self._num_steps == _MAX_STEPS:
            self._forget()
            self.events.idle.add(_PART)
        self._derived = {at: known for at, known in self._derived.items() if known[0]() is not None}

    def _on_saving_pauses(self, _: events.SavingPauses) -> None:
        self._observed.end()

    def _on_release(self, event: events.ModelsRelease) -> None:
        self._observed.end()
        self._forget()
        self._is_in_step, self._num_nodes = False, 0
        if event.is_final:
            self._num_steps = 0
            self.events.idle.discard(_PART)

    def _forget(self) -> None:
        for known in (self._stops, self._reached, self._used, self._derived, self._of_own):
            known.clear()
        self._newest, self._has_stepped = set(), False

    # Operations ----------------------------------------------------------------------------------

    def _on_call(self, function: Any, arguments: tuple[Any, ...], result: Any) -> None:
        given, results = tensors_in(arguments), tensors_in(result)
        name = _name_of(function)
        if name == "__setitem__":
            results = given[:1]
        before = frozenset[_Stop]().union(*map(self._stops_before, given))
        has_gradient = any(tensor.requires_grad for tensor in given)
        if has_gradient and name in _INTO_PYTHON:
            self._add(name, given)
        known = {id(tensor) for tensor in given}
        for tensor in results:
            node, is_new = tensor.grad_fn, id(tensor) not in known
            stops = before
            if has_gradient and is_new and node is None:
                stops = before | self._add(name, given)
            elif _is_zero(node) and (is_new or name.endswith("_")):
                stops = before | self._add(name, given, node)
            if stops and not isinstance(tensor, nn.Parameter):
                self._derived[id(tensor)] = ref(tensor), stops

    def _add(self, name: str, given: list[Tensor], zero: Any = None) -> frozenset[_Stop]:
        """Add a stop, and return it, unless only the shape of its arguments is used."""
        text = "" if _OF_SHAPE.search(name) else _described(name)
        if not text or len(self._stops) >= _MAX_STOPS:
            return frozenset()
        nodes = map(_node_of, given) if zero is None else (node for node, _ in zero.next_functions)
        before = self._parameters_before(nodes)
        is_within = not torch.is_grad_enabled()
        stop = _Stop(text, None if is_within else next(iter(before), None), zero is not None)
        self._stops.setdefault(stop, {}).update(before)
        return frozenset((stop,))

    def _stops_before(self, tensor: Tensor) -> frozenset[_Stop]:
        """Return the stops that a tensor was computed from."""
        known = self._derived.get(id(tensor))
        return frozenset() if known is None or known[0]() is not tensor else known[1]

    def _parameters_before(self, nodes: Iterable[Any]) -> dict[int, None]:
        """Return the ids of parameters that get a gradient through nodes, nearest first."""
        found: dict[int, None] = {}
        waiting = deque(dict.fromkeys(nodes))
        seen = set(waiting)  # nodes, because ids of released ones are used again
        while waiting and self._num_nodes <= _MAX_NODES:
            node = waiting.popleft()
            self._num_nodes += 1
            if isinstance(node, Tensor):
                found[id(node)] = None
            elif node is not None and node.name().endswith(_LEAF):
                found[id(node.variable)] = None
            elif node is not None and not _is_zero(node):
                following = [before for before, _ in node.next_functions if before not in seen]
                seen.update(following)
                waiting.extend(following)
        return found

    def _found(self) -> dict[str, tuple[str, ...]]:
        """Return the parameters that no loss reaches, by what stops their gradients."""
        names = {id(p): name for name, p in self._loop.registered.all_named_parameters()}
        found: dict[str, tuple[str, ...]] = {}
        done = {*self._reached}
        for stop, before in sorted(self._stops.items(), key=lambda stop: stop[0] not in self._used):
            missing = [at for at in before if at not in done and self._may_concern(stop, at)]
            done.update(missing)
            own = tuple(names[at] for at in missing if at in names)
            layer = "" if stop.layer is None else names.get(stop.layer, "").rpartition(".")[0]
            text = stop.text + (f", after {layer}" if layer else "")
            if own:
                found[text] = found.get(text, ()) + own
        return found

    def _may_concern(self, stop: _Stop, parameter: int) -> bool:
        """Return whether a stop is in no loss, or in one of the parameter's own optimizer.

        The loss of another one may need it, as the `detach` in the discriminator's step of a GAN.
        """
        own = self._of_own.get(parameter)
        return own is None or stop in own or stop not in self._used


def _name_of(function: Any) -> str:
    """Return the name of a function, or that of the attribute that it returns."""
    name: str = getattr(function, "__name__", "")
    attribute: str = getattr(getattr(function, "__self__", None), "__name__", "")
    return attribute if name == "__get__" else name


def _node_of(tensor: Tensor) -> Any:
    """Return what a graph has of a tensor: its node, itself as a leaf, or None."""
    return (tensor.grad_fn or tensor) if tensor.requires_grad else None


def _is_zero(node: Any) -> bool:
    is_zero = node is not None and _ZERO.fullmatch(node.name()) is not None
    return is_zero and getattr(node, "_saved_rounding_mode", "") is not None


def _described(name: str) -> str:
    """Return a stop in words, with the line of the script that calls it; "" for a call of ours."""
    begin = sys._getframe()  # noqa: SLF001 - no public way
    while begin.f_back and begin.f_code.co_filename in _OBSERVERS:
        begin = begin.f_back
    caller = _outside_of_torch(begin)
    if caller.f_code.co_filename.startswith(_OURS):
        return ""
    if torch.is_grad_enabled():
        return f"`{name.strip('_')}` {_place(caller)}"
    checkpoint: FrameType | None = begin
    while checkpoint and not checkpoint.f_code.co_filename.endswith(_CHECKPOINT):
        checkpoint = checkpoint.f_back
    if checkpoint is None:
        return f"torch.no_grad() {_place(caller)}"
    place = _place(_outside_of_torch(checkpoint))
    return f"a reentrant checkpoint {place}, whose inputs need no gradient"


def _outside_of_torch(frame: FrameType) -> FrameType:
    """Return the first frame that is not torch's, from a frame to its callers."""
    while frame.f_back and frame.f_code.co_filename.startswith(_TORCH):
        frame = frame.f_back
    return frame


def _place(frame: FrameType) -> str:
    return f"at {Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
