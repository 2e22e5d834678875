"""Write the table of settings in docs/reference/stack.md from the fields of `StepwatchConfig`.

`python tools/settings_documentation.py` writes it; with `--check` its exit status
only reports whether the table is current.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from infra.app import project_context  # noqa: E402
from infra.config import PREFIX, StepwatchConfig  # noqa: E402
from tools.generated_text import bring_up_to_date, replaced  # noqa: E402

PAGE = ROOT / "docs" / "reference" / "stack.md"
COMMAND = "python tools/settings_documentation.py"
BEGIN, END = f"<!-- settings: written by `{COMMAND}` -->", "<!-- /settings -->"
NOT_SET = {
    "tensor_bucket_name": "chosen by CloudFormation",
    "custom_rule_bucket": "made by the stack",
    "kms_key_arn": "made by the stack",
    "stop_rules": "all, or the pack's",
    "canary": "`true`; `false` in the stage `dev`",
    "data_retention": "`retain`; `destroy` in the stage `dev`",
}


def table() -> str:
    """Return the table of all settings."""
    described = _descriptions()
    rows = [
        f"| `{PREFIX}{field.name}` | {_default(field)} | {described[field.name]} |"
        for field in fields(StepwatchConfig)
    ]
    return "\n".join(["| key | default | |", "|---|---|---|", *rows])


def document(text: str) -> str:
    """Return a text with the table between the marks.

    Args:
        text: The page.

    Raises:
        ValueError: The marks are missing.
    """
    return replaced(text, (BEGIN, END), table(), name=PAGE.name)


def _descriptions() -> dict[str, str]:
    """Return what the docstring says of each setting.

    Raises:
        ValueError: A setting is not described.
    """
    text = inspect.getdoc(StepwatchConfig) or ""
    _, _, attributes = text.partition("Attributes:\n")
    found = {}
    for part in re.split(r"\n(?=\w)", inspect.cleandoc(attributes)):
        name, _, meaning = part.partition(": ")
        if name.strip():
            found[name.strip()] = " ".join(meaning.split()).replace("|", "\\|")
    missing = [field.name for field in fields(StepwatchConfig) if not found.get(field.name)]
    if missing:
        raise ValueError(f"the docstring of StepwatchConfig lacks {', '.join(missing)}")
    return found


def _default(field: Field[Any]) -> str:
    """Return a default, and what cdk.json says instead."""
    if field.name in NOT_SET:
        shown = NOT_SET[field.name]
    elif field.default is MISSING:
        shown = "required"
    else:
        shown = _shown(field.default)
    own = project_context().get(PREFIX + field.name)
    if own is None or _shown(own) == shown:
        return shown
    return f"{shown}; cdk.json: {_shown(own)}"


def _shown(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"`{','.join(map(str, value))}`" if value else "none"
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the table, or check it; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    is_check = parser.parse_args(arguments).check
    wanted = document(PAGE.read_text(encoding="utf-8"))
    name = f"docs/reference/{PAGE.name}"
    return bring_up_to_date(PAGE, wanted, name=name, command=COMMAND, is_check=is_check)


if __name__ == "__main__":
    sys.exit(main())
