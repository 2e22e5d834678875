"""The command `compare`: compares two runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from hook_layer.format.errors import FormatError
from hook_layer.format.paths import ENVIRONMENT_FILE
from rule_runtime.cli.options import (
    OutputFormat,
    OutputOption,
    RegexOption,
    mistakes,
    nothing_chosen,
    open_run,
)
from rule_runtime.cli.tables import Records, harmless
from rule_runtime.engine.json_codec import json_number
from rule_runtime.optional_extra import require_report_extra
from rule_runtime.trial.run_settings import (
    SettingDifference,
    differing_settings,
    read_environment,
    settings_of,
)

if TYPE_CHECKING:
    from rule_runtime.trial.comparison import Comparison
    from rule_runtime.trial.final_metrics import FinalMetric, MetricPair
    from rule_runtime.trial.trial import Trial

__all__ = ["compare"]

_DIFFERENT = 1
_MAX_ROWS = 40
_MAX_NAMED = 10
_MAX_VALUE = 200
"""Characters of a setting that a table shows."""

_RUN = "Folder or s3:// URI of a run, or of a session (then its newest run)."


def compare(
    first: Annotated[str, typer.Argument(metavar="FIRST", help=_RUN)],
    second: Annotated[str, typer.Argument(metavar="SECOND", help=_RUN)],
    regex: RegexOption = None,
    tolerance: Annotated[
        float,
        typer.Option(
            min=0, metavar="SHARE", help="Largest relative difference that counts as equal."
        ),
    ] = 1e-6,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Compare two runs: settings, last losses and metrics, and where tensors begin to differ.

    Settings are arguments, commit, packages and machine of `environment.json`; those that are equal
    are left out. Of each tensor it shows the first step at which a statistic differs. Statistics
    that only one run saved are ignored.

    Exit status 0: no tensor differs; 1: differences; 2: not comparable.
    """
    with mistakes():
        from rule_runtime.trial.comparison import compare_trials  # noqa: PLC0415 - loads numpy
        from rule_runtime.trial.final_metrics import metric_pairs  # noqa: PLC0415 - as above

        require_report_extra("comparing runs", "pandas")

        trials = open_run(first), open_run(second)
        found = compare_trials(*trials, regex=regex, tolerance=tolerance)
        settings = _settings(*trials)
        metrics = metric_pairs(*trials, regex=regex)
        parts = (found.differences, found.only_in_first, found.only_in_second, found.not_in_common)
        if not any(parts):
            raise nothing_chosen(first, regex)
    if output is OutputFormat.JSON:
        typer.echo(json.dumps(_as_json(settings, metrics, found), indent=2))
    else:
        _print_settings(settings)
        _print_metrics(metrics)
        _print(found)
    raise typer.Exit(0 if found.is_same else _DIFFERENT)


def _as_json(
    settings: Sequence[SettingDifference] | str, metrics: Sequence[MetricPair], found: Comparison
) -> dict[str, Any]:
    return {
        "is_same": found.is_same,
        "settings": None if isinstance(settings, str) else [asdict(each) for each in settings],
        "metrics": [_metric_json(each) for each in metrics],
        **asdict(found),
        "differences": [
            {**asdict(each), "largest": json_number(each.largest)} for each in found.differences
        ],
    }


def _settings(first: Trial, second: Trial) -> list[SettingDifference] | str:
    """Return the settings that differ, or why those of a run are unknown."""
    settings = []
    for trial in (first, second):
        try:
            settings.append(settings_of(read_environment(trial.store)))
        except FormatError as error:
            return str(error)
        if not settings[-1]:
            return f"{trial.path} has no {ENVIRONMENT_FILE}"
    return differing_settings(*settings)


def _print_settings(settings: Sequence[SettingDifference] | str) -> None:
    if isinstance(settings, str):
        typer.echo(harmless(f"settings are not compared: {settings}"))
        return
    if not settings:
        typer.echo("settings: the same")
        return
    table = Records("setting", "first", "second")
    for each in settings[:_MAX_ROWS]:
        table.add_row(each.setting, _value(each.first), _value(each.second))
    _print_table(table, len(settings))


def _value(text: str | None) -> str:
    if text is None:
        return "none"
    return text if len(text) <= _MAX_VALUE else f"{text[:_MAX_VALUE]}..."


def _metric_json(pair: MetricPair) -> dict[str, Any]:
    described = asdict(pair)
    for run in filter(None, (described["first"], described["second"])):
        run.update({name: json_number(run[name]) for name in ("last", "lowest", "highest")})
    return described


def _print_metrics(metrics: Sequence[MetricPair]) -> None:
    numbers = ("first", "second", "change")
    table = Records("last value of", *numbers, whole=numbers)
    for each in metrics[:_MAX_ROWS]:
        name = f"{each.metric} ({each.mode})"
        table.add_row(name, _last(each.first), _last(each.second), _change(each))
    if metrics:
        _print_table(table, len(metrics))


def _change(pair: MetricPair) -> str:
    if pair.first is None or pair.second is None or not pair.first.last:
        return ""
    change = (pair.second.last - pair.first.last) / abs(pair.first.last)
    return f"{change:+.3g}" if isfinite(change) else ""


def _last(metric: FinalMetric | None) -> str:
    return "none" if metric is None else f"{metric.last:.4g}"


def _print_table(table: Records, num_rows: int) -> None:
    """Print a table, and how many of all rows it leaves out."""
    console = Console()
    console.print(table)
    if num_rows > _MAX_ROWS:
        hidden = num_rows - _MAX_ROWS
        console.print(f"... and {hidden} more; --regex chooses tensors, --json has all")


def _print(found: Comparison) -> None:
    console = Console()
    numbers = ("first difference", "largest, relative", "steps in common")
    table = Records("tensor", *numbers, whole=numbers)
    for each in found.differences[:_MAX_ROWS]:
        is_same = each.first_step is None
        first = "none" if is_same else f"{each.mode} step {each.first_step}"
        style = "green" if is_same else "red"
        cells = (each.tensor, first, f"{each.largest:.3g}", str(each.num_common))
        table.add_row(*(Text(cell, style=style) for cell in cells))
    _print_table(table, len(found.differences))
    for heading, names in (
        *_not_comparable(found),
        ("only in the first", found.only_in_first),
        ("only in the second", found.only_in_second),
        ("never saved at the same step", found.not_in_common),
    ):
        if names:
            console.print(Text(f"{heading}: {_named(names)}"), soft_wrap=True)


def _not_comparable(found: Comparison) -> list[tuple[str, list[str]]]:
    """Return a sentence about statistics that only one run has, with their tensors."""
    by_statistics: dict[str, list[str]] = {}
    for each in found.differences:
        if each.not_comparable:
            text = f"not comparable, as only one run has it: {', '.join(each.not_comparable)} of"
            by_statistics.setdefault(text, []).append(each.tensor)
    return list(by_statistics.items())


def _named(names: Sequence[str]) -> str:
    """Return names separated by commas; of many names, some and the number of further ones."""
    hidden = len(names) - _MAX_NAMED
    more = [f"{hidden} more; --json has all"] if hidden > 0 else []
    return ", ".join([*names[:_MAX_NAMED], *more])
