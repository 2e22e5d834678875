"""Base of the rules that judge any tensors that the user selects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import Missing
from rule_runtime.engine.parameters import ParameterError
from rule_runtime.engine.rule import Regex, Rule
from rule_runtime.facts.selection import selected_collections

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["SelectedTensorsRule"]


class SelectedTensorsRule(Rule):
    """Judges the tensors of the given collections and regular expressions.

    Attributes:
        must_select: Whether the user must select tensors; otherwise all saved ones are judged.
        collection_names: Collections to judge, in addition to `tensor_regex`.
        tensor_regex: Regular expressions of tensors to judge.
    """

    must_select: ClassVar[bool] = True

    collection_names: tuple[str, ...] = ()
    tensor_regex: Annotated[tuple[str, ...], Regex()] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.must_select and not (self.collection_names or self.tensor_regex):
            raise ParameterError(
                f"{type(self).__name__}: no tensor to judge; give collection_names or tensor_regex"
            )

    @property
    def needs_values(self) -> bool:
        """Whether the hook must save values; otherwise statistics suffice."""
        return False

    def requires(self) -> tuple[CollectionConfig, ...]:
        """Return the selected collections; none if all saved tensors are judged."""
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
            Missing: If none of them was saved.
        """
        rows = self.select(step)
        if not len(rows):
            is_selected = self.collection_names or self.tensor_regex
            how = "check collection_names and tensor_regex" if is_selected else ""
            raise Missing("none of the selected tensors was saved", how)
        return rows
