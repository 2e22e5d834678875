"""HTML views of trials, tensors and collections for notebooks.

The views use only data in memory, so showing a trial makes no request. Names from files are
escaped. No colours are set, so the views work in light and dark themes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Final

from hook_layer.format.modes import ModeKeys
from hook_layer.format.reductions import split_reduction_name

if TYPE_CHECKING:
    from rule_runtime.trial.step_index import StepFile
    from rule_runtime.trial.trial_collections import TrialCollection

__all__ = [
    "MAX_TENSORS",
    "CollectionsByName",
    "collections_html",
    "few",
    "steps_text",
    "tensor_description",
    "tensor_facts",
    "tensor_html",
    "trial_html",
]

MAX_TENSORS: Final = 20
"""Most tensors or collections shown; for the rest, only their number is shown."""

_FACTS: Final = ("shape", "type", "steps")
_MAX_CELL: Final = 80
_CELL: Final = "text-align:left;padding:.15em .8em .15em 0;vertical-align:top"
_LINE: Final = "border-bottom:1px solid rgba(128,128,128,.4)"


def trial_html(
    title: str, facts: Mapping[str, str], tensors: Sequence[tuple[str, Mapping[str, str]]]
) -> str:
    """Return a trial as HTML: its facts and its first tensors."""
    rows = [(name, *(of[key] for key in _FACTS)) for name, of in tensors[:MAX_TENSORS]]
    table = _table(("tensor", *_FACTS), rows, num_rows=int(facts["tensors"])) if rows else ""
    return _title(f"Trial {title}") + _table((), list(facts.items())) + table


def tensor_html(title: str, facts: Mapping[str, str], newest: StepFile | None) -> str:
    """Return a tensor as HTML: where it was saved, and its statistics at the last step."""
    rows = [] if newest is None else _statistics(newest, title)
    at = [] if newest is None or not rows else [("at step", f"{newest.step}, {newest.worker}")]
    return _title(f"Tensor {title}") + _table((), [*facts.items(), *at, *rows])


def tensor_description(
    name: str, steps: Mapping[ModeKeys, Iterable[int]], newest: StepFile | None
) -> dict[str, Any]:
    """Return the steps of a tensor, and its last shape and type, as JSON.

    Returns:
        `shape`, a list or None, `type`, a text or None, and `steps`: of each mode `count`, `first`
        last` per mode.
    """
    shape, dtype = None, None
    index = None if newest is None else newest.index
    block = None if index is None else index.statistics
    if block is not None and name in block.tensors:
        at = block.tensors.index(name)
        shape, dtype = list(block.shapes[at]), block.dtypes[at]
    else:
        shapes = [row.shape for row in (() if index is None else index.shapes) if row.name == name]
        shape = list(shapes[0]) if shapes else None
    of_modes = {}
    for mode, of_mode in sorted(steps.items(), key=lambda item: int(item[0].value)):
        ordered = sorted(of_mode)
        if ordered:
            of_modes[mode.name] = {
                "count": len(ordered), "first": ordered[0], "last": ordered[-1]
            }  # fmt: skip
    return {"shape": shape, "type": dtype, "steps": of_modes}


def tensor_facts(
    name: str, steps: Mapping[ModeKeys, Iterable[int]], newest: StepFile | None
) -> dict[str, str]:
    """Return `tensor_description` as texts."""
    described = tensor_description(name, steps, newest)
    shape = "" if described["shape"] is None else str(described["shape"])
    return {"shape": shape, "type": described["type"] or "", "steps": steps_text(steps)}


def collections_html(collections: Mapping[str, TrialCollection]) -> str:
    """Return collections as HTML."""
    rows = [
        (
            name,
            few(entry.include_regex),
            str(len(entry.tensor_names)),
            few(sorted(entry.tensor_names)),
        )
        for name, entry in sorted(collections.items())
    ]
    head = ("collection", "regular expressions", "number", "tensors")
    return _table(head, rows[:MAX_TENSORS], num_rows=len(rows))


class CollectionsByName(dict[str, "TrialCollection"]):
    """Collections by name; notebooks show them as a table."""

    def _repr_html_(self) -> str:
        return collections_html(self)


def steps_text(steps: Mapping[ModeKeys, Iterable[int]]) -> str:
    """Return the number, first and last step of each mode; omits the name GLOBAL."""
    texts = []
    for mode, of_mode in sorted(steps.items(), key=lambda item: int(item[0].value)):
        ordered = sorted(of_mode)
        if ordered:
            name = "" if mode is ModeKeys.GLOBAL else f"{mode.name} "
            texts.append(f"{name}{len(ordered)} ({ordered[0]} to {ordered[-1]})")
    return ", ".join(texts) or "none"


def _statistics(file: StepFile, name: str) -> list[tuple[str, str]]:
    block = None if file.index is None else file.index.statistics
    if block is None or name not in block.tensors or split_reduction_name(name) is not None:
        return []
    row = block.values[block.tensors.index(name)]
    return [(column, f"{number:.6g}") for column, number in zip(block.columns, row, strict=True)]


def few(names: Sequence[str], limit: int = 5) -> str:
    """Return the first names, and the number of further ones."""
    rest = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + rest


def _title(text: str) -> str:
    return f"<div><strong>{_escaped(text)}</strong></div>"


def _table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, num_rows: int | None = None
) -> str:
    parts = ['<table style="border-collapse:collapse;font-size:smaller;margin:.3em 0">']
    if head:
        cells = "".join(f'<th style="{_CELL};{_LINE}">{_escaped(cell)}</th>' for cell in head)
        parts.append(f"<thead><tr>{cells}</tr></thead>")
    parts.append("<tbody>")
    for row in rows:
        cells = "".join(f'<td style="{_CELL}">{_escaped(cell)}</td>' for cell in row)
        parts.append(f'<tr style="background:none">{cells}</tr>')
    if num_rows is not None and num_rows > len(rows):
        cell = f"{num_rows - len(rows)} more"
        parts.append(f'<tr><td colspan="{len(head)}" style="{_CELL}">{cell}</td></tr>')
    return "".join([*parts, "</tbody></table>"])


def _escaped(text: str) -> str:
    shown = "".join(c if c.isprintable() else "?" for c in text)
    return escape(shown if len(shown) <= _MAX_CELL else f"{shown[: _MAX_CELL - 3]}...")
