"""Write the table of causes in docs/explanation/diagnosis.md from the code.

`python -m tools.cause_table` writes it; with `--check` its exit status only reports whether the
table is current.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rule_runtime.diagnosis.causes import CAUSES
from tools.generated_text import write_section

__all__ = ["COMMAND", "MARKS", "PAGE", "main", "table"]

PAGE: Final = Path(__file__).parents[1] / "docs" / "explanation" / "diagnosis.md"
COMMAND: Final = "python -m tools.cause_table"
MARKS: Final = f"<!-- causes: written by `{COMMAND}` -->", "<!-- /causes -->"


def table() -> str:
    """Return the causes with the findings that show them, and further ones that they explain."""
    rows = [
        f"| {cause.title} | {_listed(cause.shown_by)} | {_listed(cause.explains)} |"
        for cause in CAUSES
    ]
    return "\n".join(["| cause | shown by | also explains |", "|---|---|---|", *rows])


def _listed(kinds: Sequence[str]) -> str:
    return ", ".join(kinds) or "-"


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit status."""
    return write_section(
        arguments, PAGE, MARKS, table, name="docs/explanation/diagnosis.md", command=COMMAND
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
