"""What the chief writes for a run: job.json, the times of steps, and the end marker."""

from __future__ import annotations

import json
import time
from datetime import datetime, timezone
from pathlib import Path

import pytest

from hook_layer.configuration.hook_setup import HookSetup
from hook_layer.configuration.job import CheckpointConfig, HookTargets, JobEnvironment
from hook_layer.format.paths import END_MARKER, JOB_FILE, index_key
from hook_layer.testing.written_trial import WrittenTrial
from tests.hook_layer.tiny_hook import TinyHook, W, make_hook

RULES = ({"RuleConfigurationName": "V", "RuleParameters": {"rule_to_invoke": "V"}},)
ARN = "arn:aws:sagemaker:eu-west-1:123456789012:training-job/mnist-7"


def test_the_name_tag_says_all_that_the_evaluators_need(trial: WrittenTrial) -> None:
    job = JobEnvironment("mnist-7", ARN, RULES, ({"name": "stoptraining"},), opt_out_of_stop=True)
    hook = make_hook(trial, job=job)
    hook.train(W)
    hook.close()
    content = json.loads(trial.store.get(JOB_FILE))
    started_at = datetime.strptime(content.pop("StartedAt"), "%Y-%m-%dT%H:%M:%S%z")
    assert abs((datetime.now(timezone.utc) - started_at).total_seconds()) < 60
    assert content == {
        "SchemaVersion": 1,
        "TrainingJobName": "mnist-7",
        "RunId": trial.indexes()[0].run,
        "Platform": "sagemaker",
        "TrainingJobArn": ARN,
        "DebugRuleConfigurations": list(RULES),
        "Actions": [{"name": "stoptraining"}],
        "OptOutOfStop": True,
    }


def test_a_job_without_rules_of_its_own_leaves_them_to_the_deployment(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    hook.train(W)
    hook.close()
    content = json.loads(trial.store.get(JOB_FILE))
    assert not content.keys() & {"DebugRuleConfigurations", "Actions", "TrainingJobArn"}
    assert content["OptOutOfStop"] is False
    assert content["Platform"] == "local"


def test_the_name_tag_is_written_first(
    trial: WrittenTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = make_hook(trial)
    keys: list[str] = []
    put = hook.session.store.put

    def note(key: str, data: object) -> None:
        keys.append(key)
        put(key, data)

    monkeypatch.setattr(hook.session.store, "put", note)
    for _ in range(2):
        hook.train(W)
    hook.close()
    assert keys[0] == JOB_FILE
    assert keys.index(index_key(0, "worker_0")) < keys.index(index_key(1, "worker_0"))
    assert keys[-1] == END_MARKER


@pytest.mark.parametrize("is_local", [True, False])
def test_on_sagemaker_the_platform_marks_the_end_of_a_local_folder(
    trial: WrittenTrial, tmp_path: Path, is_local: bool
) -> None:
    place = WrittenTrial(str(tmp_path / "trial")) if is_local else trial
    hook = make_hook(place, job=JobEnvironment("mnist-7", ARN))
    hook.train(W)
    hook.close()
    assert (place.end_marker() is None) == is_local


def test_a_hook_that_saves_nothing_takes_no_claim_and_reads_no_state(tmp_path: Path) -> None:
    trial = WrittenTrial(str(tmp_path / "trial"))
    checkpoint = CheckpointConfig(tmp_path / "checkpoints")
    made = make_hook(trial, checkpoint=checkpoint)
    hook = TinyHook(
        HookSetup(
            HookTargets(trial.store, checkpoint=checkpoint),
            made.collection_manager,
            made.session.options,
            dry_run=True,
        )
    )
    for _ in range(2):
        hook.train(W)
    hook.close()
    made.close()
    assert not list(tmp_path.iterdir())


def test_an_index_has_the_time_at_which_its_step_began(trial: WrittenTrial) -> None:
    before = time.time()
    hook = make_hook(trial)
    for _ in range(3):
        hook.train(W)
    hook.close()
    times = [index.time or 0 for index in trial.indexes().values()]
    assert len(times) == 3
    assert before <= times[0] <= times[1] <= times[2] <= time.time()
