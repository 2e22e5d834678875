"""Questions about a template that several test files ask."""

from __future__ import annotations

from typing import Any

Template = dict[str, Any]


def resources(template: Template, resource_type: str) -> dict[str, Any]:
    """Return the properties of all resources of a type by logical id."""
    return {
        name: resource["Properties"]
        for name, resource in template["Resources"].items()
        if resource["Type"] == resource_type
    }


def only(found: dict[str, Any], part: str) -> tuple[str, Any]:
    """Return the one resource whose logical id has a part."""
    ((name, properties),) = [(n, p) for n, p in found.items() if part in n]
    return name, properties


def function_of(template: Template, part: str) -> tuple[str, Any]:
    """Return the one function whose logical id has a part."""
    return only(resources(template, "AWS::Lambda::Function"), part)


def variables(template: Template, part: str) -> dict[str, Any]:
    """Return the environment of the one function whose logical id has a part."""
    found: dict[str, Any] = function_of(template, part)[1]["Environment"]["Variables"]
    return found


def statements(template: Template, part: str) -> list[dict[str, Any]]:
    """Return the statements of the one role whose logical id has a part."""
    name, _ = only(resources(template, "AWS::IAM::Role"), part)
    (policy,) = policies_of(template, name)
    found: list[dict[str, Any]] = policy["PolicyDocument"]["Statement"]
    return found


def policies_of(template: Template, role: str) -> list[dict[str, Any]]:
    """Return the policies in a role, and those that name it."""
    apart = resources(template, "AWS::IAM::Policy").values()
    named = [policy for policy in apart if {"Ref": role} in policy["Roles"]]
    return [*template["Resources"][role]["Properties"].get("Policies", []), *named]


def actions(statement: dict[str, Any]) -> list[str]:
    """Return the actions of a statement."""
    return as_list(statement["Action"])


def as_list(value: Any) -> list[Any]:
    """Return a value that a template may write as a list of one or as itself."""
    return value if isinstance(value, list) else [value]


def arn(name: str) -> dict[str, Any]:
    """Return the reference to a resource's ARN."""
    return {"Fn::GetAtt": [name, "Arn"]}
