"""The policy of docs/reference/permissions.md allows what the stack needs, and no more."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tools.statement_table import text_of

ROOT = Path(__file__).resolve().parents[2]
PREFIXES = {"EventSchemas": "schemas"}
"""Services whose actions are called otherwise than their types of resources."""


@pytest.fixture(scope="module")
def statements() -> dict[str, Any]:
    text = (ROOT / "docs" / "reference" / "permissions.md").read_text()
    (policy,) = re.findall(r'```json title="deployment_policy.json"\n(.*?)```', text, re.DOTALL)
    return {each["Sid"]: each for each in json.loads(policy)["Statement"]}


def test_each_service_of_the_template_is_allowed_and_no_other(
    default_template: dict[str, Any], full_template: dict[str, Any], statements: dict[str, Any]
) -> None:
    templates = (default_template, full_template)
    resources = [each for found in templates for each in found["Resources"].values()]
    services = {resource["Type"].split("::")[1] for resource in resources}
    wanted = {f"{PREFIXES.get(name, name).lower()}:*" for name in services - {"IAM"}}
    assert set(statements["ResourcesOfTheStack"]["Action"]) == wanted


def test_only_roles_of_the_stack_may_be_made(
    default_template: dict[str, Any], statements: dict[str, Any]
) -> None:
    resources = default_template["Resources"].values()
    roles = [each["Properties"] for each in resources if each["Type"] == "AWS::IAM::Role"]
    assert roles
    kinds = {each["Type"] for each in resources if each["Type"].startswith("AWS::IAM::")}
    assert kinds == {"AWS::IAM::Role", "AWS::IAM::Policy"}
    allowed = statements["RolesOfTheFunctions"]
    # CloudFormation names a role that has no name after its stack.
    assert allowed["Resource"] == "arn:aws:iam::*:role/stepwatch/*/Stepwatch-*"
    assert {text_of(role["Path"]) for role in roles} == {"/stepwatch/${AWS::Region}/dev/"}
    assert not [role for role in roles if "RoleName" in role]
    # With managed policies or users it would take more.
    assert not [role for role in roles if "ManagedPolicyArns" in role]
    assert {"iam:CreateRole", "iam:PutRolePolicy", "iam:PassRole"} <= set(allowed["Action"])
    assert all(action.startswith("iam:") and "*" not in action for action in allowed["Action"])
