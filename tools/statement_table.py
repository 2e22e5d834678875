"""Write the table of all permissions of a deployment in docs/reference/permissions.md.

`python -m tools.statement_table` reads them from a synthesised template and writes the table; with
`--check` its exit status only reports whether the table is current.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from infra.local.deployment import synthesise
from tools.generated_text import write_section

__all__ = ["COMMAND", "MARKS", "PAGE", "Statement", "main", "statements", "table", "text_of"]

PAGE: Final = Path(__file__).parents[1] / "docs" / "reference" / "permissions.md"
COMMAND: Final = "python -m tools.statement_table"
MARKS: Final = f"<!-- statements: written by `{COMMAND}` -->", "<!-- /statements -->"

STAGE: Final = "documented"
ALWAYS: Final = {
    "stepwatch:stage": STAGE,
    "stepwatch:rules": ["NonFinite"],
    "stepwatch:custom_rules": {"file.py": "ab" * 32},
    "stepwatch:canary": False,
}
WITH_SETTINGS: Final = ALWAYS | {
    "stepwatch:canary": True,
    "stepwatch:encryption": "kms",
    "stepwatch:event_bus": "own",
    "stepwatch:stop_platforms": ["batch", "ecs"],
    "stepwatch:tracing": True,
}
"""Settings that add statements."""
GROUPED: Final = {**WITH_SETTINGS, "stepwatch:evaluators": "grouped"}
"""All of them; the one evaluator of built-in rules replaces those of single rules."""

OWNERS: Final = {
    "RuleNonFinite": "an evaluator",
    "JobRulesBuiltIn": "an evaluator",
    "JobRulesCustom": "the evaluator of custom rules",
    "Sweep": "`sweep`",
    "FinishJob": "`finish_job`",
    "StopJob": "`stop_job`",
    "Notify": "`notify`",
    "FunctionsCanary": "CodeDeploy",
    "FunctionsTensorBusRole": "EventBridge",
    "FunctionsTensorBus": "the bus of tensors",
    "Emergency": "people in an emergency",
    "AlertsTopic": "the topic",
    "EncryptionKey": "the key",
    "EvaluationStateStates": "the state table",
    "JobRulesFiles": "the bucket of rule files",
    "TensorStorageAccessLogs": "the bucket of access logs",
    "TensorStorageTensors": "a tensor bucket",
}
"""Constructs with statements in words, by the beginning of their resources' logical ids."""
PARTS: Final = {
    "Failures": "failure queue",
    "Function": "function",
    "Live": "function",
    "Logs": "log group",
    "Queue": "queue",
    "Role": "role",
}
"""Their resources, by the end of the logical ids; others in statements are event rules."""


class Statement(NamedTuple):
    """One statement in words; resources are relative to what has the policy.

    Attributes:
        who: The principal; `itself` if the policy belongs to a role.
        effect: `Allow` or `Deny`.
        actions: Names of actions, or patterns.
        on: The resources.
        condition: Operators, keys and values, or `none`.
    """

    who: str
    effect: str
    actions: str
    on: str
    condition: str


@cache
def table() -> str:
    """Return the statements in the order of the templates, each with the policies that have it."""
    always = statements(_template(ALWAYS))
    rows = ["| policy of | who | effect | actions | resources | condition | needs a setting |"]
    rows.append("|---" * 7 + "|")
    with_settings = statements(_template(WITH_SETTINGS))
    for statement, holders in statements(_template(GROUPED)).items():
        others = with_settings.setdefault(statement, [])
        others += [holder for holder in holders if holder not in others]
    for statement, holders in with_settings.items():
        without = [holder for holder in holders if holder in always.get(statement, ())]
        only_with = [holder for holder in holders if holder not in without]
        for named, needs in ((without, "no"), (only_with, "yes")):
            if named:
                rows.append(f"| {', '.join(named)} | {' | '.join(statement)} | {needs} |")
    return "\n".join(rows)


def statements(template: Mapping[str, Any]) -> dict[Statement, list[str]]:
    """Return the statements of a template, each with the holders of its policies."""
    found: dict[Statement, list[str]] = {}
    for logical_id, resource in template["Resources"].items():
        for statement in _statements_of(resource):
            owner, part = _named(_holder(logical_id, resource))
            kind = "role" if "Principal" not in statement else part
            holder = f"{kind} of {owner}" if kind else owner
            holders = found.setdefault(_in_words(statement, owner, part), [])
            if holder not in holders:
                holders.append(holder)
    return found


def text_of(value: Any) -> str:
    """Return a value with its references by name: `${Bucket.Arn}/*`."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return ",".join(text_of(part) for part in value)
    ((kind, inside),) = value.items()
    if kind == "Ref":
        return f"${{{inside}}}"
    if kind == "Fn::GetAtt":
        return f"${{{'.'.join(inside)}}}"
    assert kind == "Fn::Join"
    return str(inside[0]).join(text_of(part) for part in inside[1])


def _template(settings: Mapping[str, Any]) -> dict[str, Any]:
    file = synthesise(settings) / "Stepwatch.template.json"
    template: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return template


def _statements_of(resource: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Return the statements of all policies of a resource; permissions to invoke are some, too."""
    properties = resource.get("Properties", {})
    if resource["Type"] == "AWS::Lambda::Permission":
        yield {
            "Effect": "Allow",
            "Principal": {"Service": properties["Principal"]},
            "Action": properties["Action"],
            "Condition": {"ArnLike": {"aws:SourceArn": properties["SourceArn"]}},
        }
    documents = [*properties.values(), *properties.get("Policies", [])]
    for document in documents:
        if isinstance(document, dict):
            yield from document.get("PolicyDocument", document).get("Statement", [])


def _holder(logical_id: str, resource: Mapping[str, Any]) -> str:
    """Return the logical id of the resource whose policy it is."""
    if resource["Type"] == "AWS::Lambda::Permission":
        return text_of(resource["Properties"]["FunctionName"]).strip("${}").removesuffix(".Arn")
    return re.sub(r"(Default)?Policy(?=[0-9A-F]{8}$)", "", logical_id)


def _named(logical_id: str) -> tuple[str, str]:
    """Return the owner of a resource, and which of its resources it is, in words."""
    name = re.sub("[0-9A-F]{8}$", "", logical_id)
    for beginning, owner in OWNERS.items():
        if name == beginning and not name.endswith("Role"):
            return owner, ""
        if name.startswith(beginning):
            parts = (part for end, part in PARTS.items() if name.endswith(end))
            return owner, next(parts, "event rule")
    raise ValueError(f"{logical_id} is in a statement: add its words to OWNERS in {__file__}")


def _in_words(statement: Mapping[str, Any], owner: str, part: str) -> Statement:
    principal, resources = statement.get("Principal"), _listed(statement.get("Resource", "*"))
    here = (owner, part if principal is not None else "role")
    on = {_shown(resource, here) for resource in resources}
    conditions = [
        f"{operator} `{key}` {', '.join(_shown(value, here) for value in _listed(values))}"
        for operator, keys in statement.get("Condition", {}).items()
        for key, values in keys.items()
    ]
    return Statement(
        "itself" if principal is None else _principal(principal),
        statement["Effect"],
        ", ".join(f"`{action}`" for action in _listed(statement["Action"])),
        "itself" if principal is not None and resources == ["*"] else ", ".join(sorted(on)),
        "; ".join(conditions) or "none",
    )


def _principal(principal: Any) -> str:
    if principal in ("*", {"AWS": "*"}):
        return "everyone"
    return ", ".join(_shown(who, ("", "")) for who in _listed(*principal.values()))


def _shown(value: Any, here: tuple[str, str]) -> str:
    """Return an ARN or another text in words, as seen from the holder of the policy."""
    text = text_of(value)
    if reference := re.fullmatch(r"\$\{([^:}]+)\}", text):
        return _relative(reference[1], here)
    text = re.sub(r"\$\{AWS::(\w+)\}", r"<\1>", text).replace(STAGE, "<stage>")
    text = re.sub(
        r"\$\{([^}]+)\}", lambda part: f"<{_relative(part[1], here)}>".replace("`", ""), text
    )
    short = re.sub(r"arn:<Partition>:([a-z0-9]+):[^:]*:[^:]*:", r"\1 ", text)
    return f"`{short}`"


def _relative(reference: str, here: tuple[str, str]) -> str:
    """Return the name of a resource of the template, as seen from the holder of the policy."""
    owner, part = _named(reference.removesuffix(".Arn"))
    if (owner, part) == here:
        return "itself"
    if owner == here[0]:
        return f"its {part}"
    return f"{part} of {owner}" if part else owner


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit status."""
    name = "docs/reference/permissions.md"
    return write_section(arguments, PAGE, MARKS, table, name=name, command=COMMAND)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
