"""Measures what happens to gradients between the backward pass and the optimizer's step.

A script may clip them there, and a gradient scaler divides them by its scale. The norms are
measured in saved steps, once the script has written to a gradient in between.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import ReferenceType, ref

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer

from hook_layer.pytorch.amp import dense_gradients
from hook_layer.pytorch.calls import versions_of

__all__ = ["GradientNorms"]


@dataclass
class _Gradients:
    """The gradients of an optimizer after the newest backward pass of a saved step.

    Attributes:
        optimizer: The optimizer.
        versions: Number of writes to each; empty without a backward pass.
        norm: Their norm []; None if it was not measured.
    """

    optimizer: ReferenceType[Optimizer]
    versions: tuple[int, ...] = ()
    norm: Tensor | None = None


class GradientNorms:
    """Measures the norms of gradients after the backward pass and at the optimizer's step."""

    def __init__(self) -> None:
        # By id: optimizers of scripts may not be hashable.
        self._known: dict[int, _Gradients] = {}
        self._are_written = False
        self._norms: tuple[Tensor, Tensor] | None = None

    def begin_step(self) -> None:
        """Forget the gradients of the previous saved step."""
        known = (of.optimizer for of in self._known.values() if of.optimizer() is not None)
        self._known = {id(optimizer()): _Gradients(optimizer) for optimizer in known}

    def backward_ends(self) -> None:
        """Note the gradients of the optimizers after a backward pass of a saved step."""
        for of in self._known.values():
            optimizer = of.optimizer()
            gradients = [] if optimizer is None else [*dense_gradients(optimizer)]
            of.versions = versions_of(gradients)
            of.norm = _norm(gradients) if self._are_written and gradients else None

    def step_begins(self, optimizer: Optimizer, scale: Tensor | None) -> None:
        """Measure the gradients that an optimizer is about to use in a saved step.

        Args:
            optimizer: The optimizer.
            scale: By what a gradient scaler has multiplied the loss; None without one.
        """
        of = self._known.setdefault(id(optimizer), _Gradients(ref(optimizer)))
        gradients = [*dense_gradients(optimizer)] if of.versions else []
        if not gradients:
            return
        self._are_written |= versions_of(gradients) != of.versions
        if of.norm is not None:
            norm = of.norm if scale is None else of.norm / scale.to(of.norm.device)
            self._norms = norm, _norm(gradients)

    def facts(self) -> dict[str, Tensor]:
        """Return the norms of the newest optimizer step in a saved step, once, unscaled.

        A step of which nothing else is awaited may be complete before its optimizer steps. Then the
        next one has its norms.
        """
        norms, self._norms = self._norms, None
        names = ("gradient_norm", "gradient_norm_at_step")
        return {
            f"optimizer_steps/{name}": norm for name, norm in zip(names, norms or (), strict=False)
        }


def _norm(gradients: list[Tensor]) -> Tensor:
    """Return the norm [] of all gradients together."""
    with torch.no_grad():
        norms = [torch.linalg.vector_norm(gradient).float() for gradient in gradients]
        whole: Tensor = torch.linalg.vector_norm(
            torch.stack([n.to(norms[0].device) for n in norms])
        )
        return whole
