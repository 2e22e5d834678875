"""Faults that several programs share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.program import Run

__all__ = [
    "constant",
    "drawn_",
    "few",
    "filled_",
    "grad_unless_frozen",
    "imbalanced",
    "imbalanced_throughout",
    "leaking",
    "scaled_",
    "shifted_",
    "shuffled",
    "with_fault",
]

Modules = Iterable[nn.Module]


def with_fault(run: Run, split: Split, *, rows: int = 0, one_in: int = 0) -> Split:
    """Return data with the fault of data that is injected, if it is one that many programs share.

    Args:
        run: The run.
        split: The data without a fault.
        rows: Number of training rows for `overfit`.
        one_in: One in so many rows of rare classes stays for `class_imbalance`.
    """
    if run.injects("labels_shuffled"):
        return shuffled(split, run.seed)
    if run.injects("labels_constant"):
        return constant(split)
    if run.injects("class_imbalance"):
        return imbalanced(split, one_in)
    return few(split, rows) if run.injects("overfit") else split


def shuffled(split: Split, seed: int) -> Split:
    """Return data whose training targets are those of other rows."""
    order = torch.randperm(len(split.targets), generator=torch.Generator().manual_seed(seed))
    return split._replace(targets=split.targets[order])


def constant(split: Split) -> Split:
    """Return data whose training targets are all that of the first row."""
    return split._replace(targets=split.targets[:1].expand_as(split.targets).clone())


def imbalanced(split: Split, one_in: int) -> Split:
    """Return data with all rows of class 0 and one in so many of every other class."""
    keep = split.targets == 0
    for label in split.targets.unique()[1:]:
        rows = (split.targets == label).nonzero()[:, 0]
        keep[rows[: max(len(rows) // one_in, 1)]] = True
    return split._replace(inputs=split.inputs[keep], targets=split.targets[keep])


def imbalanced_throughout(split: Split, one_in: int) -> Split:
    """Return data that is imbalanced as by `imbalanced`, for validation, too."""
    swapped = Split(split.valid_inputs, split.valid_targets, split.inputs, split.targets)
    valid = imbalanced(swapped, one_in)
    train = imbalanced(split, one_in)
    return train._replace(valid_inputs=valid.inputs, valid_targets=valid.targets)


def few(split: Split, rows: int) -> Split:
    """Return data with so many rows for training."""
    return split._replace(inputs=split.inputs[:rows], targets=split.targets[:rows])


def leaking(split: Split, scale: float = 1.0) -> Split:
    """Return data with the target as one more column, of inputs [B, columns]."""

    def beside(inputs: Tensor, targets: Tensor) -> Tensor:
        return torch.cat([inputs, scale * targets[:, None].float()], 1)

    return split._replace(
        inputs=beside(split.inputs, split.targets),
        valid_inputs=beside(split.valid_inputs, split.valid_targets),
    )


def grad_unless_frozen(run: Run) -> torch.set_grad_enabled:
    """Return a context without gradients if `frozen_layer` is injected."""
    return torch.set_grad_enabled(torch.is_grad_enabled() and not run.injects("frozen_layer"))


@torch.no_grad()
def filled_(
    run: Run, fault: str, modules: Modules, value: float, *, only_weights: bool = False
) -> None:
    """Set all parameters, or all weights, to one value if a fault is injected."""
    if run.injects(fault):
        for parameter in _parameters(modules, only_weights=only_weights):
            parameter.fill_(value)


@torch.no_grad()
def drawn_(
    run: Run, fault: str, modules: Modules, std: float, *, only_weights: bool = False
) -> None:
    """Draw all parameters, or all weights, from a normal distribution if a fault is injected."""
    if run.injects(fault):
        for parameter in _parameters(modules, only_weights=only_weights):
            parameter.normal_(0.0, std)


@torch.no_grad()
def scaled_(run: Run, fault: str, modules: Modules, factor: float) -> None:
    """Multiply all weights, which have two dimensions or more, if a fault is injected."""
    if run.injects(fault):
        for parameter in _parameters(modules, only_weights=True):
            parameter.mul_(factor)


@torch.no_grad()
def shifted_(run: Run, fault: str, layers: Modules, by: float) -> None:
    """Add to the biases of layers if a fault is injected."""
    for layer in layers:
        bias = getattr(layer, "bias", None)
        if run.injects(fault) and isinstance(bias, Tensor):
            bias.add_(by)


def _parameters(modules: Modules, *, only_weights: bool) -> Iterator[nn.Parameter]:
    for module in modules:
        for parameter in module.parameters():
            if parameter.dim() > 1 or not only_weights:
                yield parameter
