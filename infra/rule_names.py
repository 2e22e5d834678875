"""Names of the built-in rules, read from their source files without importing them.

The application synthesises without the rules' dependencies, and must still tell a user that a
rule does not exist. A rule lives in `rule_runtime/rules/<snake_case_name>.py`.
"""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["built_in_rule_names"]

RULES_FOLDER = Path(__file__).resolve().parent.parent / "rule_runtime" / "rules"
CLASS_STATEMENT = re.compile(r"^class\s+(\w+)\s*\(", re.MULTILINE)


def built_in_rule_names(folder: Path = RULES_FOLDER) -> tuple[str, ...]:
    """Return the names of the rules under `folder`, sorted.

    Args:
        folder: Folder that holds one file a rule.

    Returns:
        For each file the class whose name is the file's stem without its underscores.
    """
    names = []
    for path in sorted(folder.glob("[!_]*.py")):
        stem = path.stem.replace("_", "").lower()
        classes = CLASS_STATEMENT.findall(path.read_text(encoding="utf-8"))
        names += [name for name in classes if name.lower() == stem]
    return tuple(sorted(names))
