"""Write the options of every command into docs/reference/commands.md.

`python tools/command_documentation.py` writes them; `--check` only says whether they are current.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer
import typer.main

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from rule_runtime.cli.app import app  # noqa: E402
from tools.generated_text import write_section  # noqa: E402

PAGE = ROOT / "docs" / "reference" / "commands.md"
COMMAND = "python tools/command_documentation.py"
MARKS = (f"<!-- commands: written by `{COMMAND}` -->", "<!-- /commands -->")


def sections() -> str:
    """Return a section for each command."""
    group: Any = typer.main.get_command(app)
    return "\n\n".join(_section(name, command) for name, command in _commands("stepwatch", group))


def _commands(prefix: str, group: Any) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        whole = f"{prefix} {name}"
        yield whole, command
        if hasattr(command, "commands"):
            yield from _commands(whole, command)


def _section(name: str, command: Any) -> str:
    parameters = command.get_params(typer.Context(command))
    rows = [_row(each) for each in parameters if not each.hidden and each.name != "help"]
    table = ["| argument or option | default | meaning |", "|---|---|---|", *rows] if rows else []
    return "\n\n".join(filter(None, [f"### {name}", command.help or "", "\n".join(table)]))


def _row(parameter: Any) -> str:
    values = parameter.metavar.split("|")
    value = values[0] if len(values) == 1 else ""
    long, *short = parameter.opts
    shown = (
        [value or long.upper()] if parameter.param_type_name == "argument" else [f"{long} {value}"]
    )
    names = ", ".join(f"`{name.strip()}`" for name in (*shown, *short))
    choices = f" One of {', '.join(values)}." if len(values) > 1 else ""
    variable = f" Variable: `{parameter.envvar}`." if parameter.envvar else ""
    meaning = (parameter.help or "").replace("|", "\\|") + choices + variable
    return f"| {names} | {_default(parameter)} | {meaning} |"


def _default(parameter: Any) -> str:
    value = parameter.default
    if parameter.required:
        return "required"
    if value is None or value is False or callable(value) or not parameter.show_default:
        return ""
    return f"`{value.value if isinstance(value, enum.Enum) else value}`"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the sections, or check them; return the exit status."""
    return write_section(arguments, PAGE, MARKS, sections, name=PAGE.name, command=COMMAND)


if __name__ == "__main__":
    sys.exit(main())
