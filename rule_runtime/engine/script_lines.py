"""The lines of the training script that a finding concerns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from hook_layer.format.known_collections import OF_LOGGED

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["lines_of"]

_OF_CALL: Final = re.compile(r"_(input|output)_\d+$")
_BEFORE_NAME: Final = re.compile(r"^|[/_]")
_AFTER_NAME: Final = re.compile(r"[./_:]|$")
_LAYERS, _LOSSES, _OPTIMIZERS = "layers", "losses", "optimizers"


def lines_of(step: StepView, tensor: str, worker: str) -> dict[str, str] | None:
    """Return files and lines that a finding in a tensor concerns; None if no line is known.

    Returns:
        `tensor`: that of its layer or loss, `loss` and `optimizer`: those of the only loss and
        optimizer of the script, or of the tensor's loss; each only if it is known.
    """
    file = step.collections_file(worker)
    if file is None or not file.script_lines:
        return None
    layers, losses, optimizers = (
        file.script_lines.get(kind, {}) for kind in (_LAYERS, _LOSSES, _OPTIMIZERS)
    )
    of_loss = _found(tensor, losses)
    lines = {
        "tensor": of_loss or _found(tensor, layers),
        "loss": of_loss or _only(losses),
        "optimizer": _only(optimizers),
    }
    return {kind: line for kind, line in lines.items() if line} or None


def _found(tensor: str, lines: Mapping[str, str]) -> str:
    """Return the line of the longest name in a tensor's name, as `fc.0` in `Net_fc.0.bias`."""
    return next((lines[name] for name in _names_in(tensor) if name in lines), "")


def _names_in(tensor: str) -> Iterator[str]:
    """Yield what may be the name of a layer or loss in a tensor's name, longest first."""
    if tensor.startswith(OF_LOGGED):
        return
    tensor = _OF_CALL.sub("", tensor)
    begins = [match.end() for match in _BEFORE_NAME.finditer(tensor)]
    ends = [match.start() for match in _AFTER_NAME.finditer(tensor)]
    spans = [(begin, end) for begin in begins for end in ends if begin < end]
    for begin, end in sorted(spans, key=lambda span: (span[0] - span[1], span[0])):
        yield tensor[begin:end]


def _only(lines: Mapping[str, str]) -> str:
    different = {*lines.values()}
    return different.pop() if len(different) == 1 else ""
