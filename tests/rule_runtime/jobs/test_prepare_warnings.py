"""What `prepare` does other than somebody may expect, it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rule_runtime.configuration import (
    SMS,
    ActionList,
    CollectionConfig,
    DebuggerHookConfig,
    Email,
    Rule,
    StopTraining,
    rule_configs,
)
from rule_runtime.jobs import PreparedJob, prepare

OVERFIT = Rule.sagemaker(rule_configs.overfit())
LOSSES = Rule.sagemaker(rule_configs.loss_not_decreasing())


def in_folder(folder: Path, **arguments: Any) -> PreparedJob:
    return prepare(**{"job_name": "job", "output_path": folder, "rules": [], **arguments})


class TestWhereTensorsGo:
    def test_a_path_of_the_hooks_own_is_reported(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        own = str(tmp_path / "teamA")
        job = in_folder(tmp_path, hook_config=DebuggerHookConfig(s3_output_path=own))
        (warning,) = job.warnings
        assert caplog.messages == [warning]
        assert f"tensors go to {job.debug_output}" in warning
        assert f"s3_output_path={own!r} in hook_config" in warning
        assert f"output_path={str(tmp_path)!r}" in warning

    @pytest.mark.parametrize("end", ["", "/"])
    def test_the_same_path_is_no_other(self, tmp_path: Path, end: str) -> None:
        hook = DebuggerHookConfig(s3_output_path=f"{tmp_path}{end}")
        assert in_folder(tmp_path, hook_config=hook).warnings == ()


class TestMessages:
    @pytest.mark.parametrize(
        "arguments",
        [
            {"rules": [OVERFIT], "actions": Email("ops@example.com")},
            {"rules": [Rule.sagemaker(rule_configs.overfit(), actions=Email("ops@example.com"))]},
            {"rules": None, "actions": ActionList(StopTraining(), Email("ops@example.com"))},
            {
                "rules": [
                    Rule.sagemaker(
                        rule_configs.overfit(), actions=Email("ops@example.com")
                    ).to_json("job")
                ]
            },
        ],
    )
    def test_an_address_is_told_to_be_none_that_is_written_to(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, arguments: dict[str, Any]
    ) -> None:
        job = in_folder(tmp_path, **arguments)
        (warning,) = job.warnings
        assert caplog.messages == [warning]
        assert "sends nothing to ops@example.com" in warning
        assert "AlertTopicArn" in warning
        assert "ActionEmail" in warning

    def test_all_are_reported_at_once(self, tmp_path: Path) -> None:
        rules = [
            Rule.sagemaker(rule_configs.overfit(), actions=Email("b@example.com")),
            LOSSES,
            Rule.sagemaker(rule_configs.overtraining(), actions=SMS("+491234")),
        ]
        actions = ActionList(Email("a@example.com"), Email("b@example.com"))
        warning = in_folder(tmp_path, rules=rules, actions=actions).warnings[0]
        assert "sends nothing to b@example.com, a@example.com, +491234" in warning
        assert "ActionEmail and ActionSMS" in warning

    def test_a_stop_is_no_message(self, tmp_path: Path) -> None:
        job = in_folder(tmp_path, rules=[OVERFIT], actions=StopTraining())
        assert job.warnings == ()

    def test_actions_that_no_evaluator_can_read_stay_as_they_are(self, tmp_path: Path) -> None:
        rule = {"RuleConfigurationName": "Overfit", "RuleParameters": {"action_json": "{mail"}}
        job = in_folder(tmp_path, rules=[rule])
        assert job.warnings == ()
        assert job.configuration.rules[0].rule_parameters == {"action_json": "{mail"}


class TestWhoSaysWhatIsSaved:
    def losses_of(self, folder: Path, *rules: Rule, **hook: Any) -> str:
        hook_config = DebuggerHookConfig(**hook) if hook else None
        warnings = in_folder(folder, rules=rules, hook_config=hook_config).warnings
        (warning,) = (each for each in warnings if "lacks data" in each)
        return warning

    def test_the_configuration_of_another_rule(self, tmp_path: Path) -> None:
        reported = self.losses_of(tmp_path, LOSSES, OVERFIT, hook_parameters={"save_interval": 50})
        assert "the rule Overfit lacks data that it needs" in reported
        assert "LossNotDecreasing has losses saved every 500 steps in mode TRAIN" in reported
        assert "but every 100 are needed" in reported
        assert "collections_to_save" in reported
        assert "hook" not in reported

    def test_the_hooks_configuration(self, tmp_path: Path) -> None:
        said = CollectionConfig("losses", {"save_interval": 1000})
        reported = self.losses_of(tmp_path, OVERFIT, collection_configs=[said])
        assert "hook_config has losses saved every 1000 steps" in reported
        assert "collections_to_save" not in reported

    def test_both(self, tmp_path: Path) -> None:
        said = CollectionConfig("losses", {"save_interval": 1000})
        reported = self.losses_of(tmp_path, LOSSES, OVERFIT, collection_configs=[said])
        assert "hook_config and LossNotDecreasing have losses saved every 500 steps" in reported
