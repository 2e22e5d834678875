from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rule_runtime.cli.evaluation import evaluate_run
from rule_runtime.configuration.packs import PACKS
from rule_runtime.engine.outcome import IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.rules.feature_importance_overweight import FeatureImportanceOverweight
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract
from tests.rule_runtime.outcomes import evidence_of, make_run
from tests.rule_runtime.recommended_hook import hook_file
from tests.rule_runtime.rules.runs import found_at
from tests.rule_runtime.rules.xgboost_trials import boost, judged, matrix


def importances(values: list[float], kind: str = "weight") -> dict[str, Any]:
    return {
        f"feature_importance/{kind}/f{number}": np.array([value])
        for number, value in enumerate(values)
    }


class TestFeatureImportanceOverweightContract(RuleContract):
    def make_rule(self) -> FeatureImportanceOverweight:
        return FeatureImportanceOverweight()

    def make_tensors(self, step: int, worker: int) -> dict[str, Any]:
        shares = np.random.default_rng(step + worker).dirichlet(np.full(20, 5.0))
        return importances(list(shares))

    def make_sick(self, tensors: dict[str, Any]) -> dict[str, Any]:
        return {**tensors, "feature_importance/weight/f3": np.array([9.0])}


def outcome_of(rule: FeatureImportanceOverweight, tensors: dict[str, Any]) -> Outcome:
    return make_run(tensors).outcomes(rule)[0]


def test_the_share_must_be_larger_than_the_threshold() -> None:
    rule = FeatureImportanceOverweight(threshold=0.75, nfeatures=2)
    assert isinstance(outcome_of(rule, importances([0.5, 0.25, 0.125, 0.125])), Passed)
    evidence = evidence_of(outcome_of(rule, importances([0.25, 0.125, 0.0625, 0.5625])))
    assert (evidence.tensor, evidence.value) == ("feature_importance/weight/f3", 0.8125)
    assert evidence.sentence == (
        "feature_importance/weight/f3: the most important feature, with f0, has 0.812 of the "
        "importance of 4 features, more than 0.75"
    )


def test_no_more_features_than_are_added_up_say_nothing() -> None:
    reason = NotEvaluated("fewer than 4 features have an importance: lower min_features")
    assert outcome_of(FeatureImportanceOverweight(), importances([0.5, 0.3, 0.2])) == reason
    outcome = outcome_of(FeatureImportanceOverweight(), importances([0.5, 0.3, 0.19, 0.01]))
    assert isinstance(outcome, IssueFound)


def test_first_rounds_and_few_features_may_be_left_out() -> None:
    trial = TrialBuilder()
    for step in (0, 9, 10, 20):
        trial.step(step, importances([0.95] + [0.01] * 5, "total_gain"), mode_step=step)
    rule = FeatureImportanceOverweight(
        tensor_regex=(".*feature_importance/total_gain",),
        nfeatures=1,
        threshold=0.9,
        start_step=10,
        min_features=3,
    )
    assert found_at(rule, trial) == [10, 20]
    few = TrialBuilder()
    few.step(30, importances([0.926, 0.074], "total_gain"), mode_step=30)
    assert few.outcomes(rule) == [
        NotEvaluated("fewer than 3 features have an importance: lower min_features")
    ]


def test_types_of_importance_are_not_mixed() -> None:
    rule = FeatureImportanceOverweight(tensor_regex=("feature_importance/",))
    even = importances([0.25] * 4, "weight")
    steep = importances([0.7, 0.2, 0.05, 0.03, 0.02], "gain")
    assert isinstance(outcome_of(rule, even), Passed)
    assert evidence_of(outcome_of(rule, {**even, **steep})).tensor == "feature_importance/gain/f0"
    assert isinstance(outcome_of(FeatureImportanceOverweight(), {**even, **steep}), Passed)
    few = importances([0.9, 0.1], "gain")
    assert isinstance(outcome_of(rule, {**even, **few}), Passed)


def test_names_of_features_may_have_slashes() -> None:
    tensors = {f"feature_importance/weight/a/{n}": [0.2] for n in range(5)}
    tensors |= {f"feature_importance/weight/b/{n}": [0.2] for n in range(5)}
    assert isinstance(outcome_of(FeatureImportanceOverweight(threshold=0.5), tensors), Passed)


def test_numbers_that_are_no_importance_are_left_out() -> None:
    values = [0.25, 0.25, 0.25, 0.25, np.nan, np.inf, -1.0]
    assert isinstance(outcome_of(FeatureImportanceOverweight(), importances(values)), Passed)
    for values in ([np.nan] * 5, [0.0] * 5, [-1.0] * 5):
        outcome = outcome_of(FeatureImportanceOverweight(), importances(values))
        assert isinstance(outcome, NotEvaluated)


def test_more_features_than_are_told_are_counted() -> None:
    rule = FeatureImportanceOverweight(nfeatures=10, threshold=0.5)
    evidence = evidence_of(outcome_of(rule, importances([0.09] * 10 + [0.1 / 5] * 5)))
    assert "with f1, f2, f3, f4, f5 and 4 more, has 0.9 of" in evidence.sentence
    evidence = evidence_of(
        outcome_of(FeatureImportanceOverweight(nfeatures=1, threshold=0.5), importances([9, 1]))
    )
    assert "f0: the most important feature has 0.9 of" in evidence.sentence


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(0, 1e300), min_size=1, max_size=12),
    st.integers(1, 12),
    st.floats(0.01, 1),
)
def test_as_the_definition(values: list[float], nfeatures: int, threshold: float) -> None:
    rule = FeatureImportanceOverweight(nfeatures=nfeatures, threshold=threshold)
    outcome = outcome_of(rule, importances(values))
    total = sum(value / 1e3 for value in values)
    if len(values) <= nfeatures or total <= 0:
        assert isinstance(outcome, NotEvaluated)
        return
    share = sum(value / 1e3 for value in sorted(values)[-nfeatures:]) / total
    if abs(share - threshold) > 1e-9:
        assert isinstance(outcome, IssueFound) == (share > threshold)


def test_on_what_the_hook_for_xgboost_writes(tmp_path: Path) -> None:
    xgboost = pytest.importorskip("xgboost")
    healthy = matrix(rows=slice(0, 200))
    features, labels = matrix().get_data().toarray(), matrix().get_label()
    leak = xgboost.DMatrix(np.column_stack([features, labels])[:200], labels[:200])
    rule = FeatureImportanceOverweight(
        tensor_regex=("feature_importance/total_gain",), nfeatures=1, threshold=0.95
    )
    for data, fires in ((healthy, False), (leak, True)):
        trial = boost(
            tmp_path / str(fires),
            "feature_importance",
            data=data,
            validation=data,
            rounds=8,
            max_depth=4,
        )
        state = judged(trial, rule)
        assert (state.evidence is not None) == fires
        assert state.counts.evaluated > 3
        if state.evidence is not None:
            assert state.evidence.tensor == "feature_importance/total_gain/f10"


@pytest.mark.parametrize(
    ("noise", "depth", "found"), [(0.2, 2, set()), (0.0, 5, {"SuspiciouslyGood"})]
)
def test_one_feature_of_nearly_all_importance_is_no_leak(
    noise: float, depth: int, found: set[str], tmp_path: Path
) -> None:
    """It is one if validation is next to perfect: then it is the target in another form."""
    xgboost = pytest.importorskip("xgboost")
    from hook_layer.xgboost import Hook

    random = np.random.default_rng(0)
    features = random.normal(size=(1200, 6))
    target = features[:, 0] + noise * (features[:, 1:3].sum(1) + random.normal(size=1200))
    sets = [xgboost.DMatrix(features[rows], target[rows]) for rows in np.split(np.arange(1200), 2)]
    hook = Hook.create_from_json_file(hook_file(tmp_path))
    hook.validation_data = sets[1]
    xgboost.train(
        {"nthread": 1, "max_depth": depth},
        sets[0],
        61,
        evals=list(zip(sets, ("train", "validation"), strict=True)),
        verbose_eval=False,
        callbacks=[hook],
    )
    states = evaluate_run(str(tmp_path / "run"), list(PACKS["recommended"].rules().items()))
    assert {name for name, state in states.items() if state.evidence is not None} == found
    share = FeatureImportanceOverweight(
        tensor_regex=(".*feature_importance/total_gain",), nfeatures=1
    )
    states = evaluate_run(str(tmp_path / "run"), [("Share", share)])
    assert states["Share"].evidence is not None
