"""DoubleActivation: an activation ahead of another one, or of a loss that has one in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import IssueFound, NotApplicable, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, Memory, Rule, Unit
from rule_runtime.facts.doubled_probabilities import (
    recomputed_twice,
    returned_to_functions,
    surely_twice,
)
from rule_runtime.facts.last_activations import (
    ahead_of_softmax,
    cuts_targets,
    is_softmax,
    squeezed,
)
from rule_runtime.facts.linear_layers import MODULE_IO
from rule_runtime.facts.loss_advice import loss_inputs_advice
from rule_runtime.facts.loss_inputs import INPUT_VALUES, LOSS_INPUTS
from rule_runtime.facts.loss_owners import input_patterns
from rule_runtime.facts.predicted_twice import softmax_of_predictions
from rule_runtime.facts.selection import evidence, is_training, worst
from rule_runtime.numerics.composed_activations import activated_twice, squashed
from rule_runtime.numerics.row_memory import RowMemory, fingerprints, row_keys

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["DoubleActivation"]

_KINDS: Final = ("relu", "sigmoid", "tanh")
_INPUTS: Final = tuple(f"{kind}_input" for kind in _KINDS)
_OF_MODULES: Final = r"_(input|output)_[0-9]+$"
_OF_SCORES: Final = re.compile(r"^(CrossEntropy|BCEWithLogits)Loss_input_0$")
_COLUMNS: Final = ("size", "min", "max", "mean", "std", "l2")
_CLOSE: Final = 1e-3
_SLOWLY: Final = 3
_RANGE_STEPS: Final = 50
_LOW_END: Final = 0.1
_HIGH_END: Final = 0.9
_TAKES_PROBABILITIES: Final = re.compile(r"^(NLL|BCE|MSE|L1|SmoothL1|Huber|KLDiv)")
_REMEDY: Final = (
    "Take one of the two away: CrossEntropyLoss and BCEWithLogitsLoss want raw scores, without "
    "softmax, sigmoid or another activation ahead of them; a regression wants none that its "
    "targets exceed."
)


class DoubleActivation(Rule):
    """Finds activations that are applied to what went through one already.

    How it decides:
        * The first input of CrossEntropyLoss or BCEWithLogitsLoss is suspect if its minimum is
          exactly 0; if it is what softmax gives (between 0 and 1, with mean 1 / C for C classes);
          or if it is the output of an activation layer, or tanh or sigmoid of any module's. If it
          only lies between 0 and 1, as scores may by chance, it must do so at 50 saved steps in a
          row (or `patience`, if that is more), and reach below 0.1 and above 0.9 at the last of
          them.
        * That of a loss of another name, and what the only model returns to the only loss if that
          is no module (unless `Loss_input_0`, what it got, was saved; `labels`, if they were, must
          be numbers of classes or as many as it has elements), is suspect if it is what softmax
          gives, while the loss, or its share of a row, is what cross entropy can be after a second
          softmax, at every step: between ln(e + C - 1) - 1 and 1 more. And it must be more than 1.3
          times the largest entropy that probabilities with this mean square can have: a loss that
          takes probabilities as they are falls to that. So it is with numbers between 0 and 1 and
          targets of 0 and 1, if the loss is what cross entropy can be after a sigmoid of them: the
          mean of ln(1 + exp(p)) less that of p where the target is 1. Three times the patience is
          needed then. Losses that take probabilities or numbers by name, such as BCELoss and
          MSELoss, are not judged so.
        * Where values of what a loss gets were saved, it fires as well if at two such steps in a
          row the loss is exactly, to 1e-4, the mean or a sum of the cross entropy of sigmoids of
          numbers that are all between 0 and 1, as are the targets beside them; these numbers are
          the first input, or its first columns, and what else there is may have a mean and the
          logarithm of a variance, whose divergence from the standard normal distribution a
          variational autoencoder adds. At the second step the cross entropy must be more than twice
          the entropy of these numbers, as probabilities: scores that lie between 0 and 1 by chance
          are not that sure.
        * So it is with Keras, where values of `predictions` and `labels` were saved: if these are
          probabilities and classes, and `loss` is, to 1e-5, the mean cross entropy of the softmax
          of them, and not that of them, at the first saved step and once more; only where an epoch
          begins is it that of a batch.
        * Of any loss the first input is suspect if it is what a second activation gives at both
          ends of its range, at three times as many steps: the logarithm of a softmax of a softmax
          lies between -ln(e + C - 1) and 1 more (or up to 0.25 below the upper end, and then as far
          above the lower one as follows from that, to 0.01, where one class has nearly all); a
          sigmoid of a sigmoid between 0.5 and 0.731; and that of a ReLU is never below 0.5, and
          often exactly that; raw scores that went through a sigmoid or tanh lie between 0 or -1 and
          1.
        * What goes into an activation layer is suspect if size, minimum, maximum, mean, standard
          deviation and l2 norm equal those of the output of another one, of the collections
          `relu_output`, `tanh_output`, `sigmoid_output`; two ReLUs in a row do no harm and pass.
          What functions did is told by extremes, which activations keep in order: a tensor is
          suspect if its smallest and largest element are, to 1e-5, tanh or sigmoid of ReLU, tanh or
          sigmoid, or softplus of softplus or ReLU, of those of a module's output of the same size,
          and no single one gives nearly that, to 0.001, or 1e-4 of the largest.
        * So is a ReLU's output ahead of the softmax, or its logarithm, at the end of a model. And,
          in MSELoss, L1Loss, SmoothL1Loss and HuberLoss, an output that is tanh or sigmoid of a
          module's, or never negative and sometimes 0, if targets lie beyond its range by more than
          half of their standard deviation, and their mean and 1.25 of these, too.

        It fires at the `patience`-th saved training step in a row.

    Parameters:
        patience: Saved steps in a row.

    What to try:
        Give the loss the outputs of the last linear layer.
    """

    patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 3

    collections = (
        LOSS_INPUTS,
        MODULE_IO,
        INPUT_VALUES,
        *(
            CollectionConfig(f"{kind}_{side}", {"save_interval": "10"})
            for kind in ("relu", "sigmoid", "tanh")
            for side in ("input", "output")
        ),
    )

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Look at what losses and activations get.

        Args:
            step: What was saved at the step.
            memory: `rows`, `between`: for how many saved steps each of at most 2,048 inputs was
                suspect, and lay between 0 and 1 as activations do; `once`: see `surely_twice`;
                `again`: see `recomputed_twice`; `predicted`: see `softmax_of_predictions`.
        """
        if not is_training(step):
            return NotApplicable(f"steps of mode {step.mode.name} are not judged")
        of_predictions = softmax_of_predictions(step, memory, _REMEDY)
        if isinstance(of_predictions, IssueFound):
            return of_predictions
        outcome = self._judge_inputs(step, memory)
        return (of_predictions or outcome) if isinstance(outcome, NotEvaluated) else outcome

    def _judge_inputs(self, step: StepView, memory: Memory) -> Outcome:
        """Look at what losses and activations get as their inputs."""
        of_functions = returned_to_functions(step)
        of_losses = _inputs_of_losses(step, of_functions)
        rows = step.tensors(collections=_INPUTS, regex=(_OF_MODULES, *of_losses))
        is_scores = np.array([bool(_OF_SCORES.match(name)) for name in rows.names], dtype=bool)
        is_of_loss = np.isin(rows.names, step.tensors(regex=of_losses).names)
        is_judged = is_of_loss | np.isin(rows.names, step.tensors(collections=_INPUTS).names)
        is_unnamed = is_of_loss & ~_is_named(rows)
        sure = _surely(step, rows, is_scores)
        suspect = sure | squeezed(rows, is_scores, is_judged)
        suspect |= surely_twice(step, rows, is_unnamed, of_functions, memory)
        between = is_scores & _between_0_and_1(rows)
        streaks = [_streaks(rows, memory, "rows", suspect)]
        streaks.append(_streaks(rows, memory, "between", between))
        at_both_ends = (rows.column("min") < _LOW_END) & (rows.column("max") > _HIGH_END)
        times = np.where(sure, 1, _SLOWLY)
        again = recomputed_twice(step, rows, is_unnamed, memory)
        surely = again | (streaks[0] >= self.patience * times)
        found = surely | ((streaks[1] >= max(_RANGE_STEPS, self.patience)) & at_both_ends)
        if not is_judged.any() and not found.any():
            lacking = "neither inputs of losses nor of activations were saved"
            return NotEvaluated(f"{lacking}: {loss_inputs_advice(step)}")
        if not found.any():
            return Passed()
        at = worst(rows, np.where(found, rows.column("min"), np.nan), largest=False)
        low, high = float(rows.column("min")[at]), float(rows.column("max")[at])
        looks = "" if surely[at] else "looks as if it "
        message = (
            f"lies between {low:.3g} and {high:.3g}: it {looks}went through an activation "
            "already, and goes through another one, or into a loss that wants none"
        )
        if again[at]:
            message = "has probabilities, and the loss is exactly what a sigmoid of these gives"
        return IssueFound(
            evidence(
                step,
                rows,
                at,
                measure="minimum",
                value=low,
                threshold=0.0,
                message=message,
                remedy=_REMEDY,
            )
        )


def _surely(
    step: StepView, rows: TensorRows, is_scores: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Tell which rows [R] went through one activation too many without a doubt."""
    sure = (is_scores & _surely_activated(rows)) | _activated(step, rows, is_scores)
    return sure | _of_functions(rows, is_scores) | ahead_of_softmax(step, rows)


def _is_named(rows: TensorRows) -> npt.NDArray[np.bool_]:
    """Tell which rows [R] go into losses whose names tell whether they have a softmax."""
    known = [bool(_OF_SCORES.match(n) or _TAKES_PROBABILITIES.match(n)) for n in rows.names]
    return np.array(known, dtype=bool)


def _streaks(
    rows: TensorRows, memory: Memory, key: str, bad: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    """Return for how many saved steps each row [R] was bad; those that ever were are remembered."""
    keys = row_keys(rows.names, rows.workers)
    remembered = RowMemory(memory.get(key, ""))
    chosen = bad | np.isin(keys, list(remembered.known(keys)))
    streaks = np.zeros(len(keys), dtype=np.int64)
    streaks[chosen] = remembered.update(
        keys[chosen], np.zeros(chosen.sum(), np.uint32), bad[chosen]
    )
    memory[key] = remembered.to_json()
    return streaks


def _between_0_and_1(rows: TensorRows) -> npt.NDArray[np.bool_]:
    """Tell which rows [R] lie between 0 and 1 and vary."""
    low, high, std = (rows.column(name) for name in ("min", "max", "std"))
    lies: npt.NDArray[np.bool_] = (low >= 0) & (high <= 1 + _CLOSE) & (std > 0)
    return lies


def _surely_activated(rows: TensorRows) -> npt.NDArray[np.bool_]:
    """Tell which rows [R] are what ReLU or softmax gives, and scores hardly ever are."""
    is_relu = (rows.column("min") == 0) & (rows.column("std") > 0)
    sure: npt.NDArray[np.bool_] = is_softmax(rows) | is_relu
    return sure


def _of_functions(rows: TensorRows, is_scores: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Tell which rows [R] are, by extremes, two activations of an output, or one too many."""
    ends = np.stack([rows.column("min"), rows.column("max")], axis=1)
    pairs = list(zip(rows.workers, rows.column("size").tolist(), strict=True))
    numbers = {pair: at for at, pair in enumerate(dict.fromkeys(pairs))}
    groups = np.array([numbers[pair] for pair in pairs], dtype=np.int64)
    is_output = np.array([name.rpartition("_")[0].endswith("_output") for name in rows.names], bool)
    is_squashed = squashed(ends, groups, is_output)
    found = activated_twice(ends, groups, is_output) | (is_scores & is_squashed)
    return found | cuts_targets(rows, is_squashed)


def _activated(
    step: StepView, rows: TensorRows, is_scores: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Tell which rows [R] equal the output of an activation, and go through another one."""
    suspect = np.zeros(len(rows), dtype=bool)
    inputs = step.tensors(collections=_INPUTS).names
    is_judged = is_scores | np.isin(rows.names, inputs)
    prints = fingerprints([rows.column(name) for name in _COLUMNS])
    varies = rows.column("std") > 0
    for kind in _KINDS:
        outputs = step.tensors(collections=(f"{kind}_output",))
        if not len(outputs):
            continue
        of_outputs = fingerprints([outputs.column(name) for name in _COLUMNS])
        known = set(zip(of_outputs.tolist(), outputs.workers, strict=True))
        fine = step.tensors(collections=("relu_input",)).names if kind == "relu" else ()
        is_fine = np.isin(rows.names, fine)
        is_same = [pair in known for pair in zip(prints.tolist(), rows.workers, strict=True)]
        suspect |= np.array(is_same, dtype=bool) & varies & ~is_fine & is_judged
    return suspect


def _inputs_of_losses(step: StepView, of_functions: Mapping[str, str]) -> tuple[str, ...]:
    """Return regular expressions for the first input of each loss, and what stands for one."""
    returned = sorted({f"^{re.escape(name)}$" for name in of_functions.values()})
    return (*(input_patterns(step, 0) or ("[Ll]oss_input_0$",)), *returned)
