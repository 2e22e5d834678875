"""Observes how a script computes a loss from a model's outputs, if no known function returned it.

For example, `((outputs - targets) ** 2).mean()` shows neither outputs nor targets. So the calls of
torch between the end of a forward pass and the backward pass are observed in saved steps. The first
call that takes a tensor derived from the outputs, and one without gradient for the same rows,
compares outputs and targets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from hook_layer.pytorch.calls import tensors_in, versions_of
from hook_layer.pytorch.function_mode import ObservedCalls, has_compiled_anything
from hook_layer.pytorch.tensor_elements import WHOLE

__all__ = ["Compared", "LossOperations", "standard_losses"]

_MAX_CALLS: Final = 256
"""Maximum observed calls of torch in a step: a loss that needs more is not explained."""
_MAX_STEPS_WITHOUT: Final = 3
"""Saved steps in which no comparison was found, after which observing ends."""
_LOGARITHMS: Final = frozenset(
    id(function)
    for function in (
        *(torch.log, Tensor.log, torch.log_softmax, Tensor.log_softmax),
        *(F.log_softmax, F.logsigmoid),
    )
)
"""What they return is compared for what they got. By id: some functions are not hashable."""
_LEAST_LOGARITHM: Final = -100.0
"""Of probabilities, as in torch's binary cross entropy."""
_LEAST_PROBABILITY: Final = 1e-7
"""In a cross entropy of probabilities, as in Keras."""


class Compared(NamedTuple):
    """What a loss compares, detached.

    Attributes:
        outputs: Outputs of the model, as the loss gets them [N, ...].
        targets: What they are compared with [N, ...].
    """

    outputs: Tensor
    targets: Tensor


class LossOperations:
    """Finds the outputs and targets of losses that no known function computes.

    Attributes:
        is_wanted: Whether saved steps are observed: an earlier loss was unknown.
    """

    def __init__(self) -> None:
        self.is_wanted = self._is_hopeless = False
        self._observed = ObservedCalls(self._on_call)
        # Strong references, until the backward pass begins: an id may be used again.
        self._derived: dict[int, tuple[Tensor, Tensor]] = {}
        self._pair: tuple[Tensor, Tensor, tuple[int, ...]] | None = None
        self._num_calls = self._num_without = 0

    @property
    def is_observing(self) -> bool:
        """Whether a model's outputs are known in this step."""
        return bool(self._derived)

    def want(self) -> None:
        """Observe later saved steps, unless several were observed in vain."""
        self.is_wanted = not self._is_hopeless

    def pass_ends(self, outputs: Any) -> None:
        """Observe what is computed from the outputs of a model."""
        tensors = [tensor for tensor in tensors_in(outputs) if tensor.requires_grad]
        if not tensors or self._observed.is_on or has_compiled_anything():
            return
        self._derived.update((id(tensor), (tensor, tensor)) for tensor in tensors)
        self._observed.begin()

    def pause(self) -> None:
        """Stop observing until a model returns again, and keep what is known."""
        self._observed.end()

    def forget(self) -> None:
        """Stop observing, and forget the step."""
        self._observed.end()
        self._derived.clear()
        self._pair = None
        self._num_calls = 0

    def compared(self, loss: Tensor) -> Compared | None:
        """Return what a loss compares; None if it is not known to be derived from outputs."""
        pair = self._pair if id(loss) in self._derived else None
        self._num_without = 0 if pair is not None else self._num_without + 1
        self._is_hopeless = self._num_without >= _MAX_STEPS_WITHOUT
        self.is_wanted = not self._is_hopeless
        if pair is None or versions_of(pair[:2]) != pair[2]:
            return None
        return Compared(pair[0].detach(), pair[1].detach())

    def _on_call(
        self, function: Any, args: tuple[Any, ...], keywords: Mapping[str, Any], result: Any
    ) -> None:
        if self._num_calls >= _MAX_CALLS:
            return
        given = tensors_in((*args, *keywords.values()))
        derived = [self._derived[id(tensor)] for tensor in given if id(tensor) in self._derived]
        if not derived:
            return
        self._num_calls += 1
        tensor, source = derived[0]
        for value in tensors_in(result):
            if value.requires_grad and id(value) not in self._derived:
                is_logarithm = id(function) in _LOGARITHMS
                self._derived[id(value)] = value, source if is_logarithm else value
        others = (other for other in given if id(other) not in self._derived)
        targets = [other for other in others if _may_be_targets(other, tensor)]
        if targets and self._pair is None:
            self._pair = source, targets[-1], versions_of((source, targets[-1]))


def _may_be_targets(other: Tensor, outputs: Tensor) -> bool:
    """Return whether a tensor may be the targets of outputs: data, for the same rows.

    One element per row is enough, whatever its shape.
    """
    is_data = not other.requires_grad and not isinstance(other, nn.Parameter)
    if not is_data or not other.dim() or not outputs.dim():
        return False
    has_rows = outputs.shape[0] in (other.shape[0], other.numel())
    return has_rows and other.dtype is not torch.bool and type(other) in WHOLE


def standard_losses(compared: Compared) -> dict[str, Tensor]:
    """Return the values [] of usual losses of the same outputs and targets, by class name.

    Nothing waits for the device. Values out of a loss's domain are clipped to it, so that the
    result differs from the script's loss.
    """
    outputs, targets = compared
    if outputs.layout is not torch.strided or targets.layout is not torch.strided:
        return {}
    if not outputs.is_floating_point() or targets.is_complex():
        return {}
    with torch.no_grad():
        return dict(_standard(outputs.float(), targets))


def _standard(outputs: Tensor, targets: Tensor) -> Iterator[tuple[str, Tensor]]:
    if targets.is_floating_point() and targets.shape == outputs.shape:
        # Not by torch's loss functions: the hook listens to those.
        errors = outputs - targets.float()
        yield "MSELoss", errors.square().mean()
        yield "L1Loss", errors.abs().mean()
        shares = targets.float().clamp(0, 1)
        right = outputs.clamp(0, 1).log().clamp(min=_LEAST_LOGARITHM)
        wrong = (1 - outputs.clamp(0, 1)).log().clamp(min=_LEAST_LOGARITHM)
        yield "BCELoss", -(shares * right + (1 - shares) * wrong).mean()
        yield (
            "BCEWithLogitsLoss",
            (outputs.logaddexp(torch.zeros_like(outputs)) - outputs * shares).mean(),
        )
    elif targets.is_floating_point() or outputs.dim() != 2:  # noqa: PLR2004 - rows and classes
        return
    if outputs.dim() == 2 and outputs.shape[1] > 1:  # noqa: PLR2004
        yield from _of_classes(outputs, targets)


def _of_classes(scores: Tensor, targets: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield cross entropies of scores [N, C] for class numbers [N] or rows of shares [N, C]."""
    if targets.shape == scores.shape:
        shares = targets.float()
    elif targets.numel() == len(scores):
        # An index out of range would end the process on a GPU.
        classes = targets.reshape(-1).long().clamp(0, scores.shape[1] - 1)
        shares = F.one_hot(classes, scores.shape[1]).float()
    else:
        return
    logarithms = {
        "CrossEntropyLoss": scores.log_softmax(1),
        "NLLLoss": scores,
        "CategoricalCrossentropyLoss": scores.clamp(_LEAST_PROBABILITY, 1).log(),
    }
    for name, values in logarithms.items():
        yield name, -(shares * values).sum(1).mean()
