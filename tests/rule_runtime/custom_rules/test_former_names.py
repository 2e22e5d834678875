from __future__ import annotations

import importlib


def test_a_rule_that_imports_from_the_former_package_is_a_rule_of_the_engine() -> None:
    former = importlib.import_module("rule_runtime.evaluation.rule")
    outcome = importlib.import_module("rule_runtime.evaluation.outcome")
    engine = importlib.import_module("rule_runtime.engine")
    assert former.Rule is engine.rule.Rule
    assert outcome.IssueFound is engine.outcome.IssueFound
