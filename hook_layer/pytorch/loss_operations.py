"""Observes how a script computes a loss from a model's outputs, if no known function returned it.

For example, `((outputs - targets) ** 2).mean()` shows neither outputs nor targets. So in saved
steps the calls of torch are observed from the end of a forward pass on. A call that takes a tensor
derived from the outputs, and data for the same rows, may compare outputs and targets. A difference
or a loss function does. A product or an index may: it counts if no difference follows.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple
from weakref import WeakSet

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from hook_layer.guard import FailureLog
from hook_layer.process.script_lines import script_line
from hook_layer.pytorch.calls import tensors_in, versions_of
from hook_layer.pytorch.function_mode import ObservedCalls
from hook_layer.pytorch.tensor_elements import WHOLE
from hook_layer.pytorch.wrappers import is_a_key

__all__ = ["Compared", "LossOperations"]

_MAX_CALLS: Final = 256
"""Maximum observed calls of torch in a step: a loss that needs more is not explained."""
_MAX_BYTES: Final = 128 << 20
"""Maximum memory kept by references to what a script computes."""
_MAX_STEPS_WITHOUT: Final = 3
"""Saved steps in which no comparison was found, after which observing ends."""
_PART: Final = "observed losses"


def _ids_of(*functions: Any) -> frozenset[int]:
    # By id, because a function of a tensor subclass may not be hashable.
    return frozenset(map(id, functions))


_LOGARITHMS: Final = _ids_of(
    *(torch.log, Tensor.log, torch.log_softmax, Tensor.log_softmax),
    *(F.log_softmax, F.logsigmoid, torch.logsumexp, Tensor.logsumexp),
)
"""What they return is compared for what they got, as is `x - logsumexp(x)`."""
_DIFFERENCES: Final = _ids_of(
    *(torch.sub, torch.subtract, torch.rsub, Tensor.sub, Tensor.subtract),
    *(Tensor.__sub__, Tensor.__rsub__, Tensor.sub_, Tensor.__isub__),
    *(getattr(F, name) for name in dir(F) if name.endswith(("_loss", "cross_entropy"))),
    F.binary_cross_entropy_with_logits,
)
_MAY_COMPARE: Final = _ids_of(
    *(torch.mul, torch.multiply, Tensor.mul, Tensor.multiply, Tensor.__mul__, Tensor.__rmul__),
    *(torch.gather, Tensor.gather, torch.take_along_dim, Tensor.__getitem__),
)


class Compared(NamedTuple):
    """Outputs of the model and targets [N, ...] that a loss compares, and the writes to both.

    It is sure if a difference or a loss function compares them.
    """

    outputs: Tensor
    targets: Tensor
    versions: tuple[int, ...]
    is_sure: bool


class _Derived(NamedTuple):
    """A tensor that was computed from the outputs of a model.

    Attributes:
        tensor: The tensor. A reference, because its id may be used again otherwise.
        source: What is compared if the tensor is.
        compared: What its computation compared; None if nothing yet.
        origin: Number [] of the call that returned the first value that is not finite, -1 for none.
    """

    tensor: Tensor
    source: Tensor
    compared: Compared | None = None
    origin: Tensor | None = None


class LossOperations:
    """Finds the outputs and targets of losses that no known function computes.

    Modules with parameters that are called meanwhile are not observed, because some of torch's
    compute otherwise then. What they return counts as outputs. But a module that has returned a
    single number with a gradient may compute the loss: later calls are observed within it.

    Attributes:
        is_wanted: Whether saved steps are observed: an earlier loss was unknown.
        numbers: Number of each observed call of the script, by name and line.
        gradient: Number [] of the call with the first gradient that is not finite, in the order of
            the backward pass; -1 for none, None before it.
    """

    def __init__(self, failures: FailureLog) -> None:
        self.is_wanted = self._is_hopeless = False
        self.numbers: dict[str, int] = {}
        self.gradient: Tensor | None = None
        self._failures = failures
        self._observed = ObservedCalls(
            self._on_call, failures, _PART, is_opaque=self._is_opaque, on_return=self._on_return
        )
        self._with_loss: WeakSet[nn.Module] = WeakSet()  # modules that return single numbers
        self._in_pass: WeakSet[nn.Module] = WeakSet()
        self._by_parts: WeakSet[nn.Module] = WeakSet()  # models whose parts are called instead
        self._derived: dict[int, _Derived] = {}
        self._thread: int | None = None  # of the newest backward pass
        self._num_calls = self._num_bytes = self._num_without = 0
        self._was_asked = self._was_found = False

    @property
    def is_observing(self) -> bool:
        """Whether a model's outputs are known in this step."""
        return bool(self._derived)

    def want(self) -> None:
        """Observe later saved steps, unless several were observed in vain."""
        self._thread = threading.get_ident()
        self._by_parts.update(self._in_pass)
        self.is_wanted = not self._is_hopeless

    def begin_step(self) -> None:
        """Note that a saved step begins; give up after several in vain."""
        if self._was_asked:
            self._num_without = 0 if self._was_found else self._num_without + 1
            self._is_hopeless = self._num_without >= _MAX_STEPS_WITHOUT
            self.is_wanted &= not self._is_hopeless
        self._was_asked = self._was_found = False
        self.gradient = None
        self.forget()

    def pass_begins(self, model: nn.Module) -> None:
        """Observe what is computed in a model if it returns a loss, or is called by parts."""
        self._in_pass.add(model)
        if threading.get_ident() != self._thread:
            return
        if model in self._with_loss:
            self._observed.begin(model)
        elif model in self._by_parts:
            self._observed.begin(awaits_return=True)

    def pass_ends(self, model: nn.Module, outputs: Any) -> None:
        """Observe what is computed from the outputs of a model."""
        self._in_pass.discard(model)
        is_of_thread = threading.get_ident() == self._thread
        if is_of_thread and (self._observed.is_on or self._observed.begin()):
            self._on_return(model, outputs)

    def pause(self) -> None:
        """Stop observing until a model returns again, and keep what is known."""
        self._observed.end()

    def forget(self) -> None:
        """Stop observing, and forget the step."""
        self.pause()
        self._derived.clear()
        self._num_calls = self._num_bytes = 0

    def compared(self, loss: Tensor) -> Compared | None:
        """Return what a loss compares; None if it is not known to be derived from outputs."""
        self._was_asked = True
        derived = self._derived.get(id(loss))
        found = None if derived is None else derived.compared
        if found is None or versions_of(found[:2]) != found.versions:
            return None
        self._was_found = True
        return found._replace(outputs=found.outputs.detach(), targets=found.targets.detach())

    def origin(self, loss: Tensor) -> Tensor | None:
        """Return the number [] of the call that made a loss not finite; None if unknown."""
        derived = self._derived.get(id(loss))
        return None if derived is None else derived.origin

    def only_comparison(self, loss: Tensor) -> Compared | None:
        """Return what a loss compares, if nothing else is compared with data in this step."""
        found = {each.compared for each in self._derived.values() if each.compared is not None}
        return self.compared(loss) if sum(each.is_sure for each in found) == 1 else None

    def _is_opaque(self, module: nn.Module) -> bool:
        has_parameters = next(module.parameters(), None) is not None
        return has_parameters and not (is_a_key(module) and module in self._with_loss)

    def _on_return(self, module: nn.Module, outputs: Any) -> None:
        for tensor in tensors_in(outputs):
            if tensor.requires_grad and not tensor.dim() and is_a_key(module):
                self._with_loss.add(module)
            is_whole = type(tensor) in WHOLE and not tensor.is_nested
            is_loss = id(tensor) in self._derived and tensor.numel() == 1  # computed in the module
            if tensor.requires_grad and is_whole and not is_loss:
                self._derived[id(tensor)] = _Derived(tensor, tensor)

    def _on_call(self, function: Any, arguments: tuple[Any, ...], result: Any) -> None:
        given = tensors_in(arguments)
        derived = [self._derived[id(tensor)] for tensor in given if id(tensor) in self._derived]
        if not derived or self._num_calls >= _MAX_CALLS or self._num_bytes >= _MAX_BYTES:
            return
        self._num_calls += 1
        compared = self._found_in(function, arguments, derived)
        number, is_kept = self._number_of(function), _keeps_source(function, derived)
        results = [value for value in tensors_in(result) if value.requires_grad]
        for each in derived if results else ():  # no gradient flows through `argmax` or `.shape`
            if each.tensor.requires_grad and not each.tensor.is_leaf:
                each.tensor.register_hook(partial(self._on_gradient, number))  # type: ignore[no-untyped-call]
        for value in results:
            origin = _origin(value, number, *(each.origin for each in derived))
            if id(value) in self._derived:  # a call in place
                self._derived[id(value)] = self._derived[id(value)]._replace(origin=origin)
                continue
            source = derived[0].source if is_kept else value
            self._derived[id(value)] = _Derived(value, source, compared, origin)
            self._num_bytes += value.nbytes

    def _number_of(self, function: Any) -> int:
        name, line = getattr(function, "__name__", "").strip("_"), script_line()
        return self.numbers.setdefault(f"{name} at {line}" if line else name, len(self.numbers))

    def _on_gradient(self, number: int, gradient: Tensor) -> None:
        try:
            origin = _origin(gradient, number)
            before = self.gradient
            if before is None:
                self.gradient = origin
            elif origin is not None and before.device == origin.device:
                self.gradient = torch.where(before < 0, origin, before)
        except Exception as error:  # noqa: BLE001 - the backward pass continues after any error
            self._failures.failed(_PART, error)

    def _found_in(
        self, function: Any, arguments: tuple[Any, ...], derived: list[_Derived]
    ) -> Compared | None:
        """Return what a call compares, or else what the computation of its arguments compared."""
        found = [each.compared for each in derived if each.compared is not None]
        known = max(found, key=lambda compared: compared.is_sure, default=None)
        is_sure = id(function) in _DIFFERENCES
        may_compare = is_sure or (
            id(function) in _MAY_COMPARE and _is_no_choice(function, arguments)
        )
        if may_compare and (known is None or (is_sure and not known.is_sure)):
            first = derived[0]
            others = (each for each in tensors_in(arguments) if id(each) not in self._derived)
            targets = [other for other in others if _may_be_targets(other, first.tensor)]
            if targets:
                pair = first.source, targets[-1]
                return Compared(*pair, versions_of(pair), is_sure)
        return known


def _origin(value: Tensor, number: int, *before: Tensor | None) -> Tensor | None:
    """Return the number [] of the call that first returned a value that is not finite.

    `before` are the results for the call's arguments. Nothing waits for the device. None if it
    cannot be known, -1 if the value is finite.
    """
    if type(value) not in WHOLE or value.is_nested or value.layout is not torch.strided:
        return None
    with torch.no_grad():
        known = [of for of in before if of is not None and of.device == value.device]
        is_finite = value.isfinite().all()
        known = known or [torch.full_like(is_finite, -1, dtype=torch.int64)]
        earlier = torch.stack(known).amax()
        return torch.where(is_finite, -1, torch.where(earlier < 0, number, earlier))


def _keeps_source(function: Any, derived: Sequence[_Derived]) -> bool:
    """Return whether what a call returns is compared for what its arguments are computed from."""
    is_difference = id(function) in _DIFFERENCES and len(derived) > 1
    is_of_one = is_difference and len({id(each.source) for each in derived}) == 1
    return id(function) in _LOGARITHMS or is_of_one


def _is_no_choice(function: Any, arguments: tuple[Any, ...]) -> bool:
    """Return whether a call does not only choose rows, as `outputs[rows]` does."""
    return function is not Tensor.__getitem__ or (
        isinstance(arguments[1], tuple) and len(tensors_in(arguments[1])) > 1
    )


def _may_be_targets(other: Tensor, outputs: Tensor) -> bool:
    """Return whether a tensor may be the targets of outputs: data, for the same rows.

    One element per row is enough, whatever its shape.
    """
    is_data = type(other) is Tensor and not other.requires_grad and not other.is_nested
    if not is_data or not other.dim() or not outputs.dim() or other.dtype is torch.bool:
        return False
    return outputs.shape[0] in (other.shape[0], other.numel())
