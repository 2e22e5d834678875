"""Tables that are generated from code."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = ["TABLES", "event_fields", "original_names"]

_NAMES = "rule_runtime/smdebug_alias/names.py"
_TYPES = {"integer": "whole number", "string": "text", "array": "list", "object": "object"}


def event_fields(root: Path, schema: str) -> str:
    """Return the fields of an event's detail as a table.

    Args:
        root: The repository.
        schema: Name of the file in `lambdas/contracts/schemas`, without its suffix.
    """
    path = root / "lambdas" / "contracts" / "schemas" / f"{schema}.json"
    definitions = json.loads(path.read_text(encoding="utf-8"))["definitions"]
    rows = ["| field of `detail` | | what it is |", "|---|---|---|"]
    rows += [
        f"| `{name}` | {kind} | {meaning} |"
        for name, kind, meaning in _fields(definitions, definitions["Detail"], "")
    ]
    return "\n".join(rows)


def _fields(
    definitions: Mapping[str, Any], members: Mapping[str, Any], prefix: str
) -> Iterator[tuple[str, str, str]]:
    for name, member in members["properties"].items():
        whole = _resolved(definitions, member)
        item = _resolved(definitions, whole.get("items", {}))
        kind = "number, or its name" if "anyOf" in whole else _TYPES[whole["type"]]
        if name not in members["required"]:
            kind += ", if known"
        yield prefix + name, kind, _meaning(whole)
        if "properties" in whole:
            yield from _fields(definitions, whole, f"{prefix}{name}.")
        elif "properties" in item:
            yield from _fields(definitions, item, f"{prefix}{name}[].")


def _meaning(member: Mapping[str, Any]) -> str:
    allowed = [f"`{value}`" for value in member.get("enum", [])]
    return " ".join(filter(None, [member.get("description", ""), " ".join(allowed)]))


def _resolved(definitions: Mapping[str, Any], member: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = member.get("$ref", "").rpartition("/")[2]
    return {**definitions[reference], **member} if reference else member


def original_names(root: Path, package: str) -> str:
    """Return the modules of a package of SageMaker Debugger, with the names that we serve.

    The file is loaded by its path, because the site is built without our dependencies. What it
    imports must need only the standard library.

    Args:
        root: The repository.
        package: `smdebug` or `smdebug_rulesconfig`.
    """
    spec = importlib.util.spec_from_file_location("original_names", root / _NAMES)
    if spec is None or spec.loader is None:
        raise ImportError(f"{_NAMES} cannot be read")
    module_of_names = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(root))
    try:
        spec.loader.exec_module(module_of_names)
    finally:
        sys.path.remove(str(root))
    rows = ["| module | names |", "|---|---|"]
    for module, names in module_of_names.MODULES.items():
        if module.partition(".")[0] == package and names:
            shown = " ".join(f"`{name}`" for name in sorted(names, key=_without_case))
            rows.append(f"| `{module}` | {shown} |")
    return "\n".join(rows)


def _without_case(name: str) -> tuple[str, str]:
    return re.sub(r"\W|_", "", name).lower(), name


TABLES: Mapping[str, Callable[[Path, str], str]] = {
    "event-fields": event_fields,
    "original-names": original_names,
}
"""Tables by the name in their directive: `<!-- table: event-fields status_event -->`."""
