"""Findings that stop a run: any of some rules, and fatal ones of others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rule_runtime.embedded.stop_policy import StopPolicy
from rule_runtime.engine.registry import available_rules
from rule_runtime.rules.non_finite import NonFinite
from rule_runtime.rules.vanishing_gradient import VanishingGradient
from rule_runtime.testing import TrialBuilder

POLICY = StopPolicy(frozenset({"VanishingGradient"}), frozenset({"NonFinite", "DeadRelu"}))


@pytest.mark.parametrize(("rule", "is_fatal"), [(NonFinite(), True), (VanishingGradient(), None)])
def test_evidence_says_whether_the_run_can_recover(
    rule: NonFinite | VanishingGradient, is_fatal: bool | None
) -> None:
    trial = TrialBuilder()
    trial.collections(losses=("loss",), weights=("^a$",))
    trial.step(500, {"loss": np.float32(np.nan), "gradient/a": np.float32([0]), "a": [1.0]})
    evidence = trial.evaluate(rule).evidence
    assert evidence is not None
    assert (evidence.rule, evidence.is_fatal) == (type(rule).__name__, is_fatal)
    for fatal in (True, None):
        of = replace(evidence, is_fatal=fatal)
        assert POLICY.stops("VanishingGradient", of)
        assert POLICY.stops("NonFinite", of) is bool(fatal)
        assert not POLICY.stops("MyRule", of)
    assert not POLICY.stops("NonFinite", None)
    assert not StopPolicy().stops("NonFinite", evidence)


def test_fatal_measures_are_those_of_rules_that_stop_a_run() -> None:
    fatal = {name for name, rule in available_rules().items() if rule.fatal_measures}
    assert fatal == {
        *(
            "DeadOptimizer",
            "IneffectiveSteps",
            "LabelDegenerate",
            "LossDiverging",
            "MissingGradient",
            "NonFinite",
        ),
        *("OutputContract", "StalledTrainingRule", "TrainingLoop"),
    }
