"""The command `watch`: shows a run on the terminal while it trains."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from hook_layer.format.paths import JOB_FILE
from hook_layer.storage.base import Store, open_store
from hook_layer.storage.local import LocalStore
from rule_runtime.cli.destinations import printed_aside
from rule_runtime.cli.evaluation import exit_status_of_statuses
from rule_runtime.cli.options import (
    OutputFormat,
    OutputOption,
    PackOption,
    RuleOption,
    RunArgument,
    VerboseOption,
    evaluated_or_stored,
    mistakes,
)
from rule_runtime.cli.output import STATUS_COLOURS
from rule_runtime.cli.summary import diagnosis_text
from rule_runtime.cli.tables import Records, harmless
from rule_runtime.engine.outcome import RuleStatus, counted
from rule_runtime.engine.parameters import nearest_name
from rule_runtime.trial.sessions import folder_of_sessions, read_session, runs_at, runs_of

if TYPE_CHECKING:
    from rule_runtime.live_page.follower import RunFollower
    from rule_runtime.reporting.job_numbers import JobNumbers
    from rule_runtime.reporting.job_verdicts import JobVerdict

__all__ = ["await_next_run", "shown", "sparkline", "wait_for_run", "watch", "watch_run"]

_BARS: Final = "▁▂▃▄▅▆▇█"
_NOT_FINITE: Final = "\N{MULTIPLICATION SIGN}"
_NOTHING: Final = "nothing of a run is stored there"
_TO_WAIT: Final = " (--timeout waits for it all the same)"
_SPARK_WIDTH: Final = 32
_MAX_LOOKS: Final = 200
_LOCAL_INTERVAL_S: Final = 1.0
_REMOTE_INTERVAL_S: Final = 5.0


def watch(  # noqa: PLR0917 - each is an option of the command
    path: RunArgument,
    rule: RuleOption = None,
    pack: PackOption = None,
    once: Annotated[bool, typer.Option("--once", help="Show the current state and exit.")] = False,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="SECONDS", help="Time to wait for a run to begin. Default: no limit."
        ),
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
    verbose: VerboseOption = False,
) -> None:
    """Show losses, the cause of the findings, and the findings of a run until it ends.

    Ctrl-C ends it earlier. For a session, it shows the newest run and then each later one.
    It stops no training.

    Without --rule and --pack, the rules are those that the run configures, otherwise the pack
    `recommended`. Stored verdicts in `rule-output/` are shown; the other rules are evaluated here.

    Exit status 0: no issue so far; 1: issue found; 2: a rule failed, or no rule was evaluated.
    """
    with mistakes(), printed_aside(output):
        from rule_runtime.live_page.follower import RunFollower  # noqa: PLC0415 - few need it

        is_here = open_store(path).uri.startswith("file:")
        pause = partial(time.sleep, _LOCAL_INTERVAL_S if is_here else _REMOTE_INTERVAL_S)
        statuses: set[str] = set()
        run: str | None = _await_run(path, 0.0 if once else timeout, pause)
        while run is not None:
            store = open_store(run)
            follower = RunFollower(store, evaluated_or_stored(store, rule, pack))
            console = Console() if output is OutputFormat.TABLE else None
            is_whole = verbose or rule is not None
            numbers = watch_run(
                follower, once=once, console=console, pause=pause, is_whole=is_whole
            )
            statuses |= {verdict.displayed_status for verdict in numbers.verdicts}
            is_last = once or not follower.has_ended  # Ctrl-C was pressed
            run = None if is_last else await_next_run(path, run, pause)
    if output is OutputFormat.JSON:
        typer.echo(json.dumps(numbers.to_json(), indent=2))
    raise typer.Exit(exit_status_of_statuses(statuses))


def _await_run(path: str, timeout_s: float | None, pause: Callable[[], None]) -> str:
    """Wait for a run at a path, and return its folder; for a session, its newest run.

    Raises:
        ValueError: No run began there in time, or the user stopped waiting.
    """
    if (run := _begun_run(path)) is not None:
        return run
    if sessions := folder_of_sessions(path):
        raise ValueError(sessions)
    store = open_store(path)
    is_lost = timeout_s is None and isinstance(store, LocalStore) and not store.path.parent.is_dir()
    if timeout_s != 0 and not is_lost:
        text = f"{path}: {_NOTHING} yet{_meant(store)}; waiting for it, Ctrl-C ends that"
        typer.echo(text, err=True)
    limit_s = math.inf if timeout_s is None else timeout_s
    if not is_lost:
        run = wait_for_run(partial(_begun_run, path), limit_s, pause)
    if run is None:
        why = f", nor is there the folder above it{_TO_WAIT}" if is_lost else _meant(store)
        raise ValueError(f"{path}: {_NOTHING}{why}; give the folder that the hook writes to")
    return run


def await_next_run(path: str, run: str, pause: Callable[[], None]) -> str | None:
    """Wait for the next run of a session after the shown one; None if there is none."""
    store = open_store(path)
    has_printed = False
    try:
        while (newest := runs_at(path)[-1].path) == run:
            session = read_session(store)
            if session is None or session.ended_at is not None:
                return None
            if not has_printed:
                typer.echo(f"{path}: waiting for the next run, Ctrl-C ends that", err=True)
                has_printed = True
            pause()
    except KeyboardInterrupt:
        return None
    return newest


def _meant(store: Store) -> str:
    """Return a sibling folder with a similar name; "" if there is none."""
    if not isinstance(store, LocalStore) or not store.path.parent.is_dir():
        return ""
    beside = [each for each in store.path.parent.iterdir() if each.is_dir()]
    folders = [each.name for each in beside if each.name != store.path.name]
    found = nearest_name(store.path.name, folders)
    return "" if found is None else f" (did you mean {harmless(found)}?)"


def wait_for_run(
    begun_run: Callable[[], str | None],
    timeout_s: float,
    pause: Callable[[], None],
    clock: Callable[[], float] = time.monotonic,
) -> str | None:
    """Wait until a run has begun, and return its folder; None after the timeout or Ctrl-C."""
    until = clock() + timeout_s
    try:
        while (run := begun_run()) is None and clock() < until:
            pause()
    except KeyboardInterrupt:
        return None
    return run


def _begun_run(path: str) -> str | None:
    """Return the folder of the newest run at a path; None if none has begun."""
    from rule_runtime.trial.step_index import list_index_files  # noqa: PLC0415 - loads numpy

    store = open_store(path)
    session = read_session(store)
    if session is not None:
        runs = runs_of(path, store, session)
        return runs[-1].path if runs else None
    has_begun = store.exists(JOB_FILE) or next(list_index_files(store), None) is not None
    return path if has_begun else None


def watch_run(
    follower: RunFollower,
    *,
    once: bool = False,
    console: Console | None,
    pause: Callable[[], None],
    is_whole: bool = False,
) -> JobNumbers:
    """Follow a run until it ends or Ctrl-C, and return its last state.

    With a console, it prints at least the final state; `is_whole` is that of `shown`.
    """
    show = partial(shown, is_whole=is_whole)
    for _ in range(_MAX_LOOKS):  # each update reads a bounded number of files
        if not follower.look():
            break
    numbers = follower.numbers()
    if once or follower.has_ended:
        if console is not None:
            console.print(show(numbers))
        return numbers
    with Live(show(numbers), console=console or Console(quiet=True), screen=False) as live:
        try:
            while not follower.has_ended:
                pause()
                if follower.look():
                    live.update(show(follower.numbers()))
        except KeyboardInterrupt:
            pass
    return follower.numbers()


def shown(numbers: JobNumbers, *, is_whole: bool = False) -> RenderableType:
    """Return the state of a run for a terminal.

    Args:
        numbers: The run.
        is_whole: Whether rules without a finding are shown, too, instead of their number.
    """
    reading = numbers.reading
    state = "has ended" if reading.has_ended else "continues"
    state = state if reading.stop is None else reading.end
    last = "no step yet" if reading.last_step is None else f"step {reading.last_step}"
    heading = harmless(f"{numbers.name}: {last}, {reading.num_steps} saved, {state}")
    title = Text(heading, style="bold")
    listed = [each for each in numbers.verdicts if is_whole or each.is_problem]
    rules = Records("rule", "status", "step", "what was found", whole=("status", "step"))
    for verdict in listed:
        found = verdict.evidence
        details = verdict.details if _has_failed(verdict) else ""
        details = details if found is None else found.line
        rules.add_row(
            Text(verdict.name),
            Text(verdict.displayed_status, style=STATUS_COLOURS.get(verdict.status, "")),
            "" if found is None else str(found.step),
            Text(details),
        )
    curves = Records("curve", "first", "last", "bars", whole=("first", "last", "bars"), box=None)
    for line in [line for lines in numbers.curves.values() for line in lines]:
        finite = [number for number in line.numbers if number is not None]
        ends = (f"{finite[0]:.4g}", f"{finite[-1]:.4g}") if finite else ("", "")
        curves.add_row(Text(line.name), *ends, sparkline(line.numbers))
    parts: list[RenderableType] = [title, curves]
    if (diagnosis := numbers.diagnosis) is not None:
        parts.append(diagnosis_text(diagnosis))
    if listed:
        parts.append(rules)
    if num_others := len(numbers.verdicts) - len(listed):
        silent = sum(verdict.is_not_judged for verdict in numbers.verdicts)
        text = f"{counted(num_others - silent, 'rule')} without a finding"
        text += f", {silent} not evaluated" if silent else ""
        parts.append(Text(f"{text}; `-v` shows them"))
    return Group(*parts)


def _has_failed(verdict: JobVerdict) -> bool:
    """Return whether a rule was not evaluated, so that its details show the reason."""
    return verdict.is_not_judged or verdict.status is RuleStatus.ERROR


def sparkline(numbers: Sequence[float | None], width: int = _SPARK_WIDTH) -> str:
    """Return a curve as one line of text, from `▁` (smallest number) to `█` (largest).

    A cross marks a number that is not finite. Each character shows the last number of its part.
    """
    at = [(i + 1) * len(numbers) // width - 1 for i in range(width)]
    chosen = [numbers[i] for i in at] if len(numbers) > width else list(numbers)
    finite = [number for number in chosen if number is not None]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(
        _NOT_FINITE if number is None else _BARS[round((number - low) * scale)] for number in chosen
    )
