"""Steps of optimisers that nobody registered, as in a script that knows nothing of the hook."""

from __future__ import annotations

from typing import Any, Final
from weakref import ref

from torch import nn
from torch.optim.optimizer import Optimizer

from hook_layer.format.modes import ModeKeys
from hook_layer.pytorch.steps import WITHOUT_TRAINING, Pass, StepBounds

__all__ = ["FollowedSteps"]

_AT_FIRST: Final = 4
_PATIENCE: Final = 8
"""How many times the passes of the longest step before are waited for."""


class FollowedSteps(StepBounds):
    """Decides where steps begin and end by the optimizer that trains the models.

    A step begins with the first forward pass behind the one before, and is complete when all
    optimisers have stepped that did in the step before, or one of them for the second time: so
    optimisers may take turns, come later and go. Passes behind which only the optimiser of another
    model has stepped, as of an adversary, were for that one: the next pass begins the step anew.
    Where none steps for eight times as many passes
    as the longest step had (4 at least), each pass is a step until one does: a script may update
    its parameters in ways that torch does not tell.
    """

    def __init__(self) -> None:
        super().__init__()
        self._longest = _AT_FIRST
        self._num_since = 0  # passes since an optimiser completed a step
        self._stepped_at: dict[int, int] = {}  # of these, by optimiser, in the step that is open
        self._were_for_others = False
        self.by_optimizer = True  # until they are lost

    @property
    def knows_optimizers(self) -> bool:
        """Whether it decides by itself which optimisers count."""
        return False

    def next_pass(self, mode: ModeKeys, model: nn.Module, inputs: Any) -> Pass:
        """Return what the forward pass that is about to begin is to the steps."""
        self.is_training = mode not in WITHOUT_TRAINING and self._can_train(model, inputs)
        self.is_outside_steps = False
        if mode in WITHOUT_TRAINING:
            return Pass.BEGINS
        if not self.is_training and self.by_optimizer:
            self.is_outside_steps = True
            return Pass.OUTSIDE_STEPS
        were_for_others, self._were_for_others = self._were_for_others, False
        if were_for_others and self.is_open and self.by_optimizer and not self._stepped_at:
            self._num_since = 1
            return Pass.BEGINS_ANEW
        self._num_since += 1
        self.by_optimizer &= self._num_since <= _PATIENCE * self._longest
        return Pass.CONTINUES if self.is_open and self.by_optimizer else Pass.BEGINS

    def step_begins(self) -> None:
        """Note that a step began."""
        super().step_begins()
        self._stepped_at.clear()

    def optimizer_steps(self, optimizer: Optimizer) -> None:  # noqa: ARG002
        """Note that an optimiser is about to step: so the pass before was one of training."""
        self._trains_in_evaluation |= self._was_in_evaluation

    def others_stepped(self) -> None:
        """Note that an optimiser has stepped that trains none of our parameters."""
        self._were_for_others = True

    def optimizer_stepped(self, optimizer: Optimizer) -> bool:
        """Note that an optimiser of our parameters has stepped; does that complete the step?"""
        key = id(optimizer)
        self._stepped[key] = ref(optimizer)
        self._were_for_others = False
        if self.by_optimizer and not self.is_open:
            return False
        is_again = self._stepped_at.get(key, self._num_since) < self._num_since
        self._stepped_at[key] = self._num_since
        is_complete = is_again or not self.by_optimizer or self._have_all_stepped()
        if is_complete:
            self._longest = max(self._longest, self._num_since)
            self._num_since = 0
            self.by_optimizer, self.is_open = True, False
        return is_complete
