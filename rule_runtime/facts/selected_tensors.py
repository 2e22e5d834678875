"""The base of rules that judge whichever tensors they are told to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Final

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import NotEvaluated
from rule_runtime.engine.parameters import ParameterError
from rule_runtime.engine.rule import Regex, Rule
from rule_runtime.facts.selection import selected_collections

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["NONE_SAVED", "SelectedTensorsRule"]

NONE_SAVED: Final = NotEvaluated("none of the selected tensors was saved")
"""What such a rule answers at a step without any of its tensors."""


class SelectedTensorsRule(Rule):
    """Judges the tensors of the collections and regular expressions that it is given.

    Attributes:
        must_select: Whether something must be given; all saved tensors are judged otherwise.
        collection_names: Collections to look at; together with `tensor_regex`, their union.
        tensor_regex: Regular expressions of further tensors to look at.
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
        """Whether statistics may not suffice."""
        return False

    def requires(self) -> tuple[CollectionConfig, ...]:
        """Return what was chosen; nothing where all saved tensors are judged."""
        parameters = {"save_raw_tensor": "True"} if self.needs_values else {}
        return selected_collections(
            type(self).__name__, self.collection_names, self.tensor_regex, parameters
        )

    def select(self, step: StepView) -> TensorRows:
        """Return the chosen tensors of a step.

        Args:
            step: The step.
        """
        return step.tensors(collections=self.collection_names, regex=self.tensor_regex)
