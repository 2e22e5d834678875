"""LossInputMismatch: a loss that is fed with what it is not made for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Final

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import IssueFound, NotApplicable, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, Memory, Regex, Rule, Unit
from rule_runtime.facts.class_numbers import ClassNumbers, of_every_score
from rule_runtime.facts.evaluation_phases import loss_side
from rule_runtime.facts.loss_advice import loss_inputs_advice
from rule_runtime.facts.loss_inputs import (
    INPUT_VALUES,
    LOSS_INPUTS,
    Input,
    LossInputs,
)
from rule_runtime.facts.loss_mismatch import REMEDY_OF, LossMismatch
from rule_runtime.facts.loss_mismatches import mismatch_of, raw_overlap_of
from rule_runtime.facts.own_tokens import own_tokens_of
from rule_runtime.facts.positive_weights import wrong_weight_of
from rule_runtime.facts.scrambled_scores import MODEL_OUTPUT_VALUES, scrambled_scores_of
from rule_runtime.facts.selection import evidence, finite_means
from rule_runtime.facts.soft_targets import no_shares_of
from rule_runtime.facts.wrong_axis import wrong_axis_of
from rule_runtime.facts.wrong_formulas import wrong_formula_of
from rule_runtime.facts.zero_losses import zero_losses
from rule_runtime.numerics.series_memory import MAX_SERIES

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["LossInputMismatch"]

_OF_LOGARITHMS: Final = re.compile(r"^(NLL|KLDiv)Loss_output")
_NO_CHANCE: Final = 2
_NO_INPUTS: Final = "no inputs of losses with their shapes were saved, nor labels of a distance"
_NO_CLASSES: Final = (
    "the rule is for losses of modules; of boosted trees it judges labels that are the numbers of "
    "three classes or more alone, and has not seen enough of these"
)


class LossInputMismatch(Rule):
    """Finds losses whose inputs are not what the loss is made for.

    How it decides:
        * Shapes: outputs `..._input_0` and targets `..._input_1` of MSELoss, L1Loss, SmoothL1Loss
          or HuberLoss of different numbers of dimensions that together have more elements than each
          of them, as [B, 1] and [B] have B x B; or a loss of another name that is var(outputs) +
          var(targets) + (the difference of their means)^2 to 2e-5, which is the mean square of all
          pairs, where a chance covariance of outputs and targets would show; or one of the script's
          own by the same shapes, or by the mean size of all differences, to 2e-5 and at two steps
          with values; or, with one number without dimensions for a target, how far the mean of the
          outputs is from it, or its square, to 1e-4, where the mean of their own distances would
          differ (a number of three decimals is left alone: somebody wants this mean).
        * Logarithms: outputs above 0.001 that go into NLLLoss or KLDivLoss; outputs of
          PoissonNLLLoss that are the exponentials of what went into the module ahead of it (by
          smallest and largest element), if the loss is nearer to what it is of logarithms than of
          rates.
        * Targets: below 0 or above 1 in BCELoss, BCEWithLogitsLoss and MultiLabelSoftMarginLoss,
          below 0 in PoissonNLLLoss, on both sides of 0 in KLDivLoss, 0 and 1 in SoftMarginLoss and
          HingeEmbeddingLoss, and in MultiLabelMarginLoss, which takes lists of classes; rows of
          KLDivLoss [B, C] as below; for CrossEntropyLoss one score in each row, or targets as large
          as its outputs, none below 0, whose rows sum to more than 1.01 in the mean, or, by values
          at two steps, 9 in 10 of which are not zero while the sums of rows scatter by more than
          0.05, also of a loss of another name that proves to be a cross entropy; or one over the
          rows of a batch, of outputs without classes and targets whose sum is not 1 (to 0.5).
        * Overlap: a loss of another name that is, to 0.01 % and at two steps whose values were
          saved, one minus Dice or Jaccard, or minus that, of outputs below 0 or above 1 and targets
          within.
        * Signs, of losses of other names: scores of classes and no third input, and a loss below -2
          times that of guessing (-2 at least; of a cross entropy that is no module what the only
          model returns is taken for scores, and its targets, or else the only `labels`, for
          classes); or as many outputs as targets, ten times as large, and a loss that is minus
          their distance or minus its square, by what that can be with such sizes (and not below 0.3
          of the least).
        * Classes: the values of `labels` are the whole numbers from 0 to some number from 2 to 31,
          all of them seen and none more than three times as often as another, among `samples`
          labels or more (the same rows again, as boosted trees are validated by, count once), and
          the loss compares one number with each of them: its targets have their mean, smallest and
          largest element, its outputs are as many, and its name is that of a distance or unknown;
          with XGBoost `train-rmse` and its like; without labels, the values of the targets of a
          distance that were saved are such numbers, unless they have 2 to 8 columns, as places
          have. Or, by values at two steps, the loss is the distance of every score from the number
          of the class.
        * Axis: at two steps whose values were saved, what NLLLoss, KLDivLoss, CrossEntropyLoss or a
          function gets are probabilities (or logarithms) that sum to 1, to 0.001, along another
          dimension than that of the classes, 1, and not, to 0.01, along that (texts of one
          dimension with their places sum to how many they are); or a cross entropy by the script is
          one with the softmax along another dimension.
        * Order: at two such steps, what CrossEntropyLoss or a function gets has the elements that
          the model returned in three dimensions or more, one of them of as many as there are
          classes, in another shape, and its vectors over the classes are none of the model's; or
          they are, row by row, and the targets of a text, the tokens that follow, column by column
          (or the other way round).
        * Weight: at three such steps, BCEWithLogitsLoss is the mean of what it is of if yes counts
          w times, and w is ten times as large, or a tenth, as 1 and how many times rarer yes is
          (the larger, or the smaller, of both).
        * Formula: at two such steps the only loss is, to 0.01 %, one of these wrong ones, by its
          outputs and targets, and the right one differs: of targets from 0 to 1 (but for rows that
          sum to 1) t log(p) without its other half, a cross entropy that takes yes for no, a hinge,
          or log(1 + exp(-t o)), of 0 and 1, a softmax over columns of which several hold, Dice or
          Jaccard themselves; of other numbers a cross entropy of yes and no, errors divided by
          targets of both signs, the square of how far the means of all outputs, or of rows or
          columns, are from those of targets, or its size, if both signs are seen; one column alone.
          What was one such is known again to 0.1 % of the right loss.
        * Part: a loss of yes and no or a distance gets one column of those [B, C] that a model
          returns, but not the last one, or the mean of them all.
        * Left out: the only cross entropy of a model of one answer for each row is, to 0.0003 %,
          the mean without the rows of one class that occurs, or the least likely ones.
        * Tokens: the targets of a cross entropy are the whole numbers that a model is given, all of
          them, at two such steps with a loss below a tenth of guessing.
        * Zero: all losses are exactly 0 in the first 10 saved steps, and what they get varies.

        Each is judged at training steps, labels in all, and found at the `patience`-th saved step
        in a row. Of more than 32 losses the first 32 are judged, and of more than 4 tensors of
        labels the first 4.

    Parameters:
        samples: Labels that must have been seen before they are taken for classes.
        patience: Saved steps in a row.
        labels_regex: Regular expressions of tensors that are labels.

    What to try:
        Look at shapes and ranges of what goes into the loss.
    """

    samples: Annotated[int, AtLeast(1), Unit("labels")] = 40
    patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 3
    labels_regex: Annotated[tuple[str, ...], Regex()] = ("^labels$",)

    collections = (
        CollectionConfig("losses", {"save_interval": "10"}),
        LOSS_INPUTS,
        INPUT_VALUES,
        MODEL_OUTPUT_VALUES,
        CollectionConfig("labels", {"save_raw_tensor": "True"}),
    )

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Look at the inputs of losses.

        Args:
            step: What was saved at the step.
            memory: `streaks`, and `certain`, findings by values, of at most 32 losses; `zeros`, see
                `zero_losses`; `formulas` and `signs`, see `wrong_formula_of`; `weights`, see
                `wrong_weight_of`; `labels` and `latest`, see
                `ClassNumbers`.
        """
        classes = ClassNumbers(memory, self.samples)
        classes.add(step, self.labels_regex)
        rows = step.tensors(collections=("losses",))
        if step.mode.name in ("EVAL", "PREDICT"):
            return NotApplicable(f"losses of mode {step.mode.name} are not judged")
        if not len(rows):
            return NotEvaluated("no loss of a training step was saved")
        inputs = step.fact(LossInputs)
        pairs = list(zip(rows.names, rows.workers, strict=True))
        of_trees = all(loss_side(name, step.mode)[0] != name for name in rows.names)
        is_judged = any(_tells(inputs.of(*pair, 0), pair[0]) for pair in pairs)
        if not is_judged and not (classes.are_known and of_trees):
            lacking = f"{_NO_INPUTS}: {loss_inputs_advice(step)}"
            return NotEvaluated(_NO_CLASSES if of_trees else lacking)
        found = {}
        means = finite_means(rows)
        before = memory.get("streaks", {})
        streaks, certain = {}, memory.setdefault("certain", {})
        for at, (name, worker) in sorted(enumerate(pairs), key=lambda pair: pair[1])[:MAX_SERIES]:
            value = float(means[at])
            mismatch = mismatch_of(step, inputs, name, worker, value)
            mismatch = mismatch or classes.mismatch_of(inputs, name, worker)
            key = f"{worker}/{name}"
            streaks[key] = min(before.get(key, 0) + 1, self.patience) if mismatch else 0
            if mismatch is not None and streaks[key] >= self.patience:
                found[at] = mismatch
            by_values = self._by_values(step, inputs, (name, worker, value), memory)
            if by_values is not None:
                certain[key] = min(certain.get(key, 0) + 1, _NO_CHANCE)
                if certain[key] >= _NO_CHANCE:
                    found[at] = by_values
        memory["streaks"] = streaks
        found |= zero_losses(inputs, pairs, means, memory)
        return _finding(step, rows, found) if found else Passed()

    def _by_values(
        self, step: StepView, inputs: LossInputs, loss: tuple[str, str, float], memory: Memory
    ) -> LossMismatch | None:
        """Return what is wrong with a loss, by values that are saved seldom."""
        name, worker, value = loss
        return (
            raw_overlap_of(step, inputs, name, worker, value)
            or wrong_axis_of(step, inputs, name, worker)
            or scrambled_scores_of(step, inputs, name, worker)
            or no_shares_of(step, inputs, name, worker, value)
            or of_every_score(step, inputs, name, worker, value)
            or own_tokens_of(step, inputs, name, worker, value)
            or wrong_formula_of(step, inputs, loss, memory)
            or wrong_weight_of(step, name, worker, value, memory)
        )


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
            message=found[at].message,
            remedy=REMEDY_OF[found[at].measure],
        )
    )
