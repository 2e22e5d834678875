"""The evaluators of what jobs configure themselves, and the bucket of custom rules."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from lambdas.contracts import environment
from lambdas.contracts.events import CUSTOM_RULES, JOB_RULES
from tests.infra.queries import (
    Template,
    actions,
    as_list,
    function_of,
    only,
    resources,
    statements,
    variables,
)
from tests.infra.synthesis import template_of
from tools.statement_table import text_of

ROOT = Path(__file__).resolve().parents[2]
NAMES = {"JobRulesBuiltIn": JOB_RULES, "JobRulesCustom": CUSTOM_RULES}


@pytest.mark.parametrize("part", sorted(NAMES))
def test_both_are_told_which_names_and_files_there_are(full_template: Template, part: str) -> None:
    """Whose a configuration is they find out each for itself, so both have to know all."""
    reported = variables(full_template, part)
    assert reported[environment.RULE_CONFIGURATION_NAME] == NAMES[part]
    assert environment.RULE_PARAMETERS not in reported
    assert reported[environment.DEPLOYED_RULES] == "explosion"
    bucket, _ = only(resources(full_template, "AWS::S3::Bucket"), "JobRulesFiles")
    assert reported[environment.CUSTOM_RULE_BUCKET] == {"Ref": bucket}
    files = json.loads(reported[environment.CUSTOM_RULES])
    assert files == {"team/mine.py": "ab" * 32, "yours.py": "cd" * 32}
    assert function_of(full_template, part)[1]["RecursiveLoop"] == "Allow"


def test_without_files_there_is_no_function_that_runs_them(template: Template) -> None:
    reported = variables(template, "JobRules")
    assert reported[environment.RULE_CONFIGURATION_NAME] == JOB_RULES
    assert not reported.keys() & {environment.CUSTOM_RULE_BUCKET, environment.CUSTOM_RULES}
    assert "CustomRuleBucketName" not in template["Outputs"]


def test_the_bucket_of_files_is_private_encrypted_and_stays(full_template: Template) -> None:
    buckets = resources(full_template, "AWS::S3::Bucket")
    name, bucket = only(buckets, "JobRulesFiles")
    (encryption,) = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert encryption["ServerSideEncryptionByDefault"]["SSEAlgorithm"] == "aws:kms"
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    logs, _ = only(buckets, "AccessLogs")
    assert bucket["LoggingConfiguration"]["DestinationBucketName"] == {"Ref": logs}
    assert "NotificationConfiguration" not in bucket, "what is written there wakes nobody"
    assert full_template["Resources"][name]["DeletionPolicy"] == "RetainExceptOnCreate"
    _, policy = only(resources(full_template, "AWS::S3::BucketPolicy"), "JobRulesFiles")
    (statement,) = policy["PolicyDocument"]["Statement"]
    assert statement["Effect"] == "Deny"
    assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    assert full_template["Outputs"]["CustomRuleBucketName"]["Value"] == {"Ref": name}


def test_a_bucket_that_exists_is_read_and_left_as_it_is(frugal_template: Template) -> None:
    template = frugal_template
    assert not [name for name in resources(template, "AWS::S3::Bucket") if "JobRules" in name]
    assert template["Outputs"]["CustomRuleBucketName"]["Value"] == "my.rules"
    assert variables(template, "JobRulesCustom")[environment.CUSTOM_RULE_BUCKET] == "my.rules"
    granted = {
        text_of(resource)
        for statement in statements(template, "JobRulesCustom")
        for resource in as_list(statement["Resource"])
        if "s3:GetObject" in actions(statement)
    }
    assert "arn:${AWS::Partition}:s3:::my.rules/team/mine.py" in granted
    assert len(granted) == 2, "and the tensors"


def test_jobs_may_have_no_rules_of_their_own() -> None:
    settings: dict[str, Any] = {"stepwatch:rules": "NonFinite", "stepwatch:per_job_rules": False}
    template = template_of(settings)
    assert not [name for name in template["Resources"] if name.startswith("JobRules")]
    assert variables(template, "StopJob")[environment.DEPLOYED_RULES] == ""
    assert JOB_RULES not in json.dumps(template)


def test_the_page_says_how_a_job_uses_a_file() -> None:
    from rule_runtime.configuration.debug_rule import Rule

    text = (ROOT / "docs" / "how-to" / "deployed-rules.md").read_text()
    (example,) = re.findall(r"```python.*?rule = (Rule\.custom.*?)```", text, re.DOTALL)
    rule: Rule = eval(example.replace("<CustomRuleBucketName>", "rules"), {"Rule": Rule})
    settings = re.search(r"'stepwatch:custom_rules=(.*?)'", text)
    assert settings is not None
    (key,) = json.loads(settings[1])
    assert rule.to_json()["RuleParameters"]["source_s3_uri"] == f"s3://rules/{key}"


def test_one_function_evaluates_all_built_in_rules() -> None:
    rules = {"explosion": {"rule_to_invoke": "ExplodingTensor"}, "NonFinite": {}}
    template = template_of({"stepwatch:evaluators": "grouped", "stepwatch:rules": rules})
    sources = template["Resources"].values()
    assert sum(found["Type"] == "AWS::Lambda::EventSourceMapping" for found in sources) == 1
    reported = variables(template, "JobRulesBuiltIn")
    assert json.loads(reported[environment.GROUPED_RULES]) == rules
    assert reported[environment.DEPLOYED_RULES] == "explosion,NonFinite"
    assert "dynamodb:DeleteItem" in json.dumps(template)
