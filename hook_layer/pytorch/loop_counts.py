"""Counts faults of a training loop, and measures gradients: the collection `optimizer_steps`."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any, Final
from weakref import ReferenceType, ref

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.optim.optimizer import Optimizer

from hook_layer.pytorch.amp import dense_gradients, parameters_of
from hook_layer.pytorch.calls import versions_of

__all__ = ["MANY_WITHOUT_EFFECT", "GradientNorms", "LoopCounts", "has_gradient"]

MANY_WITHOUT_EFFECT: Final = 5
"""Number of consecutive steps without any gradient that count as a fault."""
_CHANGED_BY_MODE: Final = _BatchNorm, _DropoutNd
"""Layers that behave differently in training and evaluation mode."""


class LoopCounts:
    """Counts faults of the training loop, for all optimizers of a process.

    Attributes:
        without_gradient: Consecutive steps in which no parameter of the optimizer had a gradient.
        had_gradient: Whether the optimizer had a gradient when its step began.
        num_passes: Forward passes with gradients since an optimizer stepped.
        validated: The model of the newest pass, if that may be validation in training mode.
    """

    def __init__(self) -> None:
        self.without_gradient = 0
        self._of_others = self.num_passes = self._most_passes = self._num_steps = 0
        self._passes_before_recording = 0
        self._has_backward = False  # in the open step
        self._ungraded: int | None = None  # parameters without a gradient, in the open step
        self.had_gradient = False
        self._done: set[int] = set()  # optimizers that stepped since the last call of their scaler
        self._skipped: dict[int, int | Tensor] = {}
        self._last: ReferenceType[Optimizer] | None = None
        self._own: set[int] = set()  # optimizers of the watched models that have stepped
        # Consecutive steps without a gradient, by id, because some are not hashable. Of optimizers
        # of other parameters: steps if there never was one.
        self._idle: dict[int, tuple[ReferenceType[Optimizer], float]] = {}
        self._are_left: Tensor | None = None  # whether earlier gradients remain
        self._scale: Tensor | None = None
        self._rate: float | Tensor | None = None
        self._in_training_mode = 0
        self.validated: ReferenceType[nn.Module] | None = None

    def backward_begins(self, *, is_recorded: bool) -> None:
        """Note that a backward pass begins."""
        is_first, self._has_backward = not self._has_backward, True
        # A saved step may begin in the middle of an accumulation.
        is_amid = is_first and self._passes_before_recording > 0
        if is_recorded and not is_amid and (is_first or self._are_left is not None):
            self._check_gradients()

    def recording_begins(self) -> None:
        """Note that a saved step begins."""
        self._ungraded = None
        self._are_left = None
        self._has_backward = False
        self._passes_before_recording = max(self.num_passes - 1, 0)

    def _check_gradients(self) -> None:
        """Check whether the optimizer still has a gradient before a backward pass adds to it.

        One parameter is enough. The result stays on the device, so that nothing waits for it.
        """
        optimizer = None if self._last is None else self._last()
        gradients = () if optimizer is None else dense_gradients(optimizer)
        first = next(iter(gradients), None)
        is_left = torch.tensor(data=False) if first is None else first.ne(0).any()
        # If a step has several backward passes, gradients may be cleared before any of them.
        self._are_left = is_left if self._are_left is None else self._are_left & is_left

    def loss_outside_steps(self) -> None:
        """Note that a loss is computed after a forward pass that belongs to no step."""
        model = None if self.validated is None else self.validated()
        if model is None or torch.is_grad_enabled():
            return
        self.validated = None  # several losses of a pass count once
        # Without dropout and batch normalization, both modes compute the same.
        self._in_training_mode += any(
            getattr(part, "track_running_stats", False) or getattr(part, "p", 0) > 0
            for part in model.modules()
            if part.training and isinstance(part, _CHANGED_BY_MODE)
        )

    def step_ended(self, optimizer: Optimizer, *, is_ours: bool, is_recorded: bool) -> None:
        """Note that an optimizer has stepped."""
        # A closure computes gradients within the step, and some optimizers free them there.
        is_without_effect = not self.had_gradient and not has_gradient(optimizer)
        self.without_gradient = self.without_gradient + 1 if is_without_effect else 0
        self._of_others = 0 if is_ours else self._of_others + 1
        self._most_passes = max(self._most_passes, self.num_passes)
        self.num_passes = 0
        self._num_steps += 1
        self._done.add(id(optimizer))
        known, idle = self._idle.get(id(optimizer), (None, 0))
        idle = idle if known is not None and known() is optimizer else 0
        after = 0 if is_ours else -inf  # such as one whose parameters need no gradient
        is_idle = is_without_effect and (
            is_ours or any(parameter.requires_grad for parameter in parameters_of(optimizer))
        )
        self._idle[id(optimizer)] = ref(optimizer), idle + 1 if is_idle else after
        if is_ours:
            self._last = ref(optimizer)
            self._own.add(id(optimizer))
        if is_ours and is_recorded:
            self._rate = _largest_rate(optimizer)
            ungraded = [p for p in parameters_of(optimizer) if p.requires_grad and p.grad is None]
            self._ungraded = (self._ungraded or 0) + len(ungraded)
        found_inf = getattr(optimizer, "found_inf", None)  # a fused optimizer skips the step itself
        if isinstance(found_inf, Tensor):
            skipped = self._skipped.get(id(optimizer), 0)
            self._skipped[id(optimizer)] = (skipped + 1) * (found_inf.detach() > 0)

    def scaler_stepped(self, scaler: Any, optimizer: Optimizer, *, is_ours: bool) -> None:
        """Note that `GradScaler.step` has returned, whether or not the optimizer stepped."""
        key = id(optimizer)
        scale = getattr(scaler, "_scale", None)  # get_scale() would wait for the device
        if not is_ours or not isinstance(scale, Tensor):
            return
        self._scale = scale
        self.num_passes = 0
        if key not in self._done:
            self._skipped[key] = self._skipped.get(key, 0) + 1
        elif not isinstance(self._skipped.get(key), Tensor):
            self._skipped[key] = 0
        self._done.discard(key)

    def scale_of(self, optimizer: Optimizer) -> Tensor | None:
        """Return the newest loss scale if a gradient scaler steps an optimizer."""
        return self._scale if id(optimizer) in self._skipped else None

    def facts(self, *, are_all_of_others: bool) -> dict[str, Tensor]:
        """Return the counts by name.

        `are_all_of_others`: no optimizer of the script holds parameters of the model.
        """
        alive = [(key, num) for key, (known, num) in self._idle.items() if known() is not None]
        idle = [num for key, num in alive if key in self._own]
        unused = [num for key, num in alive if key not in self._own]
        counts: dict[str, float | Tensor] = {
            "without_gradient": max([self.without_gradient, *idle]),
            "of_unused_parameters": max([0, *unused]),
            "of_other_parameters": self._of_others if are_all_of_others else 0,
            "skipped": max(map(int, self._skipped.values()), default=0),
            "validation_passes_in_training_mode": self._in_training_mode,
        }
        if self._num_steps:
            # Passes without any backward pass, such as validation with gradients, do not train.
            counts["backward_passes_since"] = self.num_passes if self._has_backward else 0
            counts["backward_passes_per_step"] = self._most_passes
        if self._ungraded is not None:
            counts["parameters_without_gradient"] = self._ungraded
        if self._rate is not None:
            counts["learning_rate"] = self._rate
        # With several optimizers, each may clear its gradients just before its own backward pass.
        if self._are_left is not None and len(self._own) == 1:
            counts["gradients_left"] = self._are_left
        if self._scale is not None:
            counts["loss_scale"] = self._scale
        # One tensor for all numbers saves several calls of torch per number.
        numbers = {n: float(count) for n, count in counts.items() if not isinstance(count, Tensor)}
        tensors = dict(zip(numbers, torch.tensor([*numbers.values()]).unbind(), strict=True))
        tensors |= {n: c.detach().float() for n, c in counts.items() if isinstance(c, Tensor)}
        return {f"optimizer_steps/{name}": tensors[name] for name in counts}


def has_gradient(optimizer: Optimizer) -> bool:
    """Return whether any parameter of an optimizer has a gradient."""
    for group in optimizer.param_groups:  # a generator would cost a call per parameter
        for parameter in group["params"]:
            if parameter.grad is not None:
                return True
    return False


def _largest_rate(optimizer: Optimizer) -> float | Tensor | None:
    """Return the largest learning rate of an optimizer, or the first one that is a tensor."""
    rates = [group.get("lr") for group in optimizer.param_groups]
    tensors = [rate.detach() for rate in rates if isinstance(rate, Tensor)]
    # Comparing tensors would make the host wait for the device.
    numbers = (float(rate) for rate in rates if isinstance(rate, (int, float)))
    return tensors[0] if tensors else max(numbers, default=None)


@dataclass
class _Gradients:
    """The gradients of an optimizer after the newest backward pass of a saved step."""

    optimizer: ReferenceType[Optimizer]
    versions: tuple[int, ...] = ()  # without a backward pass, there are none
    norm: Tensor | None = None  # [], if it was measured


class GradientNorms:
    """Measures the norms of gradients after the backward pass and at the optimizer's step.

    A script may clip them there, and a gradient scaler divides them by its scale. The norms are
    measured in saved steps, once the script has written to a gradient in between.
    """

    def __init__(self) -> None:
        # By id: optimizers of scripts may not be hashable.
        self._known: dict[int, _Gradients] = {}
        self._are_written = self._are_cleared = False
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
        """Measure the gradients that an optimizer is about to use, and divide by their scale."""
        of = self._known.setdefault(id(optimizer), _Gradients(ref(optimizer)))
        gradients = [*dense_gradients(optimizer)] if of.versions else []
        self._are_cleared |= bool(of.versions) and not gradients
        if not gradients:
            return
        self._are_written |= versions_of(gradients) != of.versions
        if of.norm is not None:
            norm = of.norm if scale is None else of.norm / scale.to(of.norm.device)
            self._norms = norm, _norm(gradients)

    def facts(self) -> dict[str, Tensor]:
        """Return the norms of the newest optimizer step in a saved step, once, unscaled.

        `gradients_cleared` is 1 if the gradients of the backward pass were set to None before.

        A step of which nothing else is awaited may be complete before its optimizer steps. Then the
        next one has its norms.
        """
        names = "optimizer_steps/gradient_norm", "optimizer_steps/gradient_norm_at_step"
        found = dict(zip(names, self._norms or (), strict=False))
        if self._are_cleared:
            found["optimizer_steps/gradients_cleared"] = torch.ones(())
        self._norms, self._are_cleared = None, False
        return found


def _norm(gradients: list[Tensor]) -> Tensor:
    """Return the norm [] of all gradients together."""
    with torch.no_grad():
        norms = [torch.linalg.vector_norm(gradient).float() for gradient in gradients]
        whole: Tensor = torch.linalg.vector_norm(
            torch.stack([n.to(norms[0].device) for n in norms])
        )
        return whole
