"""Arguments shared by several commands, and their error messages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from hook_layer.storage.base import StorageError, Store
from rule_runtime.cli.completion import complete_pack, complete_rule
from rule_runtime.cli.counted_reads import CountedReads
from rule_runtime.cli.evaluation import ExitStatus, parse_rule
from rule_runtime.cli.tables import harmless
from rule_runtime.configuration.packs import PACKS, Pack, find_pack
from rule_runtime.embedded.stop_policy import StopPolicy
from rule_runtime.engine.rule import Rule
from rule_runtime.jobs.aws import AwsRequestError
from rule_runtime.jobs.deployment import DeploymentError
from rule_runtime.trial.errors import TrialError
from rule_runtime.trial.saved_steps import no_steps
from rule_runtime.trial.sessions import runs_at

if TYPE_CHECKING:
    from rule_runtime.live_page.run_rules import RunRules
    from rule_runtime.trial.trial import Trial

__all__ = [
    "Bar",
    "ChosenRules",
    "OutputFormat",
    "OutputOption",
    "PackOption",
    "RegexOption",
    "RuleOption",
    "RunArgument",
    "RunsArgument",
    "SessionArgument",
    "VerboseOption",
    "choices",
    "evaluated_or_stored",
    "mistakes",
    "newest_run",
    "nothing_chosen",
    "open_run",
    "progress",
]

_PACKS: Final = ", ".join(PACKS)

RunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="Folder or s3:// URI of a run, or of a session (then its newest run)."
    ),
]
RunsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="RUN",
        help="Folders or s3:// URIs of runs, or of sessions (then the newest run of each).",
    ),
]
SessionArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="Folder or s3:// URI of a session or of a run.")
]
VerboseOption = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Show every rule, also those that were not evaluated."),
]
RuleOption = Annotated[
    list[str] | None,
    typer.Option(
        "--rule",
        "-r",
        help="A rule: NAME[:key=value,...] or FILE.py:NAME[:...]. Repeat it for several rules.",
        autocompletion=complete_rule,
    ),
]
PackOption = Annotated[
    str | None,
    typer.Option(
        "--pack",
        "-p",
        help=f"A pack of rules: {_PACKS}, or an installed one. Default without --rule: the rules "
        "that a stored run configures, otherwise recommended.",
        autocompletion=complete_pack,
    ),
]
RegexOption = Annotated[
    list[str] | None,
    typer.Option(
        "--regex",
        "-e",
        help="Regular expression that names of tensors must match. Repeat it for several.",
    ),
]


class OutputFormat(str, Enum):
    """Output formats."""

    TABLE = "table"
    JSON = "json"


def choices(values: type[Enum]) -> str:
    """Return the values of an option for its help, separated by bars."""
    return "|".join(str(each.value) for each in values)


OutputOption = Annotated[
    OutputFormat,
    typer.Option("--output", "-o", metavar=choices(OutputFormat), help="Output format."),
]


@dataclass(frozen=True)
class ChosenRules:
    """The rules that a command evaluates.

    Attributes:
        named: Rules named by the user, by the text that names each.
        pack: The pack that the user named, or the default pack.
        asked: Rules that the run configures, if the user named none.
        problems: Why some configured rules are ignored.
    """

    named: Sequence[tuple[str, Rule]]
    pack: Pack | None
    asked: Sequence[tuple[str, Rule]] = ()
    problems: Sequence[str] = ()

    @classmethod
    def of(cls, rules: Sequence[str] | None, pack: str | None) -> ChosenRules:
        """Return the rules from a command's options.

        Raises:
            ValueError: A rule, a parameter or a pack does not exist.
            ImportError: The file of a rule cannot be imported.
        """
        named = [parse_rule(text) for text in rules or ()]
        return cls(named, find_pack(pack or "recommended") if pack or not named else None)

    @classmethod
    def for_run(cls, store: Store, rules: Sequence[str] | None, pack: str | None) -> ChosenRules:
        """Return the rules from a command's options, otherwise those that a stored run configures.

        Raises:
            ValueError: See `of`, or none of the run's configured rules can be created here.
            StorageError: The storage cannot be read.
        """
        if rules or pack:
            return cls.of(rules, pack)
        from rule_runtime.live_page.run_rules import RunRules  # noqa: PLC0415 - few need it

        of_run = RunRules(store, lambda: ())
        asked = of_run.asked()
        problems = [f"{each.name}: {each.details}" for each in of_run.left_out]
        if problems and not asked:
            raise ValueError(f"{'; '.join(problems)}; say --rule or --pack")
        return cls((), None, asked, problems) if asked else cls.of(None, None)

    @property
    def all(self) -> list[tuple[str, Rule]]:
        """Every rule, with its displayed name."""
        return [*self.named, *self.asked, *(self.pack.rules().items() if self.pack else ())]

    @property
    def names(self) -> list[str]:
        """Names of the rules that the user named individually."""
        return [name for name, _ in self.named]

    @property
    def stops(self) -> StopPolicy:
        """Which findings stop a run: of named rules any, of a pack's the fatal ones."""
        of_pack = self.pack.rules() if self.pack else ()
        return StopPolicy(frozenset(self.names), frozenset(of_pack))


_MISTAKES: Final = (
    *(ValueError, ImportError, OSError, TimeoutError),
    *(TrialError, StorageError, AwsRequestError, DeploymentError),
)


@contextmanager
def mistakes() -> Iterator[None]:
    """Print errors that the user can fix, and exit with their status."""
    try:
        yield
    except BrokenPipeError:
        raise  # the output pipe is closed: `main` exits quietly
    except re.error as error:
        _end_with_mistake(f"{error.pattern!r} is not a regular expression: {error}")
    except _MISTAKES as error:
        _end_with_mistake(error)


def _end_with_mistake(error: object) -> NoReturn:
    console = Console(stderr=True)
    console.print(harmless(f"stepwatch: {error}"), markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(ExitStatus.NOT_JUDGED) from None


def evaluated_or_stored(
    store: Store, rules: Sequence[str] | None, pack: str | None
) -> list[tuple[str, Rule]] | RunRules:
    """Return the rules to evaluate on a run; by default, those that it configures.

    Raises:
        ValueError: A rule, a parameter or a pack does not exist.
    """
    if rules or pack:
        return ChosenRules.of(rules, pack).all
    from rule_runtime.live_page.run_rules import RunRules  # noqa: PLC0415 - few need it

    return RunRules(store, lambda: ChosenRules.of(None, None).all)


def newest_run(path: str) -> str:
    """Return the folder of a session's newest run; for a run, its own folder.

    Raises:
        ValueError: No store supports the URI, or the session has no run.
        FormatError: `session.json` is damaged, or another version of Stepwatch wrote it.
        StorageError: The storage cannot be read.
    """
    runs = runs_at(path)
    if len(runs) > 1:
        message = f"{path} is a session with {len(runs)} runs: this is {runs[-1].name}"
        typer.echo(f"stepwatch: {message}; give {runs[0].path} to see another", err=True)
    return runs[-1].path


def open_run(path: str) -> Trial:
    """Return the trial at a path; it must have saved steps.

    Raises:
        ValueError: No step is stored there, or the path is not a trial's.
        StorageError: The storage cannot be read.
    """
    from rule_runtime.trial.opening import trial_store  # noqa: PLC0415 - loads numpy
    from rule_runtime.trial.trial import Trial  # noqa: PLC0415 - as above

    trial_store(path)  # refuses a path that is not a trial's
    path = newest_run(path)
    with progress() as bar:
        store = CountedReads(trial_store(path), bar.begin, bar.done)
        trial = Trial(store, name=PurePath(path.rstrip("/")).name)
    trial.path = path
    if not trial.steps(show_incomplete_steps=True):
        raise ValueError(no_steps(path))
    return trial


def nothing_chosen(
    path: str, regex: Sequence[str] | None, collection: str | None = None
) -> ValueError:
    """Return the error for a selection that matches no tensor of a run."""
    said = [f"--regex {each!r}" for each in regex or ()]
    said += [] if collection is None else [f"--collection {collection!r}"]
    asked = " and ".join(said) or "your selection"
    return ValueError(f"{path}: no tensor fits {asked}; `stepwatch tensors {path}` lists them all")


class Bar:
    """A progress bar on a terminal, with the name of the last item."""

    def __init__(self, shown: Progress) -> None:
        self._shown = shown
        self._task = shown.add_task("", total=None)

    def begin(self, total: int) -> None:
        """Set the number of remaining items."""
        self._shown.reset(self._task, total=total)

    def done(self, name: str) -> None:
        """Count a finished item."""
        self._shown.update(self._task, advance=1, description=name)


@contextmanager
def progress() -> Iterator[Bar]:
    """Show a progress bar in the context; none if the output is not a terminal."""
    console = Console(stderr=True)
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}", markup=False),
    )
    is_hidden = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=is_hidden) as shown:
        yield Bar(shown)
