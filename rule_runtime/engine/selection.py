"""Selects the steps and tensors that a rule evaluates, and the collections that it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Final

from hook_layer.format.modes import ModeKeys
from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import Missing
from rule_runtime.engine.parameters import ParameterError
from rule_runtime.engine.rule import Regex, Rule
from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = [
    "SelectedTensorsRule",
    "is_training",
    "saved_every",
    "selected_collections",
    "why_not_applicable",
]

_TRAINING: Final = frozenset({ModeKeys.TRAIN, ModeKeys.GLOBAL})


def selected_collections(
    rule: str,
    names: Sequence[str],
    regex: Sequence[str],
    parameters: Mapping[str, str],
) -> tuple[CollectionConfig, ...]:
    """Return the collections that the hook must save for the tensors of a rule.

    The rule's name also names the collection of the regular expressions. The parameters are those
    of all collections, such as `save_raw_tensor`.
    """
    found = [CollectionConfig(name, parameters) for name in names]
    if regex:
        matching = {"include_regex": ",".join(regex), **parameters}
        found.append(CollectionConfig(f"{rule}_tensors", matching))
    return tuple(found)


def saved_every(num_steps: int, *names: str, **parameters: object) -> tuple[CollectionConfig, ...]:
    """Return collections, given by name, that the hook saves at an interval of steps.

    Empty parameters are omitted.
    """
    named = {"save_interval": num_steps, **parameters}
    given = {name: value for name, value in named.items() if value != ""}
    return tuple(CollectionConfig(name, given) for name in names)


def is_training(step: StepView) -> bool:
    """Return whether weights may change at a step: its mode is TRAIN, or GLOBAL if none was set."""
    return step.mode in _TRAINING


def why_not_applicable(rule: Rule, step: StepView) -> str:
    """Return why a rule does not evaluate a step of this number or mode; empty if it does."""
    bounds = rule.step_bounds
    if not bounds.first <= step.step < bounds.end:
        return f"the rule evaluates only {bounds}"
    return "" if is_training(step) else rule.only_training.format(step.mode.name)


class SelectedTensorsRule(Rule):
    """Evaluates the tensors of the given collections and regular expressions.

    Attributes:
        must_select: Whether the user must select tensors; by default, all are evaluated.
    """

    must_select: ClassVar[bool] = True

    collection_names: tuple[str, ...] = ()
    tensor_regex: Annotated[tuple[str, ...], Regex()] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.must_select and not (self.collection_names or self.tensor_regex):
            name = type(self).__name__
            raise ParameterError(f"{name}: select tensors by collection_names or tensor_regex")

    @property
    def needs_values(self) -> bool:
        """Whether the hook must save values; otherwise statistics suffice."""
        return False

    def requires(self) -> tuple[CollectionConfig, ...]:
        """Return the selected collections; none if all saved tensors are evaluated."""
        parameters = {"save_raw_tensor": "True"} if self.needs_values else {}
        names, regex = self.collection_names, self.tensor_regex
        return selected_collections(type(self).__name__, names, regex, parameters)

    def select(self, step: StepView) -> TensorRows:
        """Return the selected tensors of a step, possibly none."""
        return step.tensors(collections=self.collection_names, regex=self.tensor_regex)

    def evaluated_tensors(self, step: StepView) -> TensorRows:
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
