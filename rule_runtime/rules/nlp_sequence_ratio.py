"""NLPSequenceRatio: detects input sequences that consist mostly of one token, such as padding."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.findings import finding
from rule_runtime.engine.outcome import Missing, Outcome, Passed
from rule_runtime.engine.parameters import ParameterError
from rule_runtime.engine.rule import Memory, Regex, Rule, Unit
from rule_runtime.engine.selection import saved_every
from rule_runtime.trial.step_view import StepView
from rule_runtime.trial.tensor_rows import worst
from rule_runtime.trial.value_pairs import row_values

__all__ = ["NLPSequenceRatio"]


class NLPSequenceRatio(Rule):
    """Detects input sequences that consist mostly of one token, such as padding.

    How it decides:
        At each saved step, the rule computes the percentage of each token in each input. It reports
        the token and input that exceed the token's threshold the most.

    Parameters:
        tensor_regex: Regular expressions of inputs besides the collection `input_sequence`, such as
            `embedding_input_0`. The default is MXNet's name.
        token_values: Tokens to count.
        token_thresholds_percent: For each token, the largest percentage that passes.

    What to try:
        If the token is padding, batch sequences of similar length, or pad to the longest of the
        batch. If it is the unknown token, use a larger or a subword vocabulary.
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
        names = "|".join(self.tensor_regex)
        return saved_every(500, "input_sequence", save_raw_tensor=True, include_regex=names)

    def check(self, step: StepView, memory: Memory) -> Outcome:  # noqa: ARG002
        """Compare the percentage of each token with its threshold."""
        rows = step.tensors(collections=("input_sequence",), regex=self.tensor_regex)
        if not len(rows):
            names = ", ".join(self.tensor_regex)
            raise Missing(f"no input named {names} was saved", "set tensor_regex to its name")
        percents = np.full((len(rows), len(self.token_values)), np.nan)
        for row, tokens in row_values(step, rows):
            if tokens.size and tokens.dtype.kind in "biuf":
                counts = [np.count_nonzero(tokens == token) for token in self.token_values]
                percents[row] = 100 * np.array(counts) / tokens.size
        if np.isnan(percents).all():
            reason = f"the values of {min(rows.names)} were not saved, or are not tokens"
            raise Missing(reason, step.how_to_save(rows.names))
        excess = percents - self.token_thresholds_percent
        at = worst(rows, excess.max(axis=1), largest=True)
        token = int(excess[at].argmax())
        if excess[at, token] <= 0:
            return Passed()
        value, threshold = percents[at, token], self.token_thresholds_percent[token]
        message = f"{value:.4g} % of the elements are the token {self.token_values[token]:g}, more "
        message += f"than {threshold:g} %"
        return finding(self, step, (rows, at), ("token_percent", value, threshold), message)
