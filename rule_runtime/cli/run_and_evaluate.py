"""The commands that evaluate rules: `run` and `evaluate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console, Group, RenderableType
from rich.text import Text

from hook_layer.format.paths import INDEX_PREFIX
from hook_layer.frameworks import XGBOOST
from hook_layer.storage.base import open_store
from rule_runtime.cli.destinations import printed_aside, ready_file
from rule_runtime.cli.evaluation import ExitStatus, evaluate_run, exit_status_of_runs
from rule_runtime.cli.options import (
    ChosenRules,
    OutputFormat,
    OutputOption,
    PackOption,
    RuleOption,
    SessionArgument,
    VerboseOption,
    choices,
    mistakes,
    progress,
)
from rule_runtime.cli.output import FEW_RULES, verdicts_table
from rule_runtime.cli.summary import Summary, coverage_line, diagnosis_text
from rule_runtime.cli.tables import harmless
from rule_runtime.configuration.applicability import applies
from rule_runtime.embedded.stop_policy import StopPolicy
from rule_runtime.engine.outcome import RuleStatus, counted
from rule_runtime.engine.state import EvaluationState
from rule_runtime.exporting.targets import Target, chosen_targets
from rule_runtime.reporting.run_verdicts import RunVerdicts
from rule_runtime.trial.saved_steps import check_has_steps
from rule_runtime.trial.sessions import StoredRun, runs_at

if TYPE_CHECKING:
    from rule_runtime.cli.watched_session import WatchedSession

__all__ = ["evaluate", "run"]


class StopAt(str, Enum):
    """The findings that stop a script; `serious` is the former name of `fatal`."""

    FATAL = "fatal"
    SERIOUS = "serious"
    ANY = "any"
    NEVER = "never"


class RanksOption(str, Enum):
    """The ranks that write."""

    AUTO = "auto"
    ALL = "all"
    CHIEF = "chief"


class VerdictFormat(str, Enum):
    """Formats of verdicts."""

    TABLE = "table"
    JSON = "json"
    JUNIT = "junit"
    SARIF = "sarif"


_STDERR: Final = 2
_NO_STEPS: Final = "{}: the script saved no step, so nothing was evaluated: {}"
_FILE: Final = typer.Option(
    "--output-file", "-f", metavar="FILE", help="File for the verdicts. Default: the terminal."
)
_Command = Annotated[
    list[str],
    typer.Argument(metavar="COMMAND", help="The command that trains: `-- python train.py ...`."),
]
_OutDir = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER",
        help="Folder of the session. Default: a new folder runs/SCRIPT-TIME-RANDOM.",
    ),
]
_MaxRuns = Annotated[int, typer.Option(min=1, metavar="N", help="Maximum number of runs to watch.")]
_Interval = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        show_default=False,
        help="Save and evaluate every N-th step. Default: every step up to 10, every second step "
        "up to 50, then every 10th step.",
    ),
]
_Ranks = Annotated[
    RanksOption,
    typer.Option(
        metavar=choices(RanksOption),
        help="Ranks of a distributed run that write. auto: statistics of up to 16 ranks, values of "
        "rank 0; all: statistics and values of every rank; chief: rank 0 only.",
    ),
]
_Stop = Annotated[
    StopAt,
    typer.Option(
        metavar=choices(StopAt),
        help="Findings that stop the command: fatal ones (also: serious), any, or none.",
    ),
]
_Patience = Annotated[
    float,
    typer.Option(min=0, metavar="SECONDS", help="Time a stopped command gets before SIGTERM."),
]
_Losses = Annotated[
    list[str] | None,
    typer.Option(
        "--loss",
        metavar="NAME",
        show_default=False,
        help="A scalar that the script logs and that is a loss, for the rules of losses.",
    ),
]
_HigherIsBetter = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        show_default=False,
        help="A scalar that the script logs and that should rise, for rules with tensor_regex.",
    ),
]
_LogConsole = Annotated[
    bool,
    typer.Option(
        "--log-console",
        help="Keep the last MiB of the command's output in console.log. It then writes to a pipe.",
    ),
]
_Export = Annotated[
    list[Target] | None,
    typer.Option(
        metavar="TOOL",
        show_default=False,
        help="Add the findings at the end to github (Actions; on by default there), mlflow, "
        "tensorboard or wandb. Repeat it for several.",
    ),
]
_Notify = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        envvar="STEPWATCH_NOTIFY_URL",
        show_default=False,
        help="Webhook of Slack, Mattermost or Discord (its /slack URL) that gets each rule's first "
        "finding and the end of the run. It is a secret: prefer the environment variable.",
    ),
]


_VerdictsOption = Annotated[
    VerdictFormat,
    typer.Option("--output", "-o", metavar=choices(VerdictFormat), help="Output format."),
]


def run(  # noqa: PLR0917 - each is an option of the command
    command: _Command,
    rule: RuleOption = None,
    pack: PackOption = None,
    out_dir: _OutDir = None,
    save_interval: _Interval = None,
    stop: _Stop = StopAt.FATAL,
    patience: _Patience = 30.0,
    max_runs: _MaxRuns = 32,
    ranks: _Ranks = RanksOption.AUTO,
    notify: _Notify = None,
    export: _Export = None,
    log_console: _LogConsole = False,
    loss: _Losses = None,
    higher_is_better: _HigherIsBetter = None,
    output: OutputOption = OutputFormat.TABLE,
    output_file: Annotated[Path | None, _FILE] = None,
    verbose: VerboseOption = False,
) -> None:
    """Run a command, evaluate each training run in it, and stop it at a fatal finding.

    The command can be anything that starts Python: a script, `bash train.sh`, `torchrun`. It is a
    session. Each training run in it has its own folder and verdicts: every fold, every trial of a
    search, every restart.

    Every finding is reported. Findings of the rules that you name with --rule stop the session. Of
    the pack `recommended`, only fatal findings stop it, from which a run does not recover: values
    that are not finite, a diverging loss, no gradient at all, steps that change no weight, constant
    outputs, one label for all rows, a stalled run. After a stop no further run trains.

    With `--output json` the script's standard output goes to standard error, unless you give
    --output-file.

    Exit status 0: no issue; 1: issue found; 2: not evaluated; 4: the script failed; 130: Ctrl-C;
    129 and 143: SIGHUP and SIGTERM. After a signal, the saved steps are evaluated.
    """
    with mistakes():
        from rule_runtime.cli.watched_session import (  # noqa: PLC0415 - loads numpy
            BY_SIGNAL,
            RunOptions,
            WatchedSession,
        )

        with printed_aside(output):
            chosen = ChosenRules.of(rule, pack)
            ready_file(output_file)
            _print_cautions(chosen)
            is_table = output is OutputFormat.TABLE
            options = RunOptions(
                out_dir=out_dir,
                save_interval=save_interval,
                stops=_stops(chosen, stop),
                patience_s=patience,
                max_runs=max_runs,
                ranks=ranks.value,
                required=chosen.names,
                stdout=None if is_table or output_file else _STDERR,
                notify_url=notify,
                keeps_console=log_console,
                losses=loss or (),
                higher_is_better=higher_is_better or (),
                exports=chosen_targets(export or ()),
            )
            watched = WatchedSession(command, chosen.all, options, Console(stderr=True))
            status = watched.run()
        try:
            _print_session(watched, chosen, output, output_file, is_verbose=verbose)
        except OSError:
            if status <= BY_SIGNAL:  # a closed terminal sends SIGHUP and accepts no output
                raise
    raise typer.Exit(status)


def _print_session(
    watched: WatchedSession,
    chosen: ChosenRules,
    output: OutputFormat,
    file: Path | None,
    *,
    is_verbose: bool,
) -> None:
    """Print the results of a session, and the path of its tensors."""
    is_table = output is OutputFormat.TABLE
    runs = [RunVerdicts(run.run.name, run.store.uri, run.states) for run in watched.runs]
    has_steps = any(run.has_steps for run in watched.runs)
    if has_steps or not is_table or file:
        verdicts = runs or [RunVerdicts("", watched.path, watched.empty_states())]
        format_ = VerdictFormat(output.value)
        _print_verdicts(verdicts, chosen, format_, file, is_verbose=is_verbose)
    if watched.num_not_watched:
        _print_note(
            f"{counted(watched.num_not_watched, 'more run')} began: --max-runs watches more"
        )
    if not has_steps:
        _print_note(_NO_STEPS.format(watched.path, watched.why_nothing))
    elif is_table:
        typer.echo(f"tensors: {watched.path}")


def evaluate(  # noqa: PLR0917 - each is an option of the command
    path: SessionArgument,
    rule: RuleOption = None,
    pack: PackOption = None,
    output: _VerdictsOption = VerdictFormat.TABLE,
    output_file: Annotated[Path | None, _FILE] = None,
    verbose: VerboseOption = False,
) -> None:
    """Evaluate rules on a stored run, or on all runs of a session.

    Without --rule and --pack, the rules are those that the run configures, otherwise the pack
    `recommended`. Rules of a pack that do not apply to the run are skipped; `-v` shows why, and
    JUnit output lists them as skipped. A rule that you name with --rule must apply.

    In a folder with TensorBoard's files, the scalars are evaluated. Those whose names contain
    "loss", and no "val", "eval" or "test", are training losses.

    Exit status 0: no issue; 1: issue found; 2: not evaluated, a rule failed, or more than half of
    the rules that apply lack data because the hook was not configured to save it.
    """
    with mistakes():
        with printed_aside(output):
            ready_file(output_file)
            from rule_runtime.cli.tensorboard_files import (  # noqa: PLC0415 - loads numpy
                tensorboard_runs,
            )

            runs = tensorboard_runs(path) or runs_at(path)
            chosen = ChosenRules.for_run(open_store(runs[0].path), rule, pack)
            _print_cautions(chosen)
            for problem in chosen.problems:
                _print_note(problem)
            verdicts = [_evaluated(run, chosen) for run in runs]
        _print_verdicts(verdicts, chosen, output, output_file, is_verbose=verbose)
    status = exit_status_of_runs([run.states for run in verdicts], required=chosen.names)
    is_blind = any(run.coverage is not None and run.coverage.is_blind for run in verdicts)
    if is_blind and status is ExitStatus.NO_ISSUE:
        status = ExitStatus.NOT_JUDGED
    raise typer.Exit(status)


def _evaluated(run: StoredRun, chosen: ChosenRules) -> RunVerdicts:
    if not run.name:  # some runs of a session may have saved nothing
        check_has_steps(run.path)
    with progress() as bar:
        states = evaluate_run(run.path, chosen.all, on_start=bar.begin, on_evaluated=bar.done)
    from rule_runtime.reporting.coverage import (  # noqa: PLC0415 - loads numpy
        coverage_of,
        had_data,
    )

    judged = {name: had_data(state) for name, state in states.items()}
    coverage = coverage_of(open_store(run.path), judged, dict(chosen.all))
    return RunVerdicts(run.name, run.path, states, coverage)


def _stops(chosen: ChosenRules, stop: StopAt) -> StopPolicy:
    """Return which findings stop the script."""
    if stop is StopAt.NEVER:
        return StopPolicy()
    if stop is StopAt.ANY:
        return StopPolicy(frozenset(name for name, _ in chosen.all))
    return chosen.stops


def _print_cautions(chosen: ChosenRules) -> None:
    """Print notes about the defaults of rules that use them."""
    judging = [type(rule) for _, rule in chosen.all if rule.has_defaults]
    cautions = {judge.__name__: getattr(judge, "caution", "") for judge in judging}
    for name, caution in cautions.items():
        if caution:
            _print_note(f"{name}: {caution}")


def _print_note(message: str) -> None:
    console = Console(stderr=True)
    console.print(f"stepwatch: {message}", markup=False, highlight=False, soft_wrap=True)


def _print_damage(states: Mapping[str, EvaluationState]) -> None:
    """Report index files that could not be parsed. Verdicts do not include them."""
    counts = max((s.counts for s in states.values()), key=lambda c: c.unreadable, default=None)
    if counts is not None and counts.unreadable:
        line = f"{counted(counts.unreadable, 'index file')} damaged and ignored"
        is_of_file = counts.last_problem.startswith(INDEX_PREFIX)  # or of a lost worker
        _print_note(harmless(f"{line}: {counts.last_problem}" if is_of_file else line))


def _unfit(run: RunVerdicts, chosen: ChosenRules) -> frozenset[str]:
    """Return names of unnamed rules for neural networks if the run trained boosted trees."""
    from rule_runtime.reporting.saved_collections import (  # noqa: PLC0415 - loads numpy
        SavedCollections,
    )

    unnamed = [(name, rule) for name, rule in chosen.all if name not in chosen.names]
    unfit = frozenset(name for name, of in unnamed if not applies(type(of), XGBOOST))
    if not unfit:
        return unfit  # avoids reading files
    framework = (run.coverage or SavedCollections(open_store(run.path))).framework
    return unfit if framework is XGBOOST else frozenset()


def _print_verdicts(
    runs: Sequence[RunVerdicts],
    chosen: ChosenRules,
    output: VerdictFormat,
    file: Path | None,
    *,
    is_verbose: bool,
) -> None:
    for run in runs:
        _print_damage(run.states)
    line = coverage_line(runs)
    if output is VerdictFormat.TABLE:
        if file is None and not is_verbose and len(chosen.all) > FEW_RULES:
            Console().print(Summary(runs, chosen.names))
            return
        is_alone = len(runs) == 1
        tables = [_table(run, chosen, is_alone=is_alone, is_whole=is_verbose) for run in runs]
        tables += [Text(line)] if line else []
        if file is None:
            Console().print(*tables, sep="\n")
            return
        with file.open("w", encoding="utf-8") as opened:
            Console(file=opened, width=120).print(*tables, sep="\n")
        return
    from rule_runtime.reporting.verdicts import VERDICT_FORMATS  # noqa: PLC0415 - few need it

    if any(run.coverage is not None and run.coverage.is_blind for run in runs):
        _print_note(line)
    text = VERDICT_FORMATS[output.value](runs, chosen.names)
    if file is None:
        typer.echo(text)
    else:
        file.write_text(text + "\n", encoding="utf-8")


def _table(
    run: RunVerdicts, chosen: ChosenRules, *, is_alone: bool, is_whole: bool
) -> RenderableType:
    """Return a table of verdicts; a single line for one of several runs without a finding."""
    table, diagnosis = verdicts_table(run.states, _unfit(run, chosen)), run.diagnosis
    parts = [table] if diagnosis is None else [diagnosis_text(diagnosis), table]
    if is_alone:
        return Group(*parts)
    found = [state for state in run.states.values() if state.status is RuleStatus.ISSUES_FOUND]
    heading = f"{run.name}: {counted(len(found), 'issue')}" if found else f"{run.name}: no issue"
    return Group(Text(heading), *parts) if found or is_whole else Text(heading)
