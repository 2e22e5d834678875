"""Answers what a browser asks of a run, as JSON without NaN.

Shape legend: C = columns of a picture.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hook_layer.format.errors import FormatError
from hook_layer.storage.base import open_store, path_or_uri
from rule_runtime.engine.outcome import RuleStatus
from rule_runtime.live_page.catalogue import Place
from rule_runtime.live_page.opened_run import OpenedRun
from rule_runtime.live_page.run_columns import STATISTICS
from rule_runtime.live_page.run_files import (
    console_output,
    merged_environment,
    plain,
    system_curves,
)
from rule_runtime.live_page.run_summary import session_and_run, state_of
from rule_runtime.reporting.heat_map import HeatMap
from rule_runtime.reporting.job_verdicts import JobVerdict, diagnosis_of_verdicts, has_verdict
from rule_runtime.reporting.layer_maps import gradient_norms, update_ratios, weight_norms
from rule_runtime.reporting.pixel_columns import Points, pixel_columns
from rule_runtime.reporting.run_history import StepNorms
from rule_runtime.trial.step_index import StepFile, iter_step_files
from rule_runtime.trial.step_view import StepReader
from rule_runtime.trial.stop_request import read_stop_request

__all__ = ["Range", "curves", "details", "heat_map_of", "histogram", "search", "system"]

_MAX_CURVES: Final = 64
"""Curves of a chart that are answered; more cannot be distinguished."""
_MAX_COLUMNS: Final = 4096
_MAX_FOUND: Final = 50
"""Tensors that a search answers."""
_NUM_BINS: Final = 48
_MAX_SEARCHED: Final = 100
"""Index files before a step that are searched for a value."""
_MAX_VALUE_BYTES: Final = 64 << 20
"""Largest tensor whose histogram is computed."""
_MAPS: Final = ("gradients", "updates", "weights")
_KINDS: Final = ("losses", "metrics", "scalars")


class Range:
    """The steps that a chart shows, and its width in pixels."""

    def __init__(self, first: float, last: float, width: int) -> None:
        self.first, self.last = first, last
        self.width = max(1, min(width, _MAX_COLUMNS))

    def of(self, points: Points) -> dict[str, Any]:
        """Return a curve [C] with each column's extremes; `bad` lists steps of bad numbers."""
        shown = pixel_columns(points, self.width, self.first, self.last)
        return {
            "steps": shown.steps.tolist(),
            "low": _numbers(shown.low),
            "high": _numbers(shown.high),
            "bad": shown.steps[shown.bad].tolist(),
        }


def details(run: OpenedRun, place: Place) -> dict[str, Any]:
    """Return everything of a run but its curves."""
    session, of_session, notes = None, None, _notes(run)
    try:
        session, of_session = session_and_run(place)
    except FormatError as error:
        notes.append(str(error))
    stores = [open_store(place.session)] if place.session else []
    with run.lock:
        named = _named_curves(run)
        for kind, names in named.items():
            if len(names) > _MAX_CURVES:
                notes.append(f"{len(names) - _MAX_CURVES} of {len(names)} {kind} are not shown")
        stop = read_stop_request(run.store, run.run)
        return {
            "id": place.name,
            "path": path_or_uri(run.store),
            "version": run.version,
            "state": state_of(session, of_session, has_ended=run.has_ended),
            "stopped": None if stop is None else stop.reason,
            "details": of_session.details if of_session else None,
            "problem": run.problem,
            "notes": notes,
            "steps": len(run.steps),
            "first_step": min(run.steps, default=None),
            "last_step": max(run.steps, default=None),
            "num_unread": run.num_unread,
            "workers": run.workers[:_MAX_CURVES],
            "modes": run.columns.modes,
            "statistics": STATISTICS,
            "curves": {kind: names[:_MAX_CURVES] for kind, names in named.items()},
            "num_tensors": len(_names(run)),
            "diagnosis": _diagnosis(run.verdicts),
            "is_judged": has_verdict(run.verdicts),
            "verdicts": [_verdict(each) for each in run.verdicts],
            "environment": merged_environment([*stores, run.store]),
            "console": console_output(stores[0] if stores else run.store),
        }


def curves(
    run: OpenedRun,
    tensors: Sequence[str],
    statistic: str,
    workers: Sequence[str],
    shown: Range,
) -> list[dict[str, Any]]:
    """Return the curves of some tensors, apart by worker and mode.

    Raises:
        ValueError: There is no such statistic.
    """
    found: list[dict[str, Any]] = []
    with run.lock:
        for tensor in tensors[:_MAX_CURVES]:
            for worker in workers or run.workers[:1]:
                for mode in run.columns.modes:
                    points = run.columns.points(tensor, statistic, worker, mode)
                    if len(points.steps) and len(found) < _MAX_CURVES:
                        name = {"tensor": tensor, "worker": worker, "mode": mode}
                        found.append({**name, **shown.of(points)})
    return found


def system(run: OpenedRun, place: Place, shown: Range) -> list[dict[str, Any]]:
    """Return the use of the machine over the steps of a run."""
    store = open_store(place.session) if place.session else run.store
    with run.lock:
        found = system_curves(store, run.columns)
    return [
        {"tensor": name, "worker": "", "mode": "", **shown.of(points)}
        for name, points in found.items()
    ]


def search(run: OpenedRun, text: str) -> dict[str, Any]:
    """Return the tensors whose names contain all words of a text, in order of capture."""
    words = text.lower().split()
    with run.lock:
        fitting = [name for name in _names(run) if all(word in name.lower() for word in words)]
    return {"num": len(fitting), "tensors": fitting[:_MAX_FOUND]}


def heat_map_of(run: OpenedRun, kind: str, worker: str, shown: Range) -> dict[str, Any] | None:
    """Return a map of layers over steps; None if nothing was saved for it.

    Raises:
        ValueError: There is no such map.
    """
    if kind not in _MAPS:
        raise ValueError(f"kind={kind!r} is none of {', '.join(_MAPS)}")
    with run.lock:
        norms = _norms(run, worker or next(iter(run.workers), ""), shown)
        captured = _names(run)
    found: HeatMap | None
    if kind == "gradients":
        found = gradient_norms(norms, captured)
    else:
        found = update_ratios(norms) if kind == "updates" else weight_norms(norms)
    return None if found is None else {**found.to_json(), "members": found.members}


def histogram(run: OpenedRun, tensor: str, worker: str, step: int) -> dict[str, Any] | None:
    """Return the histogram of a tensor's saved value at a step, or at the next earlier one.

    None if no value of numbers was saved, or if it is too large.
    """
    with run.lock:
        near = sorted(each for each in run.with_values if worker in {"", each[1]})
    earlier = [key for at, _, key in near if at <= step][-_MAX_SEARCHED:]
    keys = earlier[::-1] or [key for _, _, key in near[:_MAX_SEARCHED]]
    files = (file for key in keys for file in iter_step_files(run.store, [key]))
    file = next((file for file in files if _has_value(file, tensor)), None)
    if file is None:
        return None
    value = StepReader(run.store).view(file.step, [file], num_workers=1).value(tensor)
    if not value.size or value.dtype.kind not in "fiub":
        return None
    numbers = value.astype(np.float64).ravel()
    finite = numbers[np.isfinite(numbers)]
    counts, edges = np.histogram(finite, bins=_NUM_BINS)
    return {
        "tensor": tensor,
        "step": file.step,
        "counts": counts.tolist() if finite.size else [],
        "edges": _numbers(edges),
        "num_bad": int(numbers.size - finite.size),
    }


def _has_value(file: StepFile, tensor: str) -> bool:
    rows = () if file.index is None else file.index.locations
    return any(row.name == tensor and row.length <= _MAX_VALUE_BYTES for row in rows)


def _norms(run: OpenedRun, worker: str, shown: Range) -> list[StepNorms]:
    """Return the norms of a worker's training steps in a range, in step order."""
    l2, low = STATISTICS.index("l2"), STATISTICS.index("min")
    found = []
    for block in run.columns.blocks:
        if block.worker != worker or block.mode not in {"TRAIN", "GLOBAL"}:
            continue
        group = run.kinds.group(block.group.names)
        if not len(group.gradients) and not len(group.weights):
            continue
        steps = block.steps[: block.size]
        for at in np.flatnonzero((steps >= shown.first) & (steps <= shown.last)):
            norms = np.where(block.bad[at], np.inf, block.high[at, l2]).astype(np.float32)
            rates = block.low[at, low, group.learning_rates]
            rate = float(rates[0]) if len(rates) and np.isfinite(rates[0]) else None
            of_step = norms[group.gradients], norms[group.weights]
            found.append(StepNorms(int(steps[at]), group, *of_step, rate))
    return sorted(found, key=lambda each: each.step)


def _named_curves(run: OpenedRun) -> dict[str, list[str]]:
    """Return the names of all losses, metrics and logged scalars."""
    found: dict[str, dict[str, None]] = {kind: {} for kind in _KINDS}
    for stored in run.columns.groups:
        group = run.kinds.group(stored.names)
        for kind in _KINDS:
            found[kind].update(dict.fromkeys(group.names[at] for at in group.scalars[kind]))
    return {kind: list(names) for kind, names in found.items()}


def _names(run: OpenedRun) -> list[str]:
    return list(dict.fromkeys(name for group in run.columns.groups for name in group.names))


def _notes(run: OpenedRun) -> list[str]:
    notes = [f"an index file cannot be read: {text}" for text in run.problems]
    if run.columns.steps_per_row > 1:
        width = run.columns.steps_per_row
        notes.append(
            f"the run is long: a point stands for up to {width} steps, with their extremes"
        )
    if run.columns.num_left_out:
        notes.append(
            f"{run.columns.num_left_out} index files are left out: the run has too many tensors"
        )
    return notes


def _diagnosis(verdicts: Iterable[JobVerdict]) -> dict[str, Any] | None:
    diagnosis = diagnosis_of_verdicts(verdicts)
    if diagnosis is None:
        return None
    return {
        "headline": diagnosis.headline,
        "change": diagnosis.first.advice,
        "alternative": diagnosis.alternative,
        "explains": [symptom.name for symptom in diagnosis.first.symptoms],
    }


def _verdict(verdict: JobVerdict) -> dict[str, Any]:
    found = verdict.evidence
    return {
        "name": verdict.name,
        "status": verdict.displayed_status,
        "is_finding": verdict.status is RuleStatus.ISSUES_FOUND,
        "details": verdict.details,
        "summary": verdict.summary,
        "evidence": None if found is None else plain(found.to_json()),
        "step": None if found is None else found.first_step,
    }


def _numbers(values: npt.NDArray[np.float64]) -> list[float | None]:
    """Return numbers with the digits of single precision; None for NaN."""
    return [float(f"{each:.7g}") if math.isfinite(each) else None for each in values.tolist()]
