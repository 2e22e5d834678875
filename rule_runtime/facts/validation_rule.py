"""The base of rules that compare losses of validation with those of training."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from hook_layer.format.modes import ModeKeys
from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import IssueFound, NotApplicable, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import Memory, Rule
from rule_runtime.facts.evaluation_phases import loss_side, usual_names
from rule_runtime.facts.loss_advice import why_no_validation
from rule_runtime.facts.loss_rule import Finding
from rule_runtime.facts.selection import evidence, finite_means, is_training
from rule_runtime.facts.validation_passes import (
    add_to_pass,
    keep_beside,
    means_of_pass,
    trained_beside,
    within_limits,
)
from rule_runtime.numerics.robust import noise
from rule_runtime.numerics.series_memory import NumberSeries, Series, SeriesMemory

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["Training", "Validation", "ValidationRule", "training_of"]

_NUM_FIRST: Final = 5
_NUM_LATEST: Final = 20
_NUM_NOW: Final = 5
_NUM_PASSES: Final = 8
_NO_TRAINING_LOSS: Final = "there is no loss of training beside: give that data in `evals`, too"
_BETWEEN: Final = "no pass of validation ended here"
_Passed = tuple[str, str, str]
"""The training loss and its worker, and the loss of validation."""


class Training(NamedTuple):
    """The losses of training that a loss of validation is compared with.

    Attributes:
        now: Median of the latest 5.
        start: How large they were at the beginning: the first, or the median of 5 if larger.
        noise: How much the latest 20 scatter.
        fall: How far the median of the latest 5 lies below that of the first 5.
        rise: How far the median of the latest 10 lies above that of the 10 before.
        num_steps: Steps of training since the first one with a loss.
        lately: Median of those of the latest 5 that were saved since the pass before, if any.
    """

    now: float
    start: float
    noise: float
    fall: float
    rise: float = 0.0
    num_steps: int = 0
    lately: float = -math.inf


class Validation(NamedTuple):
    """A loss of validation.

    Attributes:
        name: Name of the loss.
        passes: The means of the latest passes, 8 at most, oldest first; the last one is judged.
        first: The mean of the first pass.
        lowest: The smallest mean of all passes.
        beside_first: The training loss when the first pass was judged.
        of_trees: Whether it stands beside the training loss of boosted trees, a round each.
        beside: What `ValidationRule.beside` last said.
        num_steps: EVAL steps of the pass.
    """

    name: str
    passes: npt.NDArray[np.float64]
    first: float
    lowest: float
    beside_first: float
    of_trees: bool
    beside: Mapping[str, float]
    num_steps: int = 1

    @property
    def now(self) -> float:
        """The loss that is judged."""
        return float(self.passes[-1])

    def divided(self, by: float) -> Validation:
        """Return all losses of validation divided by a number."""
        return self._replace(
            passes=self.passes / by, first=self.first / by, lowest=self.lowest / by
        )


class ValidationRule(Rule):
    """Judges each loss of validation beside the loss of training.

    A pass of validation is the EVAL steps between two training steps; its losses are averaged, and
    judged at the training step behind it, or at its last step once it is as long as the pass
    before: so the last one of a run is judged, too. With XGBoost, the losses of other data stand
    beside that of training in every step; metrics that are better the larger they are, and shares
    of errors, are skipped. Of more than 32 losses the first that came are judged.

    Attributes:
        measure: Name of what is measured.
        remedy: What to try first.
    """

    measure: ClassVar[str]
    remedy: ClassVar[str]

    collections: ClassVar[tuple[CollectionConfig, ...]] = (
        CollectionConfig("losses", {"save_interval": "10", "eval.save_interval": "1"}),
    )

    @abstractmethod
    def judge(self, validation: Validation, training: Training) -> Finding | None:
        """Return what is wrong with a loss of validation, None if nothing is.

        Args:
            validation: The loss of validation.
            training: The losses of training.
        """

    def beside(self, step: StepView) -> Mapping[str, float]:  # noqa: ARG002 - for subclasses
        """Return what else a step tells that losses are judged by; kept until it says it anew.

        Args:
            step: A step with losses.
        """
        return {}

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Add the losses of the step, and judge validation where training continues behind it.

        Args:
            step: What was saved at the step.
            memory: `training`, first and latest numbers of at most 32 losses; `passes`, sum and
                number of their losses of validation since; `length`, steps of the pass before;
                `steps`, of this one, and `is_told`, whether it was judged; `validation`, the first
                and the latest passes; `lowest`, the smallest, and the training loss beside the
                first; `streaks`, findings in a row; `begin` and `now`, steps; `since`, saved steps
                of training since the pass before, 5 at most; `beside`, the rest.
        """
        rows = step.tensors(collections=("losses",))
        means = finite_means(rows)
        names = usual_names(step, rows)
        at_row = {
            (names[at], rows.workers[at]): int(at)
            for at in np.flatnonzero(np.isfinite(means))
            if loss_side(names[at], step.mode)[0] is not None
        }
        if not at_row:
            return _without_losses(step, memory, is_empty=not len(rows))
        losses = {pair: float(means[at]) for pair, at in at_row.items()}
        keep_beside(memory, self.beside(step))
        if step.mode is ModeKeys.EVAL:
            add_to_pass(memory, losses)
            if not 0 < memory.get("length", 0) == memory["steps"]:
                return NotApplicable("validation is judged when training goes on")
            found = self._judge_all({}, memory)
            memory["is_told"] = True
        elif is_training(step):
            memory["now"] = step.mode_step
            memory.setdefault("begin", step.mode_step)
            memory["since"] = min(memory.get("since", 0) + 1, _NUM_NOW)
            if memory.pop("is_told", False):
                memory.pop("passes", None)  # the pass went on behind where it was judged
            found = self._judge_all(losses, memory)
            if num_steps := memory.pop("steps", 0):
                memory["length"], memory["since"] = num_steps, 1
        else:
            return NotApplicable(f"a step of mode {step.mode.name} says nothing of the training")
        if found is None:
            is_between = "validation" in memory
            return NotApplicable(_BETWEEN) if is_between else NotEvaluated(_reason(step, at_row))
        found = {key: finding for key, finding in found.items() if (key[2], key[1]) in at_row}
        if not found:
            return Passed()
        (_, worker, tensor), finding = min(found.items(), key=lambda item: (-item[1].excess, item))
        return IssueFound(
            evidence(
                step,
                rows,
                at_row[tensor, worker],
                measure=self.measure,
                value=finding.value,
                threshold=finding.threshold,
                message=finding.message,
                remedy=finding.remedy or self.remedy,
            )
        )

    def _judge_all(
        self, losses: Mapping[Series, float], memory: Memory
    ) -> dict[_Passed, Finding] | None:
        """Return the findings; None if there is no loss of validation."""
        training = SeriesMemory(
            memory.get("training", {}), num_first=_NUM_FIRST, num_latest=_NUM_LATEST
        )
        beside = trained_beside(losses)
        kept = training.add({names: x for names, x in losses.items() if names not in beside})
        memory["training"] = training.to_json()
        passed = means_of_pass(memory) | {
            (*beside[names], names[0]): losses[names] for names in beside
        }
        judged = {k: x for k, x in passed.items() if k[:2] in (kept if losses else training.names)}
        if not judged:
            return None
        num_steps = memory.get("now", 0) - memory.get("begin", 0)
        since = memory.get("since", 0)
        now = {key: _training(training.of(key[:2]), num_steps, since) for key in judged}
        validations = self._validations(judged, now, memory)
        patience = int(getattr(self, "patience", 1))
        before: dict[str, int] = memory.get("streaks", {})
        streaks, found = {}, {}
        for key in sorted(judged):
            if key not in validations:
                continue
            finding = self.judge(validations[key], now[key])
            place = "\n".join(key)
            streaks[place] = min(before.get(place, 0) + 1, patience) if finding else 0
            if finding and streaks[place] >= patience and not finding.is_early:
                found[key] = finding
        memory["streaks"] = streaks
        return found

    def _validations(
        self,
        judged: Mapping[_Passed, float],
        training: Mapping[_Passed, Training],
        memory: Memory,
    ) -> dict[_Passed, Validation]:
        """Add passes to those before; return what is known of each loss of validation."""
        history = SeriesMemory(memory.get("validation", {}), num_first=1, num_latest=_NUM_PASSES)
        history.add({(key[2], key[1]): x for key, x in judged.items()})
        memory["validation"] = history.to_json()
        lowest: dict[str, list[float]] = memory.setdefault("lowest", {})
        found = {}
        for key, now in judged.items():
            if (key[2], key[1]) not in history.names:
                continue
            series = history.of((key[2], key[1]))
            place = "\n".join(key[1:])
            smallest, beside_first = lowest.get(place, (now, training[key].now))
            lowest[place] = [min(smallest, now), within_limits(beside_first)]
            found[key] = Validation(
                name=key[2],
                passes=series.latest,
                first=float(series.first[0]),
                lowest=min(smallest, now),
                beside_first=beside_first,
                of_trees=key[0] != key[2],
                beside=memory.get("beside", {}),
                num_steps=memory.get("steps", 0) or memory.get("length", 0),
            )
        return found


def training_of(memory: Memory, series: Series) -> Training | None:
    """Return the losses of training of a name and worker; None before there are 5.

    Args:
        memory: That of a `ValidationRule`.
        series: Name and worker.
    """
    kept = memory.get("training", {})
    training = SeriesMemory(kept, num_first=_NUM_FIRST, num_latest=_NUM_LATEST)
    numbers = training.of(series) if series in training.names else None
    return _training(numbers, 0) if numbers and numbers.count >= _NUM_FIRST else None


def _training(series: NumberSeries, num_steps: int, since: int = 0) -> Training:
    now = float(np.median(series.latest[-_NUM_NOW:]))
    fall = float(np.median(series.first)) - now
    before, after = np.array_split(series.latest, 2)
    rise = float(np.median(after) - np.median(before)) if len(after) else 0.0
    lately = float(np.median(series.latest[-since:])) if since else -math.inf
    return Training(now, series.start, noise(series.latest), fall, rise, num_steps, lately)


def _without_losses(step: StepView, memory: Memory, *, is_empty: bool) -> Outcome:
    """Return what a step without losses tells; a pass of EVAL may be of another model."""
    is_other = step.mode is ModeKeys.EVAL and is_empty and "training" in memory
    if is_other and "validation" in memory:
        return NotApplicable(_BETWEEN)
    return NotEvaluated(why_no_validation(step) if is_other else "no finite loss was saved")


def _reason(step: StepView, losses: Iterable[Series]) -> str:
    is_alone = is_training(step) and not any(loss_side(name, step.mode)[1] for name, _ in losses)
    return _NO_TRAINING_LOSS if is_alone else why_no_validation(step)
