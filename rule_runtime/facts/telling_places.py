"""Models of texts that look ahead: they know each next word but the one behind the text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from rule_runtime.facts.loss_owners import input_target_pairs
from rule_runtime.facts.loss_values import outputs_and_targets
from rule_runtime.facts.model_inputs import MODEL_INPUT
from rule_runtime.numerics.place_losses import are_foreseen, losses_of_places
from rule_runtime.numerics.told_texts import are_next

if TYPE_CHECKING:
    from rule_runtime.engine.rule import Memory
    from rule_runtime.trial.step_view import StepView

__all__ = ["Foreseen", "foreseen_places"]

_REAL: Final = ("float", "bfloat")
_MOST: Final = 8


class Foreseen(NamedTuple):
    """A text of which a model knows all that comes next but what comes last.

    Attributes:
        at: Row of the text among `step.tensors(regex=(MODEL_INPUT,))`.
        loss: Name of the loss.
        last: The loss at the last place.
        before: That at the places before it.
    """

    at: int
    loss: str
    last: float
    before: float

    @property
    def measure(self) -> str:
        """What is measured."""
        return "loss_before_last_place"

    @property
    def threshold(self) -> float:
        """The loss at the last place."""
        return self.last

    @property
    def value(self) -> float:
        """The loss before the last place."""
        return self.before

    @property
    def sentence(self) -> str:
        """What the model foresees, in words."""
        return (
            f"{self.loss} is {self.last:.3g} at the last place of the text, where what is asked is "
            f"not in it, and {self.before:.3g} before it: the model looks ahead"
        )


def foreseen_places(step: StepView, memory: Memory, patience: int) -> tuple[bool, Foreseen | None]:
    """Compare the loss at the last place of texts with that at the places before.

    Args:
        step: The step.
        memory: `places`: of at most 8 losses, how often in a row places were foreseen.
        patience: How often that must be.

    Returns:
        Whether any text could be judged, and the first that a model foresees.
    """
    is_judged, found = False, None
    inputs = step.tensors(regex=(MODEL_INPUT,))
    streaks: dict[str, int] = memory.setdefault("places", {})
    for at, of_targets in input_target_pairs(step, inputs):
        if (inputs.dtypes[at] or "").startswith(_REAL):
            continue  # values are read only where they may be a text
        name, worker = inputs.names[at], inputs.workers[at]
        text = step.values((name,), worker).get(name)
        loss = of_targets.replace("_input_1", "_output_0")
        pair = None if text is None else outputs_and_targets(step, loss, worker)
        if text is None or pair is None or text.size != pair[1].size or not are_next(text, pair[1]):
            continue
        losses = losses_of_places(*pair, (text.shape[0], text.shape[1]))
        key = f"{worker}/{name}/{loss}"
        if losses is None or (key not in streaks and len(streaks) >= _MOST):
            continue
        is_judged = True
        streaks[key] = streaks.get(key, 0) + 1 if are_foreseen(losses) else 0
        if streaks[key] >= patience and found is None:
            found = Foreseen(at, loss, float(losses[:, -1].mean()), float(losses[:, :-1].mean()))
    return is_judged, found
