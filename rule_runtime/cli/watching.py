"""The command `watch`: a run on the terminal while it trains."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from hook_layer.format.paths import JOB_FILE
from hook_layer.storage.base import Store, open_store
from rule_runtime.cli.evaluation import ExitStatus, exit_status_of_told
from rule_runtime.cli.options import (
    OutputFormat,
    OutputOption,
    PackOption,
    RuleOption,
    RunArgument,
    judged_or_stored,
    mistakes,
)
from rule_runtime.cli.output import STATUS_COLOURS
from rule_runtime.cli.tables import Records, harmless
from rule_runtime.evaluation.outcome import NOT_EVALUATED, RuleStatus

if TYPE_CHECKING:
    from rule_runtime.reporting.job_numbers import JobNumbers
    from rule_runtime.reporting.job_verdicts import JobVerdict

__all__ = ["shown", "sparkline", "watch", "watch_run"]

_BARS: Final = "▁▂▃▄▅▆▇█"
_NOT_FINITE: Final = "\N{MULTIPLICATION SIGN}"
_NOTHING: Final = "nothing of a run is stored there"
_SPARK_WIDTH: Final = 32
_MAX_LOOKS: Final = 200
_LOCAL_INTERVAL_S: Final = 1.0
_REMOTE_INTERVAL_S: Final = 5.0


def watch(
    path: RunArgument,
    rule: RuleOption = None,
    pack: PackOption = None,
    once: Annotated[bool, typer.Option("--once", help="Show how it stands, and end.")] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show verdicts and losses of a run until its training ends, or Ctrl-C; nothing is stopped.

    Without --rule and --pack the verdicts are those in `rule-output/` beside the tensors, and where
    there are none, the run is judged by the pack `recommended`. Exit status 0: no issue so far, 1:
    an issue found, 2: a rule failed, none could judge, or nothing could be read.
    """
    with mistakes():
        from rule_runtime.live_page.follower import RunFollower  # noqa: PLC0415 - few need it

        store = open_store(path)
        if not _is_begun(store):
            if once:
                raise ValueError(f"{path}: {_NOTHING}; give the folder that the hook writes to")
            typer.echo(f"{path}: {_NOTHING} yet; waiting for it, Ctrl-C ends that", err=True)
        follower = RunFollower(store, judged_or_stored(store, rule, pack))
        console = Console()
        is_quiet = once or output is OutputFormat.JSON
        interval_s = _LOCAL_INTERVAL_S if store.uri.startswith("file:") else _REMOTE_INTERVAL_S
        numbers = watch_run(
            follower.look,
            follower.numbers,
            has_ended=lambda: once or follower.has_ended,
            console=None if is_quiet else console,
            pause=lambda: time.sleep(interval_s),
        )
        is_begun = _is_begun(store)
    if output is OutputFormat.JSON:
        typer.echo(json.dumps(numbers.to_json(), indent=2))
    elif once:
        console.print(shown(numbers))
    told = {_told_status(verdict) for verdict in numbers.verdicts}
    raise typer.Exit(exit_status_of_told(told) if is_begun else ExitStatus.NOT_JUDGED)


def _is_begun(store: Store) -> bool:
    from rule_runtime.trial.step_index import list_index_files  # noqa: PLC0415 - loads numpy

    return store.exists(JOB_FILE) or next(list_index_files(store), None) is not None


def _told_status(verdict: JobVerdict) -> str:
    return NOT_EVALUATED if verdict.is_not_judged else verdict.status.value


def watch_run(
    look: Callable[[], bool],
    numbers: Callable[[], JobNumbers],
    *,
    has_ended: Callable[[], bool],
    console: Console | None,
    pause: Callable[[], None],
) -> JobNumbers:
    """Look at a run until it has ended or somebody interrupts, and return how it stands then.

    Args:
        look: Takes in what was stored since; returns whether there was anything.
        numbers: Returns how the run stands.
        has_ended: Tells whether there is no more to come.
        console: Where to show it; None: nowhere.
        pause: Called between two looks.
    """
    for _ in range(_MAX_LOOKS):  # each takes in a bounded number of files
        if not look():
            break
    if has_ended():
        return numbers()
    with Live(shown(numbers()), console=console or Console(quiet=True), screen=False) as live:
        try:
            while not has_ended():
                pause()
                if look():
                    live.update(shown(numbers()))
        except KeyboardInterrupt:
            pass
    return numbers()


def shown(numbers: JobNumbers) -> RenderableType:
    """Return how a run stands, for a terminal.

    Args:
        numbers: The run.
    """
    reading = numbers.reading
    state = "has ended" if reading.has_ended else "goes on"
    last = "no step yet" if reading.last_step is None else f"step {reading.last_step}"
    told = harmless(f"{numbers.name}: {last}, {reading.num_steps} saved, {state}")
    title = Text(told, style="bold")
    rules = Records("rule", "status", "step", "what was found", whole=("status", "step"))
    for verdict in numbers.verdicts:
        found = verdict.evidence
        told = verdict.details if _has_failed(verdict) else ""
        told = told if found is None else found.line
        rules.add_row(
            Text(verdict.name),
            Text(_told_status(verdict), style=STATUS_COLOURS.get(verdict.status, "")),
            "" if found is None else str(found.step),
            Text(told),
        )
    curves = Records("curve", "first", "last", "bars", whole=("first", "last", "bars"), box=None)
    for line in [line for lines in numbers.curves.values() for line in lines]:
        finite = [number for number in line.numbers if number is not None]
        ends = (f"{finite[0]:.4g}", f"{finite[-1]:.4g}") if finite else ("", "")
        curves.add_row(Text(line.name), *ends, sparkline(line.numbers))
    return Group(title, curves, rules)


def _has_failed(verdict: JobVerdict) -> bool:
    """Tell whether a rule did not judge, so that its details say why."""
    return verdict.is_not_judged or verdict.status is RuleStatus.ERROR


def sparkline(numbers: Sequence[float | None], width: int = _SPARK_WIDTH) -> str:
    """Return a curve of one line of text: `▁` its least number, `█` its largest.

    Args:
        numbers: The numbers; None where one is not finite, which is shown by a cross.
        width: Characters; each shows the last number of its share.
    """
    at = [(i + 1) * len(numbers) // width - 1 for i in range(width)]
    chosen = [numbers[i] for i in at] if len(numbers) > width else list(numbers)
    finite = [number for number in chosen if number is not None]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(
        _NOT_FINITE if number is None else _BARS[round((number - low) * scale)] for number in chosen
    )
