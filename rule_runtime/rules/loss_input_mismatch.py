"""LossInputMismatch: a loss that is fed with what it is not made for."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import numpy as np

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.evaluation.evaluation_phases import loss_side
from rule_runtime.evaluation.loss_advice import loss_inputs_advice
from rule_runtime.evaluation.loss_inputs import (
    INPUT_VALUES,
    LOSS_INPUTS,
    Input,
    LossInputs,
)
from rule_runtime.evaluation.loss_mismatches import (
    REMEDY_OF,
    LossMismatch,
    mismatch_of,
    raw_overlap_of,
)
from rule_runtime.evaluation.outcome import IssueFound, NotApplicable, NotEvaluated, Outcome, Passed
from rule_runtime.evaluation.rule import AtLeast, Memory, Regex, Rule, Unit
from rule_runtime.evaluation.selection import evidence, finite_means
from rule_runtime.evaluation.wrong_axis import wrong_axis_of
from rule_runtime.evaluation.zero_losses import zero_losses
from rule_runtime.numerics.class_pairs import true_classes
from rule_runtime.numerics.repeated_rows import is_repeated
from rule_runtime.numerics.series_memory import MAX_SERIES

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["LossInputMismatch"]

_OF_LOGARITHMS: Final = re.compile(r"^(NLL|KLDiv)Loss_output")
_NO_DISTANCE: Final = re.compile(
    r"^(CrossEntropy|NLL|BCE|KLDiv|CTC|Poisson|Gaussian|Hinge|Multi|Margin|Cosine|Triplet)"
)
_TARGETS: Final = r"^(MSE|L1|SmoothL1|Huber)Loss_input_1$"
_AMOUNTS: Final = re.compile(_TARGETS)
_DISTANCES_OF_TREES: Final = re.compile(r"^train-(rmse|mae|mphe|rmsle)$")
_MAX_TENSORS: Final = 4
_FEWEST_CLASSES: Final = 3
_MOST_CLASSES: Final = 32
_BALANCED: Final = 3.0
_NO_CHANCE: Final = 2
_NO_INPUTS: Final = "no inputs of losses with their shapes were saved, nor labels of a distance"
_NO_CLASSES: Final = (
    "the rule is for losses of modules; of boosted trees it judges labels that are the numbers of "
    "three classes or more alone, and has not seen enough of these"
)


class LossInputMismatch(Rule):
    """Finds losses whose inputs are not what the loss is made for.

    What it detects:
        Outputs and targets whose shapes do not fit and are spread over each other; a loss of
        logarithms of probabilities that gets numbers above 0; targets that a loss of yes or no, or
        of one class out of several, is not made for; a loss with the wrong sign; numbers of classes
        that are learned like amounts.

    Why it matters:
        Nothing fails, the loss may even fall, and the model learns something else than was meant.

    How it decides:
        Shapes: outputs `..._input_0` and targets `..._input_1` of MSELoss, L1Loss, SmoothL1Loss or
        HuberLoss of different numbers of dimensions that together have more elements than each of
        them, as [B, 1] and [B] have B x B; or a loss of another name that is var(outputs) +
        var(targets) + (the difference of their means)^2 to 2e-5, which is the mean square of all
        pairs, where a chance covariance of outputs and targets would show. Logarithms: outputs
        above 0.001 that go into NLLLoss or KLDivLoss; outputs of PoissonNLLLoss that are the
        exponentials of what went into the module ahead of it (by smallest and largest element), if
        the loss is nearer to what it is of logarithms than of rates. Targets: below 0 or above 1 in
        BCELoss and BCEWithLogitsLoss, 0 and 1 in SoftMarginLoss and HingeEmbeddingLoss; for
        CrossEntropyLoss one score in each row, or targets as large as its outputs, none below 0,
        whose rows sum to more than 1.01 in the mean. Overlap: a loss of another name that is, to
        0.01 % and at two steps whose values were saved, one minus Dice or Jaccard, or minus that,
        of outputs below 0 or above 1 and targets within. Signs, of losses of other names: scores of
        classes and no third input, and a loss below -2 times that of guessing (-2 at least; of a
        cross entropy that is no module what the only model returns is taken for scores, and its
        targets, or else the only `labels`, for classes); or as many outputs as targets, ten times
        as large, and a loss that is minus their distance or minus its square, by what that can be
        with such sizes (and not below 0.3 of the least). Classes: the values of `labels` are the
        whole numbers from 0 to some number from 2 to 31, all of them seen and none more than three
        times as often as another, among `samples` labels or more (the same rows again, as boosted
        trees are validated by, count once), and the loss compares one number with each of them: its
        targets have their mean, smallest and largest element, its outputs are as many, and its name
        is that of a distance or unknown; with XGBoost `train-rmse` and its like; without labels,
        the values of the targets of a distance that were saved are such numbers. Axis: at two steps
        whose values were saved, what NLLLoss, KLDivLoss, CrossEntropyLoss or a function gets are
        probabilities (or logarithms) that sum to 1, to 0.001, along another dimension than that of
        the classes, 1, and not, to 0.01, along that. Zero: all losses are exactly 0 in the first 10
        saved steps, and what they get varies. Each is judged at training steps, labels in all, and
        found at the `patience`-th saved step in a row. Of more than 32 losses the first 32 are
        judged, and of more than 4 tensors of labels the first 4.

    Parameters:
        samples: Labels that must have been seen before they are taken for classes.
        patience: Saved steps in a row.
        labels_regex: Regular expressions of tensors that are labels.

    What to try:
        Look at shapes and ranges of what goes into the loss.

    Known false alarms:
        Grades or counts from 0 on, all about equally frequent, which are amounts in truth.

    Source:
        Stepwatch; wrong shapes and wrong losses are among the faults of "Repairing Deep Neural
        Networks" (Islam and others, 2020).
    """

    samples: Annotated[int, AtLeast(1), Unit("labels")] = 40
    patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 3
    labels_regex: Annotated[tuple[str, ...], Regex()] = ("^labels$",)

    collections = (
        CollectionConfig("losses", {"save_interval": "10"}),
        LOSS_INPUTS,
        INPUT_VALUES,
        CollectionConfig("labels", {"include_regex": "^labels$", "save_raw_tensor": "True"}),
    )

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Look at the inputs of losses.

        Args:
            step: What was saved at the step.
            memory: `streaks`, and `certain`, findings by values, of at most 32 losses; `zeros`, see
                `zero_losses`; `labels`, how often each of at most 32 classes came in at most 4
                tensors of labels or targets, None if they are no classes; `latest`, a number that
                stands for the latest of each.
        """
        tallies, latest = memory.setdefault("labels", {}), memory.setdefault("latest", {})
        counts = self._count_labels(step, tallies, latest)
        rows = step.tensors(collections=("losses",))
        if step.mode.name in ("EVAL", "PREDICT"):
            return NotApplicable(f"losses of mode {step.mode.name} are not judged")
        if not len(rows):
            return NotEvaluated("no loss of a training step was saved")
        inputs = LossInputs(step)
        pairs = list(zip(rows.names, rows.workers, strict=True))
        of_trees = all(loss_side(name, step.mode)[0] != name for name in rows.names)
        is_judged = any(_tells(inputs.of(*pair, 0), pair[0]) for pair in pairs)
        if not is_judged and not (counts and of_trees):
            lacking = f"{_NO_INPUTS}: {loss_inputs_advice(step)}"
            return NotEvaluated(_NO_CLASSES if of_trees else lacking)
        found = {}
        means = finite_means(rows)
        before = memory.get("streaks", {})
        streaks, certain = {}, memory.setdefault("certain", {})
        for at, (name, worker) in sorted(enumerate(pairs), key=lambda pair: pair[1])[:MAX_SERIES]:
            mismatch = mismatch_of(step, inputs, name, worker, float(means[at]))
            mismatch = mismatch or self._of_classes(name, worker, inputs, counts)
            mismatch = mismatch or self._of_targets(name, worker, inputs, tallies)
            key = f"{worker}/{name}"
            streaks[key] = min(before.get(key, 0) + 1, self.patience) if mismatch else 0
            if mismatch is not None and streaks[key] >= self.patience:
                found[at] = mismatch
            by_values = raw_overlap_of(step, inputs, name, worker, float(means[at]))
            by_values = by_values or wrong_axis_of(step, inputs, name, worker)
            if by_values is not None:
                certain[key] = min(certain.get(key, 0) + 1, _NO_CHANCE)
                if certain[key] >= _NO_CHANCE:
                    found[at] = by_values
        memory["streaks"] = streaks
        found |= zero_losses(inputs, pairs, means, memory)
        return _finding(step, rows, found) if found else Passed()

    def _count_labels(
        self, step: StepView, tallies: dict[str, Any], latest: dict[str, int]
    ) -> dict[str, _Labels]:
        """Add the labels of a step; return those that look like classes, by worker."""
        rows = step.tensors(regex=(*self.labels_regex, _TARGETS))
        found = {}
        for at in sorted(range(len(rows)), key=lambda at: (rows.workers[at], rows.names[at])):
            worker, name = rows.workers[at], rows.names[at]
            key = f"{worker}/{name}"
            if key not in tallies and len(tallies) >= _MAX_TENSORS:
                continue
            tally = tallies.setdefault(key, [0] * _MOST_CLASSES)
            values = step.values((name,), worker).get(name) if tally is not None else None
            if values is None or tally is None:
                continue
            if not is_repeated(values, latest, key):
                tallies[key] = tally = _added(tally, values)
            if tally is not None and not _AMOUNTS.match(name) and self._are_classes(tally):
                columns = [float(rows.column(of)[at]) for of in ("size", "min", "max", "mean")]
                found[worker] = _Labels(sum(n > 0 for n in tally), columns)
        return found

    def _of_targets(
        self, name: str, worker: str, inputs: LossInputs, tallies: Mapping[str, list[int] | None]
    ) -> LossMismatch | None:
        """Return what is wrong if the targets of a distance are numbers of classes, by values."""
        outputs, targets = inputs.of(name, worker, 0), inputs.of(name, worker, 1)
        tally = tallies.get(f"{worker}/{name.removesuffix('_output_0')}_input_1")
        if outputs is None or targets is None or tally is None or not self._are_classes(tally):
            return None
        num_classes = sum(count > 0 for count in tally)
        if outputs.size != targets.size or targets.low < 0 or targets.high >= num_classes:
            return None
        told = f"is a distance to targets that look like numbers of {num_classes} classes"
        return LossMismatch("classes", num_classes, 2.0, told)

    def _are_classes(self, tally: list[int]) -> bool:
        """Tell whether these are the numbers from 0 on, each about as often as the others."""
        seen = [count for count in tally if count]
        return (
            sum(seen) >= self.samples
            and len(seen) >= _FEWEST_CLASSES
            and all(tally[: len(seen)])
            and max(seen) <= _BALANCED * min(seen)
        )

    def _of_classes(
        self, name: str, worker: str, inputs: LossInputs, counts: dict[str, _Labels]
    ) -> LossMismatch | None:
        """Return what is wrong if a loss compares single numbers with numbers of classes."""
        labels = counts.get(worker)
        if labels is None:
            return None
        outputs, targets = inputs.of(name, worker, 0), inputs.of(name, worker, 1)
        if outputs is None or targets is None:
            is_distance = _DISTANCES_OF_TREES.match(name) is not None
        else:
            is_distance = not _NO_DISTANCE.match(name) and labels.are(targets)
            is_distance &= outputs.size == targets.size
        if not is_distance:
            return None
        return LossMismatch(
            "classes",
            labels.num_classes,
            2.0,
            f"is a distance to labels that look like numbers of {labels.num_classes} classes",
        )


class _Labels(NamedTuple):
    """Labels of a step that look like classes: of how many; size, smallest, largest and mean."""

    num_classes: int
    columns: list[float]

    def are(self, targets: Input) -> bool:
        """Tell whether targets of a loss are these labels."""
        given = (targets.size, targets.low, targets.high, targets.mean)
        return all(
            math.isclose(a, b, rel_tol=1e-5) for a, b in zip(self.columns, given, strict=True)
        )


def _added(tally: list[int], values: Any) -> list[int] | None:
    """Return a tally with labels added; None if these are no classes, or too many."""
    try:
        classes = true_classes(values)
    except ValueError:
        return None
    if not len(classes):
        return tally
    if len(classes) != np.size(values) or classes.max() >= _MOST_CLASSES:
        return None
    added = np.bincount(classes, minlength=_MOST_CLASSES)
    return [min(int(a + b), 1 << 40) for a, b in zip(tally, added, strict=True)]


def _tells(outputs: Input | None, name: str) -> bool:
    """Tell whether anything can be said of a loss by its outputs."""
    return outputs is not None and (
        outputs.shape is not None or _OF_LOGARITHMS.match(name) is not None
    )


def _finding(step: StepView, rows: TensorRows, found: dict[int, LossMismatch]) -> IssueFound:
    at = min(found, key=lambda at: (rows.names[at], rows.workers[at]))
    return IssueFound(
        evidence(
            step,
            rows,
            at,
            measure=found[at].measure,
            value=found[at].value,
            threshold=found[at].threshold,
            told=found[at].told,
            remedy=REMEDY_OF[found[at].measure],
        )
    )
