"""The training loop that the PyTorch programs share, and the hook that watches it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, windows
from benchmarks.detection.hook_configuration import hook_configuration
from benchmarks.detection.program import STALLS_AT, Hanging, Run
from hook_layer.pytorch import Hook, modes

__all__ = [
    "Batches",
    "Loop",
    "NextLetter",
    "batches_of",
    "classes",
    "error_rate",
    "fit",
    "is_positive",
    "nearest_class",
    "next_letter",
    "perplexity",
    "text_batches",
    "unexplained",
]

_OVERFLOWING_SCALE: Final = 2.0**24
Batches = Iterator[tuple[Tensor, Tensor]]


@dataclass
class Loop:
    """How a program trains.

    Attributes:
        model: The model.
        criterion: From outputs and targets to a loss. The hook registers a module. In a function
            it sees the functions of torch.
        optimizer: The optimiser.
        steps: Number of training steps.
        scheduler: Called after each step, if there is one.
        clip: Largest norm of all gradients together, if they are clipped. With the fault
            `exploding_rnn` they are not.
        save_interval: Steps between two that the hook saves.
        eval_every: Steps between two looks at validation data.
        predict: From outputs to what is saved as predictions beside the labels, if anything is.
    """

    model: nn.Module
    criterion: Callable[[Tensor, Tensor], Tensor]
    optimizer: torch.optim.Optimizer
    steps: int
    scheduler: torch.optim.lr_scheduler.LRScheduler | None = None
    clip: float | None = None
    save_interval: int = 5
    eval_every: int = 50
    predict: Callable[[Tensor], Tensor] | None = None


def fit(
    run: Run,
    loop: Loop,
    batches: Batches,
    valid: list[tuple[Tensor, Tensor]],
    error: Callable[[Tensor, Tensor], float] | None = None,
) -> float:
    """Train, and return the validation error of the last model; infinite if it is not finite.

    Args:
        run: The run.
        loop: How to train.
        batches: Inputs and targets of each step.
        valid: Batches of validation data.
        error: From outputs and targets of all validation data to their error; NaN without it.
    """
    hook = _hook(run, loop)
    hook.set_mode(modes.TRAIN)
    found = math.inf
    try:
        for step in range(loop.steps):
            if run.injects("stalled") and step >= STALLS_AT * loop.steps:
                raise Hanging
            _train(run, loop, hook, *next(batches))
            if (step + 1) % loop.eval_every == 0 or step + 1 == loop.steps:
                found = _validate(loop, hook, valid, error)
    finally:
        hook.close(end_of_training=not run.injects("stalled"))
    if error is None:
        return math.nan
    return found if math.isfinite(found) else math.inf


def batches_of(split: Split, size: int, seed: int) -> Batches:
    """Yield shuffled batches, epoch after epoch, without end.

    Args:
        split: The data.
        size: Rows of a batch; what is left of an epoch is dropped.
        seed: Of the order.
    """
    random = torch.Generator().manual_seed(seed)
    size = min(size, len(split.inputs))
    while True:
        order = torch.randperm(len(split.inputs), generator=random)
        for start in range(0, len(order) - size + 1, size):
            rows = order[start : start + size]
            yield split.inputs[rows], split.targets[rows]


def next_letter(scores: Tensor, letters: Tensor) -> Tensor:
    """Return the cross entropy of scores [B, length, letters] and letters, int64 [B, length]."""
    return nn.functional.cross_entropy(scores.flatten(0, 1), letters.flatten())


class NextLetter(nn.Module):
    """The loss `next_letter` as a module."""

    def forward(self, scores: Tensor, letters: Tensor) -> Tensor:
        """Return the mean over scores [B, length, letters] and letters, int64 [B, length]."""
        return next_letter(scores, letters)


def perplexity(scores: Tensor, letters: Tensor) -> float:
    """Return the exponential of the cross entropy, at most 1e9."""
    return math.exp(min(float(next_letter(scores, letters)), math.log(1e9)))


def text_batches(text: Tensor, size: int, length: int, seed: int) -> Batches:
    """Yield pieces of a text from random places, and the same one letter later, without end.

    Args:
        text: Numbers of letters, int64 [letters].
        size: How many pieces at once.
        length: Their length, letters.
        seed: Of the places.
    """
    random = torch.Generator().manual_seed(seed)
    while True:
        yield windows(
            text, torch.randint(len(text) - length - 1, (size,), generator=random), length
        )


def classes(outputs: Tensor) -> Tensor:
    """Return the most likely class of each row, int64 [B], of scores [B, classes]."""
    return outputs.argmax(-1)


def nearest_class(outputs: Tensor, count: int) -> Tensor:
    """Return the class whose number is nearest to one output, int64 [B], of outputs [B, 1]."""
    return outputs.squeeze(1).round().clamp(0, count - 1).long()


def is_positive(outputs: Tensor) -> Tensor:
    """Return zeros and ones, float32, of logits."""
    return (outputs > 0).float()


def error_rate(outputs: Tensor, targets: Tensor) -> float:
    """Return the share of rows whose most likely class is another one."""
    if not outputs.isfinite().all():
        return 1.0
    return float((classes(outputs) != targets).float().mean())


def unexplained(outputs: Tensor, targets: Tensor) -> float:
    """Return the share of the targets' variance that the outputs do not explain, 1 - R2."""
    return float((outputs - targets).square().mean() / targets.var(correction=0))


def _train(run: Run, loop: Loop, hook: Hook, inputs: Tensor, targets: Tensor) -> None:
    loop.model.train()
    loop.optimizer.zero_grad()
    is_half = run.injects("fp16_overflow")
    with torch.autocast("cpu", torch.float16, enabled=is_half):
        outputs = loop.model(inputs)
    loss = loop.criterion(outputs.float(), targets)
    _save_answers(loop, hook, outputs, targets)
    scale = _OVERFLOWING_SCALE if is_half else 1.0
    (loss * scale).backward() if is_half else loss.backward()
    if is_half:
        for parameter in loop.model.parameters():
            parameter.grad = None if parameter.grad is None else parameter.grad / scale
    if loop.clip is not None and not run.injects("exploding_rnn"):
        nn.utils.clip_grad_norm_(loop.model.parameters(), loop.clip)
    loop.optimizer.step()
    if loop.scheduler is not None:
        loop.scheduler.step()


@torch.no_grad()
def _validate(
    loop: Loop,
    hook: Hook,
    valid: list[tuple[Tensor, Tensor]],
    error: Callable[[Tensor, Tensor], float] | None,
) -> float:
    hook.set_mode(modes.EVAL)
    loop.model.eval()
    found = []
    for inputs, targets in valid:
        outputs = loop.model(inputs)
        loop.criterion(outputs, targets)
        _save_answers(loop, hook, outputs, targets)
        found.append(outputs)
    hook.set_mode(modes.TRAIN)
    if error is None:
        return math.nan
    return error(torch.cat(found), torch.cat([targets for _, targets in valid]))


def _save_answers(loop: Loop, hook: Hook, outputs: Tensor, targets: Tensor) -> None:
    if loop.predict is not None:
        hook.save_tensor("labels", targets, "labels")
        hook.save_tensor("predictions", loop.predict(outputs.detach()), "predictions")


def _hook(run: Run, loop: Loop) -> Hook:
    torch.set_num_threads(1)
    hook = Hook.create_from_json_file(hook_configuration(run, loop.save_interval))
    hook.register_module(loop.model)
    if isinstance(loop.criterion, nn.Module):
        hook.register_loss(loop.criterion)
    return hook
