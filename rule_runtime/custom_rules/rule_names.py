"""Lists the rules in a file without running it."""

from __future__ import annotations

import ast
from collections.abc import Collection
from typing import Final

__all__ = ["rule_names"]

_BASE: Final = "Rule"


def rule_names(source: bytes, known: Collection[str] = ()) -> list[str]:
    """Return the names of the classes in a file that look like rules, in file order.

    Args:
        source: The file.
        known: Names of rules that can be base classes.

    Returns:
        The names; empty if the file is not Python.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    imported = {
        alias.asname: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname is not None
    }
    rules = {_BASE, *known}
    found = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            bases = [_last_name(base) for base in node.bases]
            if rules & {imported.get(base, base) for base in bases}:
                rules.add(node.name)
                found.append(node.name)
    return found


def _last_name(base: ast.expr) -> str:
    """Return `Rule` of `Rule` and of `rule_runtime.Rule`."""
    if isinstance(base, ast.Attribute):
        return base.attr
    return base.id if isinstance(base, ast.Name) else ""
