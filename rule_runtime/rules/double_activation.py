"""DoubleActivation: an activation ahead of another one, or of a loss that has one in it."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Annotated, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.evaluation.loss_inputs import LOSS_INPUTS, USE_LOSS_MODULE, only_outputs
from rule_runtime.evaluation.outcome import IssueFound, NotApplicable, NotEvaluated, Outcome, Passed
from rule_runtime.evaluation.rule import AtLeast, Memory, Rule, Unit
from rule_runtime.evaluation.selection import evidence, finite_means, is_training, worst
from rule_runtime.numerics.row_memory import RowMemory, fingerprints, row_keys

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["DoubleActivation"]

_KINDS: Final = ("relu", "sigmoid", "tanh")
_OF_SCORES: Final = re.compile(r"^(CrossEntropy|BCEWithLogits)Loss_input_0$")
_COLUMNS: Final = ("size", "min", "max", "mean", "std", "l2")
_CLOSE: Final = 1e-3
_EXACT: Final = 1e-4
_SLOWLY: Final = 10
_SQUEEZED: Final = 3
_NEAR: Final = 0.02
_PEAKED: Final = 0.25
_ON_LINE: Final = 0.01
_UNSURE: Final = 1.3
_SIGMOID_OF_1: Final = 1 / (1 + math.exp(-1))
_HALF: Final = 0.5
_RANGE_STEPS: Final = 50
_LOW_END: Final = 0.1
_HIGH_END: Final = 0.9
_TAKES_PROBABILITIES: Final = re.compile(r"^(NLL|BCE|MSE|L1|SmoothL1|Huber|KLDiv)")
_REMEDY: Final = (
    "Take one of the two away: CrossEntropyLoss and BCEWithLogitsLoss want raw scores, without "
    "softmax, sigmoid or ReLU ahead of them."
)


class DoubleActivation(Rule):
    """Finds activations that are applied to what went through one already.

    What it detects:
        Probabilities, or other numbers that are never negative, as the input of a loss that wants
        raw scores; and a ReLU, tanh or sigmoid layer whose input is the output of another one.

    Why it matters:
        Softmax ahead of CrossEntropyLoss keeps the loss far above zero and the gradients small;
        ReLU ahead of a sigmoid keeps its outputs above 0.5. The model learns slowly, or never.

    How it decides:
        The first input of CrossEntropyLoss or BCEWithLogitsLoss is suspect if its minimum is
        exactly 0; if it is what softmax gives (between 0 and 1, with mean 1 / C for C classes); or
        if it equals the output of an activation layer. If it only lies between 0 and 1, as scores
        may by chance, it must do so at 50 saved steps in a row (or `patience`, if that is more),
        and reach below 0.1 and above 0.9 at the last of them. That of a loss of another name is
        suspect if it is what softmax gives while the loss is not below ln(e + C - 1) - 1, which is
        the least that cross entropy can be after a second softmax; ten times the patience is needed
        then. What a model returns is judged likewise, if its loss is no module and the only
        `labels` are numbers of classes: then the loss must also be more than 1.3 times the largest
        entropy that probabilities with this mean square can have. Losses that take probabilities or
        numbers, such as BCELoss and MSELoss, are not judged so. Of any loss the first input is
        suspect if it is what a second activation gives at both ends of its range, at three times as
        many steps: the logarithm of a softmax of a softmax lies between -ln(e + C - 1) and 1 more
        (or up to 0.25 below the upper end, and then as far above the lower one as follows from
        that, to 0.01, where one class has nearly all); a sigmoid of a sigmoid between 0.5 and
        0.731; and that of a ReLU is never below 0.5, and often exactly that; raw scores that went
        through a sigmoid or tanh lie between 0 or -1 and 1. A layer's input is suspect if size,
        minimum, maximum, mean, standard deviation and l2 norm equal those of the output of another
        layer, of the collections `relu_output`, `tanh_output`, `sigmoid_output`; two ReLUs in a row
        do no harm and pass. It fires at the `patience`-th saved training step in a row.

    Parameters:
        patience: Saved steps in a row.

    What to try:
        Give the loss the outputs of the last linear layer.

    Known false alarms:
        Scores that are never negative, and sometimes exactly 0, on purpose.

    Source:
        Stepwatch; "softmax missing or doubled" is a finding of UMLAUT (2021) and NeuraLint (2021).
    """

    patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 3

    collections = (
        LOSS_INPUTS,
        *(
            CollectionConfig(
                f"{kind}_{side}", {"include_regex": f".*{kind}_{side}", "save_interval": "10"}
            )
            for kind in ("relu", "sigmoid", "tanh")
            for side in ("input", "output")
        ),
    )

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Look at what losses and activations get.

        Args:
            step: What was saved at the step.
            memory: `rows`, `between`: for how many saved steps each of at most 2,048 inputs was
                suspect, and lay between 0 and 1 as activations do.
        """
        if not is_training(step):
            return NotApplicable(f"steps of mode {step.mode.name} are not judged")
        names = [f"{kind}_input" for kind in _KINDS]
        rows = step.tensors(collections=names, regex=_inputs_of_losses(step))
        if not len(rows):
            return NotEvaluated(
                f"neither inputs of losses nor of activations were saved: {USE_LOSS_MODULE}"
            )
        is_scores = np.array([bool(_OF_SCORES.match(name)) for name in rows.names], dtype=bool)
        slowly = _probabilities(step, rows)
        squeezed = _squeezed(rows, is_scores)
        sure = (is_scores & _surely_activated(rows)) | _activated(step, rows, is_scores)
        suspect = sure | slowly | squeezed
        between = is_scores & _between_0_and_1(rows)
        streaks = [_streaks(rows, memory, "rows", suspect)]
        streaks.append(_streaks(rows, memory, "between", between))
        at_both_ends = (rows.column("min") < _LOW_END) & (rows.column("max") > _HIGH_END)
        times = np.where(sure, 1, np.where(squeezed, _SQUEEZED, _SLOWLY))
        sure = streaks[0] >= self.patience * times
        found = sure | ((streaks[1] >= max(_RANGE_STEPS, self.patience)) & at_both_ends)
        if not found.any():
            return Passed()
        at = worst(rows, np.where(found, rows.column("min"), np.nan), largest=False)
        low, high = float(rows.column("min")[at]), float(rows.column("max")[at])
        return IssueFound(
            evidence(
                step,
                rows,
                at,
                measure="minimum",
                value=low,
                threshold=0.0,
                told=(
                    f"lies between {low:.3g} and {high:.3g}: it "
                    f"{'' if sure[at] else 'looks as if it '}went through an activation already, "
                    "and goes through another one"
                ),
                remedy=_REMEDY,
            )
        )


def _streaks(
    rows: TensorRows, memory: Memory, key: str, bad: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    """Return for how many saved steps each row [R] was bad, and remember it."""
    keys = row_keys(rows.names, rows.workers)
    remembered = RowMemory(memory.get(key, ""))
    streaks = remembered.update(keys, np.zeros(len(keys), np.uint32), bad)
    memory[key] = remembered.to_json()
    return streaks


def _between_0_and_1(rows: TensorRows) -> npt.NDArray[np.bool_]:
    """Tell which rows [R] lie between 0 and 1 and vary."""
    low, high, std = (rows.column(name) for name in ("min", "max", "std"))
    lies: npt.NDArray[np.bool_] = (low >= 0) & (high <= 1 + _CLOSE) & (std > 0)
    return lies


def _surely_activated(rows: TensorRows) -> npt.NDArray[np.bool_]:
    """Tell which rows [R] are what ReLU or softmax gives, and scores hardly ever are."""
    means = rows.column("mean")
    is_softmax = np.zeros(len(rows), dtype=bool)
    for at in np.flatnonzero(_between_0_and_1(rows)):
        # Classes are the second dimension of (N, C, ...), and often the last one; some files do not
        # tell the shape.
        shape = rows.shapes[at]
        classes = {round(1 / means[at])} if shape is None else {*shape[1:2], *shape[-1:]} - {1}
        is_softmax[at] = any(abs(means[at] * size - 1) < _EXACT for size in classes)
    is_relu = (rows.column("min") == 0) & (rows.column("std") > 0)
    sure: npt.NDArray[np.bool_] = is_softmax | is_relu
    return sure


def _squeezed(rows: TensorRows, is_scores: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Tell which rows [R] reach both ends of what a second activation gives, and not beyond."""
    low, high, std = (rows.column(name) for name in ("min", "max", "std"))

    def reaches(lowest: float, highest: float) -> npt.NDArray[np.bool_]:
        is_within = (low > lowest - _EXACT) & (high < highest + _EXACT)
        found: npt.NDArray[np.bool_] = is_within & (low < lowest + _NEAR) & (high > highest - _NEAR)
        return found

    is_input = np.array([name.endswith("_input_0") for name in rows.names], dtype=bool)
    found: npt.NDArray[np.bool_] = reaches(_HALF, _SIGMOID_OF_1)
    found |= is_scores & (reaches(0.0, 1.0) | reaches(-1.0, 1.0))
    found |= (low == _HALF) & (high <= 1) & (std > 0)
    for at, shape in enumerate(rows.shapes):
        for size in {*(shape or ())[1:2], *(shape or ())[-1:]} - {1}:
            lowest = -math.log(math.e + size - 1)
            found[at] |= bool(reaches(lowest, lowest + 1)[at])
            found[at] |= _on_line(low[at] - lowest, lowest + 1 - high[at], size)
    found &= is_input
    return found


def _on_line(above: float, below: float, num_classes: int) -> bool:
    """Tell whether logarithms of a softmax of a softmax may be so far from both ends.

    Of probabilities 1 - d, and d for the others, the lowest logarithm is d (e - 1) / (e + C - 1)
    above its end, to first order, and the highest what is left of d below its own.
    """
    share = (math.e - 1) / (math.e + num_classes - 1)
    is_within = above > -_EXACT and -_EXACT < below < _PEAKED
    return is_within and abs(above - below * share / (1 - share)) < _ON_LINE


def _probabilities(step: StepView, rows: TensorRows) -> npt.NDArray[np.bool_]:
    """Tell which rows [R] are probabilities that go into a loss which may apply softmax again."""
    losses = step.tensors(collections=("losses",))
    known = dict(
        zip(zip(losses.names, losses.workers, strict=True), finite_means(losses), strict=True)
    )
    of_functions = only_outputs(step)
    low, high, mean, std = (rows.column(name) for name in ("min", "max", "mean", "std"))
    suspect = np.zeros(len(rows), dtype=bool)
    for at, (name, worker, shape) in enumerate(
        zip(rows.names, rows.workers, rows.shapes, strict=True)
    ):
        is_of_function = of_functions.get(worker) == name
        of_loss = "Loss_output_0" if is_of_function else name.replace("_input_0", "_output_0")
        loss = known.get((of_loss, worker), np.nan)
        if (
            not shape
            or shape[-1] <= 1
            or _OF_SCORES.match(name)
            or _TAKES_PROBABILITIES.match(name)
        ):
            continue
        is_softmax = low[at] >= 0 and high[at] <= 1 + _CLOSE
        is_softmax &= abs(mean[at] * shape[-1] - 1) < _CLOSE
        suspect[at] = is_softmax and loss >= math.log(math.e + shape[-1] - 1) - 1
        if is_of_function and is_softmax:
            suspect[at] &= loss > _UNSURE * _entropy(mean[at] ** 2 + std[at] ** 2, shape[-1])
    return suspect


def _entropy(mean_square: float, num_classes: int) -> float:
    """Return the largest entropy of probabilities with a mean square: one, and all others alike."""
    spread = max(num_classes**2 * mean_square - 1, 0.0)
    first = min((1 + math.sqrt((num_classes - 1) * spread)) / num_classes, 1 - _EXACT)
    other = (1 - first) / (num_classes - 1)
    return -first * math.log(first) - (1 - first) * math.log(other)


def _activated(
    step: StepView, rows: TensorRows, is_scores: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Tell which rows [R] equal the output of an activation, and go through another one."""
    suspect = np.zeros(len(rows), dtype=bool)
    inputs = step.tensors(collections=[f"{kind}_input" for kind in _KINDS]).names
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


def _inputs_of_losses(step: StepView) -> tuple[str, ...]:
    """Return regular expressions for the first input of each loss, and what stands for one."""
    outputs = {name for name in step.tensors(collections=("losses",)).names if "_output_" in name}
    names = sorted({re.escape(name.rpartition("_output_")[0]) for name in outputs})
    of_functions = sorted({f"^{re.escape(name)}$" for name in only_outputs(step).values()})
    found = f"^({'|'.join(names)})_input_0$" if names else "[Ll]oss_input_0$"
    return (found, *of_functions)
