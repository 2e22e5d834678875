"""The commands `rules`, `rules explain NAME` and `rules new NAME`."""

from __future__ import annotations

import inspect
import json
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from rule_runtime.cli.command_style import PlainGroup, with_json
from rule_runtime.cli.completion import complete_rule
from rule_runtime.cli.destinations import printed_aside
from rule_runtime.cli.evaluation import class_in_file, class_name
from rule_runtime.cli.options import OutputFormat, OutputOption, mistakes
from rule_runtime.cli.output import parameters_text, rules_table
from rule_runtime.cli.tables import reflowed
from rule_runtime.configuration.collection_config import as_collections
from rule_runtime.configuration.packs import available_packs, find_pack
from rule_runtime.engine.parameters import Parameter, ParameterError, nearest_name
from rule_runtime.engine.registry import UnknownRuleError, available_rules, create_rule
from rule_runtime.engine.rule import Rule, snake_case

__all__ = ["rules_app"]

_REPORT = "CreateXgboostReport"
_MAX_WIDTH = 100
"""Longer lines are hard to read."""

_NEXT = "Change them, then run `python tools/rule_documentation.py`; CONTRIBUTING.md says the rest."

rules_app = typer.Typer(
    name="rules", cls=PlainGroup, help="List the rules, explain one, or begin your own."
)


@rules_app.callback(invoke_without_command=True)
@with_json
def rules(
    context: typer.Context,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Show parameters and defaults, too.")
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
        marked = find_pack("recommended").parameters
        Console().print(rules_table(found, marked, with_parameters=everything))
        others = ", ".join(name for name in available_packs() if name != "recommended")
        typer.echo(f"* in the pack recommended, the default; other packs: {others}")


@rules_app.command()
def explain(
    name: Annotated[
        str,
        typer.Argument(
            help="VanishingGradient, vanishing_gradient, or FILE.py:NAME of your own rule.",
            autocompletion=complete_rule,
        ),
    ],
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Explain a rule: what it finds, how it decides, what to try, what the hook saves for it."""
    with mistakes(), printed_aside(output):
        rule = class_in_file(name) or _find(name)
        described = _described(rule)
    documentation = inspect.cleandoc(rule.__doc__ or "It has no docstring.")
    if output is OutputFormat.JSON:
        full = {**described, "documentation": documentation}
        typer.echo(json.dumps(full, indent=2, default=str))
        return
    console = Console(highlight=False)
    console.print(Text(rule.__name__, style="bold"))
    if described["caution"]:
        console.print(Text(f"Caution: {described['caution']}.", style="yellow"))
    console.print(Text(reflowed(documentation, min(console.width, _MAX_WIDTH))), soft_wrap=True)
    defaults = parameters_text(_parameters(rule)) or "no parameters"
    console.print(Text(f"\nDefaults:\n{textwrap.indent(defaults, '    ')}"))
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


def _described(rule: type[Any]) -> dict[str, Any]:
    """Return a rule as JSON; a rule for smdebug has neither caution nor collections.

    Raises:
        ValueError: The class of a user's file has a mistake.
    """
    is_own = issubclass(rule, Rule)
    saves = _saved(rule) if is_own else []  # finds mistakes in the class
    is_installed = available_rules().get(rule.__name__) is rule
    packs = available_packs().items() if is_installed else ()
    return {
        "rule": rule.__name__,
        "summary": rule.summary() if is_own else (rule.__doc__ or "").strip().partition("\n")[0],
        "caution": rule.caution if is_own else "",
        "parameters": [
            {
                "name": parameter.name,
                "is_required": parameter.is_required,
                "default": None if parameter.is_required else parameter.default,
                "unit": parameter.unit,
                "constraints": [str(constraint) for constraint in parameter.constraints],
            }
            for parameter in _parameters(rule)
        ],
        "saves": saves,
        "packs": [name for name, pack in packs if rule.__name__ in pack.parameters],
    }


def _parameters(rule: type[Any]) -> Sequence[Parameter]:
    if issubclass(rule, Rule):
        return rule.parameters()
    from rule_runtime.custom_rules.constructor import (  # noqa: PLC0415 - few ask for it
        constructor_parameters,
    )

    return constructor_parameters(rule)


def _saved(rule: type[Rule]) -> list[str]:
    """Return the names of the collections that a rule needs, with its defaults if it has them."""
    from rule_runtime.custom_rules.rule_mistakes import made_rule  # noqa: PLC0415 - loads numpy

    try:
        needed = made_rule(rule, {}).requires()
    except ParameterError:  # a parameter is required
        needed = as_collections(rule.collections)
    return [config.name for config in needed]
