"""Finds what differs between runs: arguments, packages, commit, and the first numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from rule_runtime.live_page.catalogue import Place
from rule_runtime.live_page.opened_run import OpenedRun
from rule_runtime.live_page.run_data import details
from rule_runtime.optional_extra import require_report_extra
from rule_runtime.trial.run_settings import settings_of
from rule_runtime.trial.trial import Trial

if TYPE_CHECKING:
    from rule_runtime.trial.comparison import TensorDifference

__all__ = ["differences", "differing_arguments"]

_MAX_NUMBERS: Final = 2_000_000
"""Statistics (steps times tensors) that are compared: a second of work."""


def differing_arguments(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows with `differs`: the arguments that runs of the same script do not share."""
    values: dict[str, dict[str, set[str | None]]] = {}
    by_script: dict[str, list[Mapping[str, str]]] = {}
    for row in rows:
        script, arguments = _by_script(row)
        by_script.setdefault(script, []).append(arguments)
    for script, given in by_script.items():
        names = dict.fromkeys(name for arguments in given for name in arguments)
        values[script] = {name: {each.get(name) for each in given} for name in names}
    found = []
    for row in rows:
        script, arguments = _by_script(row)
        of_script = values[script]
        differs = {name: text for name, text in arguments.items() if len(of_script[name]) > 1}
        shown = {name: value for name, value in row.items() if name != "arguments"}
        found.append({**shown, "differs": differs})
    return found


def _by_script(row: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """Return the name of a run's script, and the other arguments."""
    arguments = dict(row.get("arguments") or {})
    return PurePosixPath(arguments.pop("script", "")).name, arguments


def differences(runs: Sequence[tuple[OpenedRun, Place]]) -> dict[str, Any]:
    """Return the facts that runs do not share, and where each differs first from the first run."""
    facts = [settings_of(details(run, place)["environment"]) for run, place in runs]
    names = dict.fromkeys(name for each in facts for name in each)
    table = [
        {"name": name, "values": values}
        for name in names
        if len(set(values := [each.get(name) for each in facts])) > 1
    ]
    found = [_first_difference(runs[0][0], other) for other, _ in runs[1:]]
    return {"facts": table, "first": found}


def _first_difference(first: OpenedRun, second: OpenedRun) -> dict[str, Any]:
    """Return where the statistics of two runs differ first; `problem` if it is unknown."""
    sizes = [
        len(run.steps) * sum(len(group.names) for group in run.columns.groups)
        for run in (first, second)
    ]
    if max(sizes) > _MAX_NUMBERS:
        command = f"stepwatch compare {first.store.uri} {second.store.uri}"
        return {"problem": f"the runs are too large to compare here: run `{command}`"}
    try:
        require_report_extra("comparing runs", "pandas")
        from rule_runtime.trial.comparison import compare_trials  # noqa: PLC0415 - loads pandas

        trials = [Trial(run.store, name="run") for run in (first, second)]
        found = compare_trials(*trials)
    except ImportError as error:
        return {"problem": str(error)}
    differing = [each for each in found.differences if each.first_step is not None]
    if not differing:
        return {"problem": "no tensor that both saved differs"}
    return {
        "tensor": differing[0].tensor,
        "mode": differing[0].mode,
        "mode_step": differing[0].first_step,
        "step": _global_step(trials[0], differing[0]),
        "num_differing": len(differing),
        "num_common": len(found.differences),
    }


def _global_step(trial: Trial, found: TensorDifference) -> int | None:
    """Return the step of a trial that is the first different one of its mode."""
    wanted = found.mode, found.first_step
    for file in trial.step_files():
        index = file.index
        if index is not None and (index.mode.name, index.mode_step) == wanted:
            return file.step
    return None
