"""Which rules a run is shown with whose user named none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hook_layer.format.job_file import JobFile
from hook_layer.format.paths import JOB_FILE
from hook_layer.storage.base import Store
from rule_runtime.embedded.result_writer import ResultWriter
from rule_runtime.engine.outcome import RuleStatus
from rule_runtime.engine.registry import create_rule
from rule_runtime.live_page.follower import RunFollower
from rule_runtime.live_page.run_rules import RunRules
from rule_runtime.testing import TrialBuilder
from tests.rule_runtime.cli.invoking import invoke, trial_in

RUN = TrialBuilder().run or ""
DEFAULT = [("NonFinite", create_rule("NonFinite", {}))]


def asking(*rules: dict[str, Any]) -> bytes:
    job = JobFile("job", RUN, "local", "2026-11-21T10:00:00Z", debug_rule_configurations=rules)
    return job.encode()


def statuses(follower: RunFollower) -> dict[str, RuleStatus]:
    while follower.look():
        pass
    return {each.name: each.status for each in follower.numbers().verdicts}


def store_verdict(store: Store, builder: TrialBuilder, name: str, rule: str) -> None:
    state = builder.evaluate(create_rule(rule, {}))
    ResultWriter(store, lambda: 0.0).write(RUN, {}, {name: state})


def test_rules_of_a_job_that_begins_after_the_watcher_are_shown_while_it_runs(
    tmp_path: Path,
) -> None:
    builder = trial_in(tmp_path / "run")
    follower = RunFollower(builder.store, RunRules(builder.store, lambda: DEFAULT))
    assert statuses(follower) == {}
    spike = {"RuleConfigurationName": "Mine", "RuleParameters": {"rule_to_invoke": "LossSpike"}}
    elsewhere = {
        "RuleConfigurationName": "Theirs",
        "RuleParameters": {"source_s3_uri": "s3://bucket/theirs.py", "rule_to_invoke": "Theirs"},
    }
    builder.store.put(JOB_FILE, asking(spike, elsewhere))
    builder.step(0, {"Loss_output_0": np.float32(np.nan)})
    in_progress = RuleStatus.IN_PROGRESS
    assert statuses(follower) == {"Mine": in_progress, "Theirs": in_progress}
    builder.end()
    store_verdict(builder.store, builder, "Theirs", "NonFinite")
    shown = statuses(follower)
    assert shown["Theirs"] is RuleStatus.ISSUES_FOUND
    assert shown["Mine"].is_final
    assert set(shown) == {"Mine", "Theirs"}


def test_what_the_deployed_rules_stored_takes_the_place_of_the_default(tmp_path: Path) -> None:
    now = 0.0
    builder = trial_in(tmp_path / "run")
    builder.store.put(JOB_FILE, JobFile("job", RUN, "local", "2026-11-21T10:00:00Z").encode())
    rules = RunRules(builder.store, lambda: DEFAULT)
    follower = RunFollower(builder.store, rules, clock=lambda: now)
    builder.step(0, {"Loss_output_0": np.float32(1)})
    assert set(statuses(follower)) == {"NonFinite"}
    store_verdict(builder.store, builder, "Deployed", "NonFinite")
    now += 10.0
    assert set(statuses(follower)) == {"Deployed"}
    assert RunRules(builder.store, lambda: DEFAULT).find() == ()


def test_a_job_that_asks_for_no_rule_is_shown_without(tmp_path: Path) -> None:
    trial = trial_in(tmp_path / "run")
    trial.store.put(JOB_FILE, asking())
    trial.step(0, {"loss": [1.0]})
    status, output = invoke("watch", tmp_path / "run", "--once")
    assert status == 0
    assert "NonFinite" not in output
