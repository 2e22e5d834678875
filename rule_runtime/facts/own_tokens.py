"""A language model that is to say the tokens it is given, for nobody shifted them by one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from rule_runtime.facts.loss_inputs import LossInputs
from rule_runtime.facts.loss_mismatch import LossMismatch

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["own_tokens_of"]

_OF_MODELS: Final = (r"^[A-Z]\w*_input_0$",)
_FEWEST: Final = 32
_FEWEST_KINDS: Final = 3
_LEARNED: Final = 0.1


def own_tokens_of(
    step: StepView, inputs: LossInputs, name: str, worker: str, value: float
) -> LossMismatch | None:
    """Return what is wrong if targets are what the model is given, token by token.

    A model that has to keep a text in a few numbers, or says it again behind others, needs long for
    that. Values are saved at the beginning alone: there the loss must be a tenth of guessing.

    Args:
        step: The step.
        inputs: The inputs of its losses.
        name: Name of the loss, `X_output_0`.
        worker: The worker.
        value: The loss.
    """
    targets = inputs.of(name, worker, 1)
    if targets is None or not inputs.kind(name, worker).is_of_classes:
        return None
    guess = inputs.guess(name, worker)
    is_learned = math.isfinite(guess) and 0 <= value < _LEARNED * guess
    if not is_learned or targets.size < _FEWEST:
        return None
    own, given = f"{name.removesuffix('_output_0')}_input_1", step.tensors(regex=_OF_MODELS)
    like = [
        of
        for of, by, shape in zip(given.names, given.workers, given.shapes, strict=True)
        if by == worker and shape and len(shape) > 1 and math.prod(shape) == targets.size
    ]
    values = step.values((own, *like), worker) if like else {}
    asked = values.get(own)
    for of in like:
        tokens = values.get(of)
        if asked is None or tokens is None or tokens.dtype.kind not in "iu":
            continue
        if (
            np.array_equal(tokens.reshape(-1), asked.reshape(-1))
            and len(np.unique(asked)) >= _FEWEST_KINDS
        ):
            message = (
                f"is of the same {asked.size} tokens that {of.removesuffix('_input_0')} is given"
            )
            return LossMismatch("tokens", float(asked.size), 0.0, message)
    return None
