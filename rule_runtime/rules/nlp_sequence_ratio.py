"""NLPSequenceRatio: input sequences of which too much is one token, such as padding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.engine.parameters import ParameterError
from rule_runtime.engine.rule import Memory, Regex, Rule, Unit
from rule_runtime.facts.selection import evidence, worst

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["NLPSequenceRatio"]

_REMEDY: Final = (
    "If it is padding, put sequences of similar length into a batch, or pad to the longest of the "
    "batch; if it is the unknown token, use a larger or a subword vocabulary."
)


class NLPSequenceRatio(Rule):
    """Finds input sequences that consist to a large part of one token.

    How it decides:
        At each step, for each input and worker, 100 * (elements equal to the token) / elements is
        compared with the token's threshold; strictly larger fires. Steps are not added up: each
        saved batch is judged by itself, in every mode. The largest percentage above its threshold
        is the evidence. The inputs are those of the collection `input_sequence` and those that
        `tensor_regex` finds; its default is the name in MXNet, so with other frameworks give the
        name of the embedding's input, e.g. `embedding_input_0`.

    Parameters:
        tensor_regex: Regular expressions of the inputs; the union with the collection
            `input_sequence`.
        token_values: The tokens that are counted.
        token_thresholds_percent: For each of them the largest percentage that is no issue.

    What to try:
        Batches of similar lengths, padding to the longest of the batch, another vocabulary.
    """

    tensor_regex: Annotated[tuple[str, ...], Regex()] = (".*embedding0_input_0",)
    token_values: tuple[float, ...] = (0.0,)
    token_thresholds_percent: Annotated[tuple[float, ...], Unit("%")] = (50.0,)

    def __post_init__(self) -> None:
        super().__post_init__()
        tokens, limits = len(self.token_values), len(self.token_thresholds_percent)
        if tokens != limits or not tokens:
            raise ParameterError(
                f"NLPSequenceRatio: there are {tokens} token_values and {limits} "
                "token_thresholds_percent; give a threshold for each token"
            )

    def requires(self) -> tuple[CollectionConfig, ...]:
        """Return the collection of the inputs, with their values."""
        pattern = "|".join(self.tensor_regex)
        parameters = {"save_interval": "500", "save_raw_tensor": "True"}
        if pattern:
            parameters["include_regex"] = pattern
        return (CollectionConfig("input_sequence", parameters),)

    def check(self, step: StepView, memory: Memory) -> Outcome:  # noqa: ARG002
        """Count the tokens of each input.

        Args:
            step: What was saved at the step.
            memory: Not used.
        """
        rows = step.tensors(collections=("input_sequence",), regex=self.tensor_regex)
        if not len(rows):
            return NotEvaluated(f"no input was saved, named as {', '.join(self.tensor_regex)}")
        excess, tokens = np.full(len(rows), np.nan), np.zeros(len(rows), np.intp)
        percents = np.full(len(rows), np.nan)
        limits = np.array(self.token_thresholds_percent)
        for at, (name, worker) in enumerate(zip(rows.names, rows.workers, strict=True)):
            found = self._percents(step.values((name,), worker).get(name))
            if found is not None:
                tokens[at] = (found - limits).argmax()
                percents[at] = found[tokens[at]]
                excess[at] = (found - limits)[tokens[at]]
        if np.isnan(excess).all():
            return NotEvaluated(f"the values of {min(rows.names)} were not saved, or are no tokens")
        at = worst(rows, excess, largest=True)
        if excess[at] <= 0:
            return Passed()
        token, limit = self.token_values[tokens[at]], limits[tokens[at]]
        return IssueFound(
            evidence(
                step,
                rows,
                at,
                measure="token_percent",
                value=percents[at],
                threshold=limit,
                message=(
                    f"{percents[at]:.4g} % of the elements are the token {token:g}, more than "
                    f"{limit:g} %"
                ),
                remedy=_REMEDY,
            )
        )

    def _percents(self, values: npt.NDArray[Any] | None) -> npt.NDArray[np.float64] | None:
        """Return the percentage of each token, None if there are no elements to count."""
        if values is None or not values.size or values.dtype.kind not in "biuf":
            return None
        counts = [np.count_nonzero(values == token) for token in self.token_values]
        return 100 * np.array(counts, np.float64) / values.size
