"""What the target tells a training to save: what its deployed rules judge."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hook_layer.configuration.hook_json import load_hook_configuration
from infra.local.hook_configuration import SAVE_INTERVAL, write_hook_configuration
from infra.rule_settings import RuleCheckError, read_rules
from lambdas.contracts.environment import RULE_PARAMETERS
from rule_runtime.configuration.packs import PACKS


class Functions:
    """The functions of a deployment, as Lambda lists them, a page each."""

    def __init__(self, *environments: dict[str, str] | None) -> None:
        self.environments = environments

    def get_paginator(self, name: str) -> Functions:
        assert name == "list_functions"
        return self

    def paginate(self) -> list[dict[str, Any]]:
        return [
            {"Functions": [{} if each is None else {"Environment": {"Variables": each}}]}
            for each in self.environments
        ]


def written(path: Path, *environments: dict[str, str] | None) -> dict[str, Any]:
    write_hook_configuration(lambda _: Functions(*environments), "s3://tensors", path)
    content: dict[str, Any] = json.loads(path.read_text())["DebugHookConfig"]
    return content


def test_it_follows_from_the_deployed_rules(tmp_path: Path) -> None:
    rules = read_rules("recommended")
    deployed = [{RULE_PARAMETERS: rule.environment_value()} for rule in rules]
    found = written(tmp_path / "stepwatch.json", *deployed, {"OTHER": "function"}, None)
    pack = replace(PACKS["recommended"].with_interval(SAVE_INTERVAL), begins_densely=True)
    assert found["S3OutputPath"] == "s3://tensors"
    assert {each["CollectionName"]: each for each in found["CollectionConfigurations"]} == {
        each.name: each.to_json() for each in pack.collections()
    }
    load_hook_configuration(tmp_path / "stepwatch.json", environ={"TRAINING_JOB_NAME": "my-job"})


def test_rules_that_no_hook_can_serve_are_reported(tmp_path: Path) -> None:
    deployed = {RULE_PARAMETERS: json.dumps({"rule_to_invoke": "VanishingGradients"})}
    with pytest.raises(RuleCheckError, match="VanishingGradients"):
        written(tmp_path / "stepwatch.json", deployed)
