"""The operations by which a script computes its loss, as the hook observed them."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from hook_layer.format.known_collections import NOT_FINITE
from rule_runtime.facts.saved_tensors import finite_means
from rule_runtime.trial.step_view import StepView

__all__ = ["Operation", "first_not_finite"]

_AT: Final = re.compile(r"^(?P<name>.*?)( at (?P<line>.*))?$", re.DOTALL)


class Operation(NamedTuple):
    """A function of torch that a script calls.

    Attributes:
        name: Name of the function.
        line: File and line of the script; "" if unknown.
    """

    name: str
    line: str


def first_not_finite(step: StepView, worker: str, of: str) -> Operation | None:
    """Return the operation of a loss with the first value that is not finite; None if unknown.

    Args:
        step: The step.
        worker: Worker that computed the loss.
        of: `value`, or `gradient` for the first one in the order of the backward pass.
    """
    rows = step.tensors(regex=(f"^{NOT_FINITE}{of}_",))
    numbers = zip(rows.workers, finite_means(rows), strict=True)
    number = next((int(at) for owner, at in numbers if owner == worker and at >= 0), None)
    if number is None:
        return None
    for again in (False, True):  # the file may have been read before the operation was called
        file = step.collections_file(worker, again=again)
        text = "" if file is None else file.script_lines.get("operations", {}).get(str(number), "")
        if text and (found := _AT.match(text)):
            return Operation(found["name"], found["line"] or "")
    return None
