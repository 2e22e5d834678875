"""Jobs that are judged by a pack: the hook saves what its rules need, and nobody has to list it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from hook_layer.pytorch import Hook
from rule_runtime.cli.evaluation import evaluate_run
from rule_runtime.configuration import CollectionConfig, DebuggerHookConfig, Rule, rule_configs
from rule_runtime.configuration.packs import PACKS, Pack
from rule_runtime.engine.outcome import RuleStatus
from rule_runtime.engine.registry import create_rule
from rule_runtime.jobs import PreparedJob, prepare
from tests.rule_runtime.jobs.conftest import BUCKET, OUTPUT, Account

RECOMMENDED = PACKS["recommended"]
WANTED = {each.name: dict(each.parameters) for each in RECOMMENDED.collections()}


def in_folder(folder: Path, **arguments: Any) -> PreparedJob:
    return prepare(**{"job_name": "job", "output_path": folder, **arguments})


def document_of(job: PreparedJob) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(Path(job.environment["STEPWATCH_CONFIG"]).read_text())
    return content


def saved(job: PreparedJob) -> dict[str, dict[str, str]]:
    return {
        each["CollectionName"]: each.get("CollectionParameters", {})
        for each in document_of(job)["DebugHookConfig"].get("CollectionConfigurations", ())
    }


def judged_by(job: PreparedJob) -> dict[str, dict[str, str]]:
    return {
        each["RuleConfigurationName"]: each["RuleParameters"]
        for each in document_of(job)["DebugRuleConfigurations"]
    }


def packs_of(rules: list[dict[str, Any]]) -> dict[str, str | None]:
    """Return the pack that each rule came by, as a configuration or `job.json` says it."""
    return {each["RuleConfigurationName"]: each.get("Pack") for each in rules}


def members_of(job: PreparedJob) -> list[dict[str, Any]]:
    members: list[dict[str, Any]] = job.configuration.to_json("job")["DebugRuleConfigurations"]
    return members


def train(job: PreparedJob, monkeypatch: pytest.MonkeyPatch, num_steps: int = 320) -> None:
    """Train a small network as a script does that knows nothing of the job but its environment."""
    monkeypatch.setenv("STEPWATCH_CONFIG", job.environment["STEPWATCH_CONFIG"])
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    criterion = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hook = Hook.create_from_json_file()
    hook.register_module(model)
    hook.register_loss(criterion)
    for _ in range(num_steps):
        inputs = torch.randn(32, 4)
        optimizer.zero_grad()
        criterion(model(inputs), inputs[:, :3].argmax(1)).backward()
        optimizer.step()
    hook.close()


class TestDeployedRules:
    def test_what_they_need_is_saved_where_nobody_says_what_is(self, tmp_path: Path) -> None:
        job = in_folder(tmp_path)
        assert saved(job) == WANTED
        assert "DebugRuleConfigurations" not in document_of(job)
        assert job.warnings == ()

    def test_a_training_gives_them_what_they_judge_by(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        job = in_folder(tmp_path)
        train(job, monkeypatch)
        states = evaluate_run(job.debug_output, list(RECOMMENDED.rules().items()))
        idle = {name for name, state in states.items() if state.status is RuleStatus.ERROR}
        # One worker; no tanh or sigmoid; no labels of classes, no scores; no losses of validation.
        assert idle <= {
            *("ReplicaDivergence", "SaturatedActivation", "DoubleActivation", "ClassImbalance"),
            *("LabelDegenerate", "GeneralisationGap", "SuspiciouslyGood"),
        }
        found = [name for name, state in states.items() if state.status is RuleStatus.ISSUES_FOUND]
        assert not found

    def test_no_rules_need_nothing(self, tmp_path: Path) -> None:
        assert saved(in_folder(tmp_path, rules=[])) == {}

    @pytest.mark.usefixtures("account")
    def test_what_a_hook_configuration_leaves_out_is_reported(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        hook = DebuggerHookConfig(collection_configs=[CollectionConfig("gradients")])
        job = prepare(job_name="job", output_path=OUTPUT, hook_config=hook)
        (warning,) = job.warnings
        assert caplog.messages == [warning]
        assert "22 of the 29 rules of the pack recommended" in warning
        missing = sorted(WANTED.keys() - {"gradients", "losses"})
        assert f"does not save {', '.join(missing)}" in warning
        assert "rules='recommended'" in warning

    @pytest.mark.usefixtures("account")
    def test_losses_of_validation_that_are_not_saved_are_reported(self) -> None:
        configs = [CollectionConfig(name) for name in WANTED]
        hook = DebuggerHookConfig(collection_configs=configs)
        (warning,) = prepare(job_name="job", output_path=OUTPUT, hook_config=hook).warnings
        assert warning.startswith(
            "GeneralisationGap, SuspiciouslyGood probably cannot be evaluated"
        )

    @pytest.mark.usefixtures("account")
    @pytest.mark.parametrize(
        "arguments",
        [
            {"hook_config": DebuggerHookConfig(collection_configs=RECOMMENDED.collections())},
            {"hook_config": DebuggerHookConfig(), "rules": []},
            {"hook_config": DebuggerHookConfig(), "rules": "recommended"},
            {"hook_config": False},
        ],
    )
    def test_nothing_is_reported_where_nothing_is_missing(self, arguments: dict[str, Any]) -> None:
        assert prepare(job_name="job", output_path=OUTPUT, **arguments).warnings == ()

    def test_nothing_is_deployed_for_folders(self, tmp_path: Path) -> None:
        assert in_folder(tmp_path, hook_config=DebuggerHookConfig()).warnings == ()


class TestNamedPacks:
    def test_the_rules_of_a_pack_by_its_name(self, tmp_path: Path) -> None:
        job = in_folder(tmp_path, rules="recommended")
        assert saved(job) == WANTED
        assert job.warnings == ()
        judging = {name: create_rule(name, given) for name, given in judged_by(job).items()}
        assert judging == RECOMMENDED.rules()
        assert judged_by(job)["PoorWeightInitialization"]["conditions"] == "scale,symmetry"

    def test_in_a_bucket(self, account: Account) -> None:
        job = prepare(job_name="job", output_path=OUTPUT, rules="recommended")
        assert account.keys(BUCKET) == ["output/job/stepwatch.json"]
        assert len(job.job().rule_job_summary()) == len(RECOMMENDED.parameters)

    def test_the_pack_of_the_original_has_what_each_of_its_rules_asks_for(
        self, tmp_path: Path
    ) -> None:
        job = in_folder(tmp_path, rules="original")
        assert set(judged_by(job)) == set(PACKS["original"].parameters)
        assert saved(job)["losses"]["eval.save_interval"] == "10"
        (warning,) = job.warnings
        assert "DeadRelu (every 500)" in warning
        assert "give hook_parameters a smaller save_interval" in warning

    def test_it_is_saved_more_often_as_that_says(self, tmp_path: Path) -> None:
        hook = DebuggerHookConfig(hook_parameters={"save_interval": 50})
        job = in_folder(tmp_path, rules="original", hook_config=hook)
        assert saved(job)["relu_output"]["save_interval"] == "50"
        assert job.warnings == ()

    def test_steps_that_the_hook_is_given_count_from_the_first_one(self, tmp_path: Path) -> None:
        assert "train.save_steps" in saved(in_folder(tmp_path / "a", rules="recommended"))["losses"]
        hook = DebuggerHookConfig(hook_parameters={"save_interval": 10})
        job = in_folder(tmp_path / "b", rules="recommended", hook_config=hook)
        assert not any("save_steps" in key for each in saved(job).values() for key in each)

    def test_a_rule_beside_a_pack_counts_for_that_of_its_name(self, tmp_path: Path) -> None:
        other = Rule.custom("VanishingGradient", rule_parameters={"threshold": 1e-9})
        own = Rule.custom("Tanh", rule_parameters={"rule_to_invoke": "ExplodingTensor"})
        rules = judged_by(in_folder(tmp_path, rules=["recommended", other, own]))
        assert list(rules)[-2:] == ["VanishingGradient", "Tanh"]
        assert len(rules) == len(RECOMMENDED.parameters) + 1
        assert rules["VanishingGradient"] == {"threshold": "1e-09"}

    def test_it_is_said_which_rules_came_by_a_pack(self, tmp_path: Path) -> None:
        other = Rule.custom("VanishingGradient", rule_parameters={"threshold": 1e-9})
        mine = Pack("mine", "Mine.", {"ExplodingTensor": {}})
        job = in_folder(tmp_path, rules=["recommended", other, mine])
        expected = {
            **dict.fromkeys(RECOMMENDED.parameters, "recommended"),
            "ExplodingTensor": "mine",
        }
        reported = packs_of(document_of(job)["DebugRuleConfigurations"])
        assert reported == {**expected, "VanishingGradient": None}
        # CreateTrainingJob knows no such member.
        assert not any("Pack" in each for each in members_of(job))

    def test_the_hook_passes_it_on(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        job = in_folder(tmp_path, rules=Pack("mine", "Mine.", {"NonFinite": {}}))
        train(job, monkeypatch, num_steps=1)
        stored = json.loads((tmp_path / "job" / "debug-output" / "job.json").read_text())
        assert packs_of(stored["DebugRuleConfigurations"]) == {"NonFinite": "mine"}

    def test_a_pack_saved_at_other_steps(self, tmp_path: Path) -> None:
        job = in_folder(tmp_path, rules=RECOMMENDED.with_interval(50))
        assert saved(job)["gradients"]["save_interval"] == "50"
        assert job.warnings == ()

    def test_a_pack_of_ones_own(self, tmp_path: Path) -> None:
        job = in_folder(tmp_path, rules=[Pack("mine", "Mine.", {"NonFinite": {}})])
        assert set(saved(job)) == {"weights", "gradients", "losses", "optimizer_steps"}

    def test_what_a_hook_configuration_says_counts(self, tmp_path: Path) -> None:
        said = CollectionConfig("gradients", {"save_interval": "40"})
        hook = DebuggerHookConfig(collection_configs=[said])
        job = in_folder(tmp_path, rules="recommended", hook_config=hook)
        assert saved(job)["gradients"] == {"save_interval": "40"}
        assert saved(job).keys() == WANTED.keys()
        (warning,) = job.warnings  # one for all of its rules
        assert "NonFinite" in warning
        assert "VanishingGradient" in warning

    def test_each_rule_is_told_what_it_lacks_by_itself(self, tmp_path: Path) -> None:
        said = CollectionConfig("relu_output", {"reductions": "l2", "save_interval": 10})
        hook = DebuggerHookConfig(collection_configs=[said])
        (warning,) = in_folder(tmp_path, rules="recommended", hook_config=hook).warnings
        assert (
            "the rule DeadRelu lacks data that it needs" in warning
        )  # DoubleActivation needs no values

    @pytest.mark.parametrize(
        ("rules", "reported"),
        [
            ("recomended", "there is no pack 'recomended'; did you mean 'recommended'"),
            (["VanishingGradient"], "there is no pack 'VanishingGradient'.*Rule.sagemaker"),
            (["original", "recommended"], "2 rules are called 'ClassImbalance'"),
        ],
    )
    def test_what_is_no_pack(self, tmp_path: Path, rules: object, reported: str) -> None:
        with pytest.raises(ValueError, match=reported):
            in_folder(tmp_path, rules=rules)

    def test_rules_and_packs_are_listed(self, tmp_path: Path) -> None:
        with pytest.raises(TypeError, match="rules is 7"):
            in_folder(tmp_path, rules=7)
        with pytest.raises(TypeError, match=r"rules is Rule.*: put it into a list"):
            in_folder(tmp_path, rules=Rule.sagemaker(rule_configs.overfit()))
