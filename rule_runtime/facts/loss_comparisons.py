"""Losses beside their own values some steps before, in one mode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from rule_runtime.engine.outcome import NotEvaluated, counted
from rule_runtime.facts.selection import finite_means

if TYPE_CHECKING:
    from rule_runtime.engine.rule import Memory
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["Comparison", "due_comparisons"]

_PRIORITY: Final = ("EVAL", "TRAIN", "GLOBAL")
"""Which mode is judged when none is given: the first of these that has losses."""

_WEIGHTS_DO_NOT_CHANGE: Final = frozenset({"EVAL", "PREDICT"})

_MAX_LOSSES: Final = 1024
"""Losses, of all workers together, that a memory of bounded size holds."""


class Comparison(NamedTuple):
    """A loss beside its value at the comparison before.

    Attributes:
        row: The loss, by its row among the losses of the step.
        before: Its value then.
        since: The step then, as its mode counts steps.
        now: Its value now.
        number: The step now.
    """

    row: int
    before: float
    since: int
    now: float
    number: int


def due_comparisons(
    step: StepView, rows: TensorRows, memory: Memory, *, num_steps: int, mode: str | None
) -> list[Comparison] | NotEvaluated:
    """Return the losses whose comparison is due, or why none is.

    Args:
        step: What was saved at the step.
        rows: Its losses [R], at least one.
        memory: `mode` judged, its `latest` step, and why that had to `wait`; `losses` at their
            latest comparison; `saved`: the number of steps with losses by mode.
        num_steps: Steps between two losses that are compared.
        mode: The mode to judge; the first of EVAL, TRAIN and GLOBAL that has losses, if None.
    """
    values = finite_means(rows)
    if np.isnan(values).all():
        return NotEvaluated(f"the loss {rows.names[0]} is not finite")
    own = mode or (step.mode.name if step.mode.name in _PRIORITY else "GLOBAL")
    is_judged = own in (step.mode.name, "GLOBAL")
    name = own if is_judged else step.mode.name
    saved: dict[str, int] = memory.setdefault("saved", {})
    saved[name] = saved.get(name, 0) + 1
    if not is_judged or not _takes_over(own, memory):
        wait = memory.get("wait") or "none was saved yet"
        return NotEvaluated(_reason(wait, memory, mode))
    number = step.step if own == "GLOBAL" else step.mode_step
    if number <= memory.get("latest", -1):  # the counter was set back: another run of the mode
        memory["losses"], saved[own] = {}, 1
    known = memory.setdefault("losses", {})
    due, wait = [], "more losses were saved than are followed"
    for at in np.flatnonzero(np.isfinite(values)).tolist():
        key, now = f"{rows.workers[at]}/{rows.names[at]}", float(values[at])
        if key in known or len(known) < _MAX_LOSSES:
            point = known.setdefault(key, [number, step.step, now, 0])
            why = _why_not_due(point, (number, step.step), num_steps, memory)
            if not why:
                due.append(Comparison(at, point[2], point[0], now, number))
                known[key] = [number, step.step, now, 1]
            wait = why or wait
    memory.update(latest=number, wait=wait)
    return due or NotEvaluated(_reason(wait, memory, mode))


def _why_not_due(point: list[Any], steps: tuple[int, int], num_steps: int, memory: Memory) -> str:
    """Return why a loss is not compared with its latest point; empty if it is."""
    (number, global_step), (since, global_since, _, num_compared) = steps, point
    mode: str = memory["mode"]
    if number >= since + num_steps:
        is_same_pass = global_step - global_since == number - since
        if mode in _WEIGHTS_DO_NOT_CHANGE and is_same_pass:
            return f"no training step lies between steps {since} and {number}"
        return ""
    if num_compared:
        return f"the next comparison is due at step {since + num_steps}"
    what = f"{memory['saved'][mode]} steps, {since} to {number}," if since < number else ""
    return (
        f"losses of {what or f'step {number}'} were saved so far, and two that are {num_steps} "
        "steps apart are needed"
    )


def _reason(wait: str, memory: Memory, mode: str | None) -> str:
    """Return a reason with the mode that is judged, and which other could be."""
    judged = mode or memory["mode"]
    message = f"the loss is judged in mode {judged}, where {wait}"
    others = [] if mode else [(n, name) for name, n in memory["saved"].items() if name != judged]
    for count, other in sorted(others)[-1:]:
        message += f"; mode={other} judges that mode, with losses of {counted(count, 'step')}"
    return message


def _takes_over(mode: str, memory: Memory) -> bool:
    """Begin anew if a mode comes that is judged instead of the present one; False if it is not."""
    judged = memory.get("mode")
    if judged == mode:
        return True
    if judged is not None and _rank(mode) > _rank(judged):
        return False
    saved = memory["saved"]
    memory.clear()
    memory.update(mode=mode, saved=saved)
    return True


def _rank(mode: str) -> int:
    return _PRIORITY.index(mode) if mode in _PRIORITY else len(_PRIORITY)
