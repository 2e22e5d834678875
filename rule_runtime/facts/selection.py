"""Selects the tensors that a rule evaluates, and describes findings in them.

Shape legend: R = rows, one for each (tensor, worker).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Final

import numpy as np
import numpy.typing as npt

from hook_layer.format.modes import ModeKeys
from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import Evidence, IssueFound, Missing
from rule_runtime.engine.parameters import ParameterError
from rule_runtime.engine.rule import Regex, Rule
from rule_runtime.trial.step_view import StepView, TensorRows
from rule_runtime.trial.tensor_rows import worst

__all__ = [
    "MAX_NAMED",
    "SelectedTensorsRule",
    "declared",
    "describe_not_finite",
    "finding",
    "finite_means",
    "is_training",
    "issue",
    "name_or_only_member",
    "num_not_finite",
    "saved_every",
    "selected_collections",
    "what_to_try",
    "worst",
]

MAX_NAMED: Final = 5
"""Maximum number of columns or features that a finding names."""

_ADVICE: Final = "What to try:\n"
_TRAINING: Final = frozenset({ModeKeys.TRAIN, ModeKeys.GLOBAL})


def selected_collections(
    rule: str,
    names: Sequence[str],
    regex: Sequence[str],
    parameters: Mapping[str, str] | None = None,
) -> tuple[CollectionConfig, ...]:
    """Return the collections that the hook must save for the tensors of a rule.

    Args:
        rule: Name of the rule; also names the collection of the regular expressions.
        names: Names of collections.
        regex: Regular expressions of further tensors.
        parameters: Parameters of all these collections, such as `save_raw_tensor`.
    """
    given = dict(parameters or {})
    found = [CollectionConfig(name, given) for name in names]
    if regex:
        found.append(
            CollectionConfig(f"{rule}_tensors", {"include_regex": ",".join(regex), **given})
        )
    return tuple(found)


def saved_every(num_steps: int, *names: str, **parameters: object) -> tuple[CollectionConfig, ...]:
    """Return collections, given by name, that the hook saves at an interval of steps."""
    given = {"save_interval": num_steps, **parameters}
    return tuple(CollectionConfig(name, given) for name in names)


def name_or_only_member(step: StepView, worker: str, name: str, collection: str) -> str:
    """Return a name, or the only tensor of a collection if the worker saved none of this name."""
    if (name, worker) in step.tensors().pairs:
        return name
    rows = step.tensors(collections=(collection,))
    names = [one for one, of in rows.pairs if of == worker]
    return names[0] if len(names) == 1 else name


def is_training(step: StepView) -> bool:
    """Return whether weights may change at a step: its mode is TRAIN, or GLOBAL if none was set."""
    return step.mode in _TRAINING


def finding(
    rule: Rule,
    step: StepView,
    row: tuple[TensorRows, int],
    measured: tuple[str, float, float],
    message: str,
    *,
    remedy: str = "",
) -> IssueFound:
    """Return a finding in one row.

    Args:
        rule: The rule.
        step: The step.
        row: The rows, and the position of the row.
        measured: Name of the measure, its value, and the threshold.
        message: The finding in words; it follows the tensor's name and a colon.
        remedy: What to try first; by default the section `What to try` of the rule.
    """
    rows, at = row
    tensor = rows.names[at], rows.workers[at]
    return issue(step, tensor, measured, message, remedy or what_to_try(rule))


def issue(
    step: StepView,
    tensor: tuple[str, str],
    measured: tuple[str, float, float],
    message: str,
    remedy: str,
) -> IssueFound:
    """Return a finding in a worker's tensor; the arguments are those of `finding`."""
    (name, worker), (measure, value, threshold) = tensor, measured
    return IssueFound(
        Evidence(
            step=step.step,
            mode=step.mode.name,
            worker=worker,
            tensor=name,
            measure=measure,
            value=value,
            threshold=threshold,
            sentence=f"{name}: {message}",
            remedy=remedy,
        )
    )


def what_to_try(rule: Rule) -> str:
    """Return the section `What to try` of the docstring of a rule or its base."""
    texts = [(kind.__doc__ or "").partition(_ADVICE) for kind in type(rule).__mro__]
    return " ".join(next((text for _, heading, text in texts if heading), "").split())


def num_not_finite(rows: TensorRows) -> npt.NDArray[np.float64]:
    """Return the number of NaN and infinite elements of each row [R]; 0 if unknown."""
    return np.nan_to_num(rows.column("nan")) + np.nan_to_num(rows.column("inf"))


def describe_not_finite(rows: TensorRows, at: int) -> tuple[str, float, str]:
    """Return the non-finite elements of a row: name of the count, the count, and a message."""
    measure, noun = ("nan", "NaN") if rows.column("nan")[at] > 0 else ("inf", "infinite")
    count, size = float(rows.column(measure)[at]), rows.column("size")[at]
    of_size = "" if np.isnan(size) else f" of {int(size)}"
    return measure, count, f"{int(count)}{of_size} elements are {noun}"


def finite_means(rows: TensorRows) -> npt.NDArray[np.float64]:
    """Return the mean of each row [R], the value of a scalar such as a loss.

    It is NaN if the row has a non-finite element.
    """
    return np.where(num_not_finite(rows) > 0, np.nan, rows.column("mean"))


def declared(step: StepView, collection: str) -> dict[str, frozenset[str]]:
    """Return the tensors of a collection by worker, even if they were not saved at this step.

    Workers without a collections file, or without a tensor in this collection, are omitted.
    """
    found = {}
    for worker in step.workers:
        file = step.collections_file(worker)
        entry = None if file is None else file.collections.get(collection)
        if entry is not None and entry.tensor_names:
            found[worker] = frozenset(entry.tensor_names)
    return found


class SelectedTensorsRule(Rule):
    """Evaluates the tensors of the given collections and regular expressions.

    Attributes:
        must_select: Whether the user must select tensors; by default, all are evaluated.
        collection_names: Collections to evaluate, in addition to `tensor_regex`.
        tensor_regex: Regular expressions of tensors to evaluate.
    """

    must_select: ClassVar[bool] = True

    collection_names: tuple[str, ...] = ()
    tensor_regex: Annotated[tuple[str, ...], Regex()] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.must_select and not (self.collection_names or self.tensor_regex):
            raise ParameterError(
                f"{type(self).__name__}: select tensors by collection_names or tensor_regex"
            )

    @property
    def needs_values(self) -> bool:
        """Whether the hook must save values; otherwise statistics suffice."""
        return False

    def requires(self) -> tuple[CollectionConfig, ...]:
        """Return the selected collections; none if all saved tensors are evaluated."""
        parameters = {"save_raw_tensor": "True"} if self.needs_values else {}
        return selected_collections(
            type(self).__name__, self.collection_names, self.tensor_regex, parameters
        )

    def select(self, step: StepView) -> TensorRows:
        """Return the selected tensors of a step, possibly none."""
        return step.tensors(collections=self.collection_names, regex=self.tensor_regex)

    def judged_tensors(self, step: StepView) -> TensorRows:
        """Return the selected tensors of a step.

        Raises:
            Missing: If no selected tensor was saved.
        """
        rows = self.select(step)
        if not len(rows):
            is_selected = self.collection_names or self.tensor_regex
            how = "check collection_names and tensor_regex" if is_selected else ""
            raise Missing("none of the selected tensors was saved", how)
        return rows
