"""The usual losses of what a script's own loss compares, and which of them it equals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from hook_layer.pytorch.loss_operations import Compared

__all__ = ["FormulaMatches", "standard_losses"]

_MAX_ELEMENTS: Final = 1 << 20
"""Maximum outputs of which usual losses are computed, which takes seven times their memory."""
_LEAST_LOGARITHM: Final = -100.0
"""Of probabilities, as in torch's binary cross entropy."""
_LEAST_PROBABILITY: Final = 1e-7
"""In a cross entropy of probabilities, as in Keras."""
_TOLERANCE: Final = 1e-4
"""Relative error of a recomputed loss: sums in float32 or of half-precision outputs."""


def standard_losses(compared: Compared) -> dict[str, Tensor]:
    """Return the values [] of usual losses of the same outputs and targets, by class name.

    Nothing waits for the device. Values out of a loss's domain are clipped to it, so that the
    result differs from the script's loss. There are none for very many outputs.
    """
    outputs, targets = compared.outputs, compared.targets
    if outputs.layout is not torch.strided or targets.layout is not torch.strided:
        return {}
    if not outputs.is_floating_point() or targets.is_complex() or outputs.numel() > _MAX_ELEMENTS:
        return {}
    with torch.no_grad():
        return dict(_standard(outputs.float(), targets))


def _standard(outputs: Tensor, targets: Tensor) -> Iterator[tuple[str, Tensor]]:
    if targets.shape == outputs.shape:
        # Not by torch's loss functions: the hook listens to those.
        errors = outputs - targets.float()
        yield "MSELoss", errors.square().mean()
        sizes = errors.abs()
        yield "L1Loss", sizes.mean()
        yield "HuberLoss", torch.where(sizes < 1, errors.square() / 2, sizes - 0.5).mean()
        shares = targets.float().clamp(0, 1)
        right = outputs.clamp(0, 1).log().clamp(min=_LEAST_LOGARITHM)
        wrong = (1 - outputs.clamp(0, 1)).log().clamp(min=_LEAST_LOGARITHM)
        yield "BCELoss", -(shares * right + (1 - shares) * wrong).mean()
        softplus = outputs.logaddexp(torch.zeros_like(outputs))
        yield "BCEWithLogitsLoss", (softplus - outputs * shares).mean()
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


class FormulaMatches:
    """Counts the saved steps in a row at which a loss equals each usual loss.

    A single match may be chance. A step with the loss of the step before is no new match.
    """

    def __init__(self) -> None:
        self._names: tuple[str, ...] = ()
        self._loss = self._counts = torch.zeros(())

    def count(
        self, loss: Tensor, standard: Mapping[str, Tensor], outputs: Tensor
    ) -> dict[str, Tensor]:
        """Return the counts [] after this step, by class name. Nothing waits for the device.

        The loss may be a mean, a sum over rows or a sum over elements of outputs [N, ...].
        """
        names, device = (*standard,), outputs.device
        if not names or loss.device != device or loss.is_complex():
            return {}
        if names != self._names or self._counts.device != device:
            self._names, self._counts = names, torch.zeros(len(names), device=device)
            self._loss = torch.full((), torch.nan, device=device)
        with torch.no_grad():
            now = loss.float().reshape(()).clone()
            values, factors = torch.stack([*standard.values()]), {1, len(outputs), outputs.numel()}
            errors = torch.stack([(now - factor * values).abs() for factor in factors]).amin(0)
            is_match = errors <= _TOLERANCE * now.abs()
            self._counts = is_match * (self._counts + (now != self._loss))
            self._loss = now
        return dict(zip(names, self._counts, strict=True))
