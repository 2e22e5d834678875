"""Judging a stored run from Python: `stepwatch.evaluate`."""

from __future__ import annotations

import os
from collections.abc import Mapping

from hook_layer.storage.base import open_store
from rule_runtime.configuration.named_rules import Rules, named_rules
from rule_runtime.engine.side_by_side import judge_stored_run
from rule_runtime.engine.state import EvaluationState
from rule_runtime.trial.saved_steps import check_has_steps
from rule_runtime.trial.sessions import one_run_at

__all__ = ["evaluate"]


def evaluate(
    path: str | os.PathLike[str],
    rules: Rules = "recommended",
) -> Mapping[str, EvaluationState]:
    """Judge a stored run, and return the final state of each rule by the rule's name.

    ```python
    states = stepwatch.evaluate("runs/mnist", ["NonFinite", WeightNorm(bound=5.0)])
    states["WeightNorm"].status  # RuleStatus.ISSUES_FOUND
    ```

    Args:
        path: Folder or `s3://` URI of a run, or of a session with one run.
        rules: Name of a pack; or rules, and names of built-in rules; or a dict of names under which
            to report, and rules.

    Raises:
        ValueError: No step is stored there, the session has several runs, a rule or pack does not
            exist, no rule is given, or two have the same name.
        TypeError: Something given as a rule is none.
        StorageError: The storage cannot be read.
    """
    named = named_rules(rules)
    run = one_run_at(os.fspath(path))
    check_has_steps(run)
    return judge_stored_run(open_store(run), list(named.items()))
