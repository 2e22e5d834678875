"""Rules in files of the user, in three styles, on the same run: locally, and in any split."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hook_layer.storage.local import LocalStore
from rule_runtime import create_trial
from rule_runtime.custom_rules.loader import load_custom_rule
from rule_runtime.custom_rules.smdebug_rule import invoke_rule
from rule_runtime.engine.outcome import (
    RuleStatus,
    status_details,
)
from rule_runtime.testing.trial_builder import TrialBuilder
from rule_runtime.trial.errors import NoMoreData
from tests.rule_runtime.custom_rules.smdebug_runs import (
    STEPS,
    STYLES,
    judged,
    load,
)


class TestThreeStyles:
    @pytest.mark.parametrize("style", STYLES)
    def test_each_finds_the_issue(self, jobs: Path, style: str) -> None:
        state = judged(jobs, load(style), [])
        assert state.status is RuleStatus.ISSUES_FOUND
        assert state.evidence is not None
        first = 30 if style == "required" else 25  # the second step behind the other
        assert (state.evidence.first_step, state.evidence.last_step) == (first, 45)
        assert state.counts.evaluated == len(STEPS)
        name = STYLES[style][1]
        assert f"Evaluation of the rule {name} at step {first}" in status_details(name, state)
        if style != "native":
            assert state.evidence.line.endswith(
                f": {name}.invoke_at_step({first}) is true (worker_0, TRAIN)"
            )
            json.dumps(state.evidence.to_json(), allow_nan=False)

    @pytest.mark.parametrize("style", STYLES)
    def test_each_is_quiet_on_the_healthy_run(self, jobs: Path, style: str) -> None:
        more = {"other_trial_0": str(jobs / "judged")} if style == "required" else {}
        state = judged(jobs, load(style, **more), [], name="other")
        assert state.status is RuleStatus.NO_ISSUES_FOUND
        assert state.counts.evaluated == len(STEPS)

    @settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(sizes=st.lists(st.integers(1, 4), max_size=10), is_fresh=st.booleans())
    @pytest.mark.parametrize("style", STYLES)
    def test_any_split_equals_one_pass(
        self, jobs: Path, style: str, sizes: list[int], is_fresh: bool
    ) -> None:
        rule = load(style)
        whole = judged(jobs, load(style) if is_fresh else rule, [])
        parts = judged(jobs, rule, list(sizes))
        assert (parts.status, parts.memory, parts.counts) == (
            *(whole.status, whole.memory, whole.counts),
        )
        assert parts.evidence is not None
        assert whole.evidence is not None
        assert parts.evidence.to_json() == whole.evidence.to_json()

    @pytest.mark.parametrize("style", ["documented", "required"])
    def test_the_original_way_of_invoking_agrees(self, jobs: Path, style: str) -> None:
        rule_class = load(style).rule_class  # type: ignore[attr-defined]
        trial = create_trial(jobs / "judged")
        others = [create_trial(jobs / "other")]
        if style == "required":
            rule = rule_class(trial, other_trials=others)
        else:
            rule = rule_class(trial, threshold="1e-3")
        fired = []
        judge = rule.invoke_at_step

        def noted(step: int) -> bool:
            holds = judge(step)
            fired.extend([step] if holds else [])
            return holds

        rule.invoke_at_step = noted
        with pytest.raises(NoMoreData):
            invoke_rule(rule)
        assert fired == STEPS[STEPS.index(30 if style == "required" else 25) :]


def test_the_documented_example_works(tmp_path: Path) -> None:
    page = Path(__file__).parents[3] / "docs" / "how-to" / "custom-rule.md"
    text = page.read_text(encoding="utf-8")
    start = text.index("from smdebug.rules import Rule")
    (tmp_path / "shown.py").write_text(text[start : text.index("```", start)])
    rule = load_custom_rule(
        tmp_path / "shown.py", "LossTooHigh", {"bound": "5"}, allowed=[tmp_path]
    )
    run = TrialBuilder(LocalStore(tmp_path / "run"))
    for step in range(6):
        run.step(step, {"CrossEntropyLoss_output_0": np.float32(step % 2 * 9)})
    state = run.evaluate(rule)
    assert state.evidence is not None
    assert (state.evidence.step, state.evidence.count) == (5, 1)
