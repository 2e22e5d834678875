"""Write the table of a hook's events in docs/architecture.md from the code.

`python -m tools.event_table` writes it; with `--check` its exit status only reports whether the
table is current. It needs PyTorch.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hook_layer.core import events
from tools.generated_text import write_section

__all__ = ["COMMAND", "PAGE", "main", "table"]

PAGE: Final = Path(__file__).parents[1] / "docs" / "architecture.md"
COMMAND: Final = "python -m tools.event_table"
MARKS: Final = f"<!-- events: written by `{COMMAND}` -->", "<!-- /events -->"


def table() -> str:
    """Return the table of events in the order of a step, with subscribers in order."""
    from hook_layer.pytorch import Hook  # noqa: PLC0415 - PyTorch may be missing

    with Hook("memory://table") as hook:
        subscribers = dict(hook.events.table())
        rows = [
            f"| `{kind.__name__}` | {_first_sentence(kind)} | {_named(subscribers.get(kind, []))} |"
            for kind in _kinds()
        ]
    return "\n".join(["| event | when | subscribers, in order |", "|---|---|---|", *rows])


def _kinds() -> list[type[events.Event]]:
    """Return the classes of events, as they follow each other in their file."""
    classes = [kind for kind in vars(events).values() if inspect.isclass(kind)]
    return [kind for kind in classes if issubclass(kind, events.Event) and kind != events.Event]


def _first_sentence(kind: type) -> str:
    return " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split())


def _named(methods: Sequence[str]) -> str:
    return ", ".join(f"`{method}`" for method in methods) or "none"


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit status."""
    return write_section(
        arguments, PAGE, MARKS, table, name="docs/architecture.md", command=COMMAND
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
