from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rule_runtime.engine.outcome import IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.rules.nlp_sequence_ratio import NLPSequenceRatio
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract
from tests.rule_runtime.outcomes import evidence_of, make_run

NAME = "embedding0_input_0"


class TestNLPSequenceRatioContract(RuleContract):
    def make_rule(self) -> NLPSequenceRatio:
        return NLPSequenceRatio(token_values=(0, 1), token_thresholds_percent=(50, 20))

    def make_tensors(self, step: int, worker: int) -> dict[str, Any]:
        tokens = np.random.default_rng(step + worker).integers(2, 100, (8, 16))
        tokens[:, 10:] = 0
        return {NAME: tokens}

    def make_sick(self, tensors: dict[str, Any]) -> dict[str, Any]:
        return {NAME: np.where(np.arange(16) > 4, 0, tensors[NAME])}


def outcome_of(tokens: Any, rule: NLPSequenceRatio | None = None, name: str = NAME) -> Outcome:
    return make_run({name: tokens}).outcomes(rule or NLPSequenceRatio())[0]


@pytest.mark.parametrize(("num_zeros", "fires"), [(50, False), (51, True), (0, False)])
def test_the_percentage_must_be_larger_than_the_threshold(num_zeros: int, fires: bool) -> None:
    tokens = np.where(np.arange(100) < num_zeros, 0, 7).reshape(10, 10)
    outcome = outcome_of(tokens)
    assert isinstance(outcome, IssueFound if fires else Passed)
    if isinstance(outcome, IssueFound):
        evidence = outcome.evidence
        assert (evidence.tensor, evidence.value, evidence.threshold) == (NAME, 51, 50)
        assert evidence.sentence == (
            f"{NAME}: 51 % of the elements are the token 0, more than 50 %"
        )


def test_each_token_has_its_threshold() -> None:
    rule = NLPSequenceRatio(token_values=(0, 3), token_thresholds_percent=(90, 10))
    assert isinstance(outcome_of([0] * 9 + [3], rule), Passed)
    evidence = evidence_of(outcome_of([0] * 8 + [3] * 2, rule))
    assert (evidence.value, evidence.threshold) == (20, 10)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=40),
    st.lists(st.tuples(st.integers(0, 4), st.floats(0, 100)), min_size=1, max_size=4),
)
def test_as_the_definition(tokens: list[int], thresholds: list[tuple[int, float]]) -> None:
    rule = NLPSequenceRatio(
        token_values=tuple(token for token, _ in thresholds),
        token_thresholds_percent=tuple(limit for _, limit in thresholds),
    )
    percents = [100 * tokens.count(token) / len(tokens) - limit for token, limit in thresholds]
    if all(abs(excess) > 1e-9 for excess in percents):
        fires = max(percents) > 0
        assert isinstance(outcome_of(tokens, rule), IssueFound if fires else Passed)


def test_the_worst_input_and_worker_are_reported() -> None:
    trial = TrialBuilder(num_workers=2)
    trial.step(0, {NAME: [0, 0, 0, 1], f"b_{NAME}": [1, 1]}, worker="worker_0")
    trial.step(0, {NAME: [0, 0, 0, 0], f"b_{NAME}": [1, 1]}, worker="worker_1")
    evidence = evidence_of(*trial.outcomes(NLPSequenceRatio()))
    assert (evidence.tensor, evidence.worker) == (NAME, "worker_1")


def test_other_names_and_the_collection() -> None:
    rule = NLPSequenceRatio(tensor_regex=("^embedding_input_0$",))
    assert isinstance(outcome_of([0, 0], rule, "embedding_input_0"), IssueFound)
    assert isinstance(outcome_of([0, 0], None, "embedding_input_0"), NotEvaluated)
    trial = make_run({"tokens": [0, 0]}, collections={"input_sequence": ("^tokens",)})
    assert isinstance(trial.outcomes(NLPSequenceRatio())[0], IssueFound)
    (config,) = rule.requires()
    assert (config.name, config.parameters["include_regex"]) == (
        "input_sequence",
        "^embedding_input_0$",
    )
    assert "include_regex" not in NLPSequenceRatio(tensor_regex=()).requires()[0].parameters


@pytest.mark.parametrize("tokens", [[], ["a"], [1j]])
def test_what_are_no_tokens_is_not_evaluated(tokens: list[Any]) -> None:
    assert outcome_of(tokens) == NotEvaluated(
        f"the values of {NAME} were not saved, or are not tokens: save their values "
        "(save_raw_tensor)"
    )
