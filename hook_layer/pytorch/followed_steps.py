"""Steps of optimizers that nobody registered, as in a script without a hook."""

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
"""Factor of the longest earlier step's passes after which the optimizers count as lost."""


class FollowedSteps(StepBounds):
    """Decides where steps begin and end by the optimizers that train the models.

    A step begins with the first forward pass after the previous step. It is complete when all
    optimizers of the previous step have stepped, or one of them steps a second time. So optimizers
    may alternate, start later and disappear.

    If only optimizers of other models stepped since a pass, such as those of an adversary, the next
    pass begins the step anew. If no optimizer steps for `_PATIENCE` times the passes of the longest
    step (4 at least), each pass is a step until one does: a script may update its parameters
    without torch's optimizers.
    """

    def __init__(self) -> None:
        super().__init__()
        self._longest = _AT_FIRST
        self._num_since = 0  # passes since an optimizer completed a step
        self._stepped_at: dict[int, int] = {}  # number of passes by optimizer, in the open step
        self._were_for_others = False
        self.by_optimizer = True  # until the optimizers are lost

    @property
    def knows_optimizers(self) -> bool:
        """Whether it knows which optimizers count, so that the caller need not check parameters."""
        return False

    def next_pass(self, mode: ModeKeys, model: nn.Module, inputs: Any) -> Pass:
        """Return the role of the forward pass that is about to begin."""
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
        """Note that an optimizer is about to step: the previous pass was for training."""
        self._trains_in_evaluation |= self._was_in_evaluation

    def others_stepped(self) -> None:
        """Note a step of an optimizer that trains none of the hook's parameters."""
        self._were_for_others = True

    def optimizer_stepped(self, optimizer: Optimizer) -> bool:
        """Note a step of an optimizer of our parameters; return whether it ends the step."""
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
