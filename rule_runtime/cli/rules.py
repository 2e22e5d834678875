"""The commands `rules`, `rules explain NAME` and `rules new NAME`."""

from __future__ import annotations

import inspect
import json
import textwrap
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from rule_runtime.cli.completion import complete_rule
from rule_runtime.cli.evaluation import class_name
from rule_runtime.cli.options import OutputFormat, OutputOption, mistakes
from rule_runtime.cli.output import parameters_text, rules_table
from rule_runtime.cli.tables import reflowed
from rule_runtime.configuration.packs import PACKS
from rule_runtime.engine.parameters import ParameterError, nearest_name
from rule_runtime.engine.registry import UnknownRuleError, available_rules, create_rule
from rule_runtime.engine.rule import Rule, snake_case

__all__ = ["rules_app"]

_REPORT = "CreateXgboostReport"
_MAX_WIDTH = 100
"""Longer lines are hard to read."""

_NEXT = "Change them, then run `python tools/rule_documentation.py`; CONTRIBUTING.md says the rest."

rules_app = typer.Typer(name="rules", help="List the rules, explain one, or begin your own.")


@rules_app.callback(invoke_without_command=True)
def rules(
    context: typer.Context,
    everything: Annotated[
        bool, typer.Option("--all", help="Show parameters and defaults, too.")
    ] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List the rules and what they find.

    `rules explain NAME` explains one, `rules new NAME` writes a rule of your own.
    """
    if context.invoked_subcommand is not None:
        return
    found = available_rules()
    if output is OutputFormat.JSON:
        typer.echo(json.dumps([_described(rule) for rule in found.values()], indent=2))
    else:
        Console().print(rules_table(found, with_parameters=everything))


@rules_app.command()
def explain(
    name: Annotated[
        str,
        typer.Argument(
            help="VanishingGradient or vanishing_gradient.", autocompletion=complete_rule
        ),
    ],
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Explain a rule: what it finds, how it decides, what to try, what the hook saves for it."""
    with mistakes():
        rule = _find(name)
    described = _described(rule)
    documentation = inspect.getdoc(rule) or ""
    if output is OutputFormat.JSON:
        typer.echo(json.dumps({**described, "documentation": documentation}, indent=2))
        return
    console = Console(highlight=False)
    console.print(Text(rule.__name__, style="bold"))
    if rule.caution:
        console.print(Text(f"Caution: {rule.caution}.", style="yellow"))
    console.print(Text(reflowed(documentation, min(console.width, _MAX_WIDTH))), soft_wrap=True)
    defaults = textwrap.indent(parameters_text(rule) or "no parameters", "    ")
    console.print(Text(f"\nDefaults:\n{defaults}"))
    saved = ", ".join(described["saves"]) or "nothing of its own"
    console.print(Text(f"\nAsks the hook to save:\n    {saved}"))
    console.print(Text(f"\nPacks:\n    {', '.join(described['packs']) or 'none'}"))


@rules_app.command()
def new(
    name: Annotated[str, typer.Argument(help="Name of the rule, such as weight_norm.")],
    folder: Annotated[Path, typer.Option(help="Where to write the files.")] = Path(),
    built_in: Annotated[
        bool, typer.Option("--built-in", help="Write rule, test and page in a checkout.")
    ] = False,
) -> None:
    """Write a rule of your own and its test, as two files to change."""
    with mistakes():
        from rule_runtime.custom_rules.new_rule import write_rule  # noqa: PLC0415 - few ask for it

        written = write_rule(name, folder, built_in=built_in)
    if written.page is not None:
        typer.echo("\n".join(map(str, (written.rule, written.test, written.page, _NEXT))))
        return
    typer.echo(
        f"{written.rule}: the rule {written.name}\n"
        f"{written.test}: its test\n\n"
        f"Test it:        pytest {written.test}\n"
        f"Judge a run:    stepwatch evaluate RUN --rule {written.rule}:{written.name}\n"
        f"Watch a script: stepwatch run --rule {written.rule}:{written.name} -- python train.py"
    )


def _find(name: str) -> type[Rule]:
    found = available_rules()
    wanted = class_name(name)
    if wanted in found:
        return found[wanted]
    if snake_case(name) == snake_case(_REPORT):
        create_rule(_REPORT)  # it is not a rule; the error says what it is
    close = nearest_name(name, found)
    hint = f"did you mean {close!r}?" if close else "`stepwatch rules` lists them"
    raise UnknownRuleError(f"there is no rule {name!r}; {hint}")


def _described(rule: type[Rule]) -> dict[str, Any]:
    return {
        "rule": rule.__name__,
        "summary": rule.summary(),
        "caution": rule.caution,
        "parameters": [
            {
                "name": parameter.name,
                "is_required": parameter.is_required,
                "default": None if parameter.is_required else parameter.default,
                "unit": parameter.unit,
                "constraints": [str(constraint) for constraint in parameter.constraints],
            }
            for parameter in rule.parameters()
        ],
        "saves": _saved(rule),
        "packs": [
            name
            for name, pack in PACKS.items()
            if any(type(own) is rule for own in pack.rules().values())
        ],
    }


def _saved(rule: type[Rule]) -> list[str]:
    """Return the names of the collections that a rule needs with its defaults."""
    try:
        return [config.name for config in rule().requires()]
    except ParameterError:  # the parameters decide what it needs
        return []
