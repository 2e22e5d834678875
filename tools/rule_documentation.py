"""Write the table and the reference of the built-in rules from their code.

`python tools/rule_documentation.py` writes rule_runtime/rules/README.md and
docs/reference/rules.md. With `--check` it writes nothing, and its exit status says whether both are
up to date.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import sys
import types
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import rule_runtime.rules  # noqa: E402
from hook_layer.frameworks import FRAMEWORKS, XGBOOST  # noqa: E402
from rule_runtime.configuration.applicability import applies  # noqa: E402
from rule_runtime.configuration.collection_config import CollectionConfig  # noqa: E402
from rule_runtime.configuration.packs import PACKS  # noqa: E402
from rule_runtime.engine.constraints import Regex  # noqa: E402
from rule_runtime.engine.parameters import Parameter, ParameterError  # noqa: E402
from rule_runtime.engine.registry import available_rules  # noqa: E402
from rule_runtime.engine.rule import Rule, snake_case  # noqa: E402
from tools.generated_text import bring_up_to_date  # noqa: E402

README = ROOT / "rule_runtime" / "rules" / "README.md"
REFERENCE = ROOT / "docs" / "reference" / "rules.md"
RESULTS = ROOT / "benchmarks" / "detection" / "RESULTS.md"
FIRST_STEPS = ROOT / "benchmarks" / "detection" / "first_steps.json"
BAR = "\\|"  # within a table
ITEM = "* "
PARAMETERS = "Parameters"
COMMAND = "python tools/rule_documentation.py"

DECIDES = "How it decides"
SECTIONS = (DECIDES, PARAMETERS, "What to try")
NAMED = "the tensors that you name"
SOME_PARAMETERS = {"collection_names": (NAMED,), "max_threshold": 1.0, "other_trials": ("job",)}
"""Enough for the rules that cannot be made without parameters."""

INTRODUCTION = f"""# The built-in rules

Written by `{COMMAND}` from the code; change the docstrings of the rules, not this file.

A rule looks at every saved step of a run. [The reference](../../docs/reference/rules.md) has the
parameters of each rule and the packs. A page per rule has its rationale, its formula and its known
false alarms.
"""

REFERENCE_INTRODUCTION = f"""# Rules

<!-- written by `{COMMAND}` -->

`stepwatch evaluate ROOT --rule Name:parameter=value` evaluates one rule on a run, `--pack NAME` all
rules of a pack. Parameters may be strings, as a training API passes them: lists are separated by
commas. [Detection](../explanation/detection.md) says how well the rules detect faults.

Most rules need statistics alone; `save_raw_tensor` marks rules that read the tensors themselves. A
rule without the data it needs is *not evaluated*, and says why. A rule that has too little of it to
decide is *not evaluated yet*, and says how much it needs and what it had.

*First steps* are measured: the smallest of all runs of [the benchmark](../explanation/detection.md)
that are saved as the pack `recommended` [begins](hook-configuration.md#dense-start). Runs with long
epochs or small batches take longer.
"""


def document() -> str:
    """Return the text of the README: a table of the rules, and how well they find faults."""
    head = ("rule", "what it finds", "framework", "pack")
    rows = [
        (
            f"[{name}](../../docs/rules/{snake_case(name)}.md)",
            _escaped(rule.summary()),
            _framework(rule),
            ", ".join(_packs_of(rule)),
        )
        for name, rule in _rules().items()
    ]
    return "\n".join([INTRODUCTION, f"{_table(head, rows)}\n", _detection()])


def reference() -> str:
    """Return the text of the reference: packs, and each rule with its parameters."""
    sections = [_section(name, rule) for name, rule in _rules().items()]
    return "\n".join([REFERENCE_INTRODUCTION, _packs(), "## Each rule\n", *sections])


def _rules() -> dict[str, type[Rule]]:
    return {
        name: rule
        for name, rule in available_rules().items()
        if rule.__module__.startswith(f"{rule_runtime.rules.__name__}.")
    }


def _framework(rule: type[Rule]) -> str:
    fitting = {framework for framework in FRAMEWORKS if applies(rule, framework)}
    if fitting == {XGBOOST}:
        return "XGBoost"
    return "any" if XGBOOST in fitting else "deep learning"


def _required(rule: type[Rule]) -> tuple[CollectionConfig, ...]:
    return _made(rule).requires()


def _made(rule: type[Rule]) -> Rule:
    try:
        return rule()
    except ParameterError:  # it cannot do without some
        names = {parameter.name for parameter in rule.parameters()}
        given = {name: value for name, value in SOME_PARAMETERS.items() if name in names}
        return rule(**given)


def _name(config: CollectionConfig) -> str:
    return NAMED if config.name == NAMED else f"`{config.name}`"


def _packs() -> str:
    rows = []
    for name, pack in PACKS.items():
        rules = pack.rules()
        fatal = sorted(rule for rule in rules if rules[rule].fatal_measures)
        rows.append((f"`{name}`", pack.summary, str(len(rules)), ", ".join(fatal)))
    head = ("pack", "what it is for", "rules", "rules with fatal findings, which stop a run")
    return f"## Packs\n\n{_table(head, rows)}\n"


def _packs_of(rule: type[Rule]) -> dict[str, list[Rule]]:
    """Return the rules of this class in each pack that has any."""
    found = {
        name: [own for own in pack.rules().values() if type(own) is rule]
        for name, pack in PACKS.items()
    }
    return {name: own for name, own in found.items() if own}


# ------------------------------------------------------------------------------- how well they find


def _detection() -> str:
    if not RESULTS.exists():
        return ""
    folder = "../../benchmarks/detection/"
    short = first_table(RESULTS.read_text())
    return (
        "## How well they find faults\n\n"
        f"[The benchmark]({folder}RESULTS.md) runs training programs, healthy and with injected "
        f"faults.\n\n{short}\n"
    )


def first_table(results: str) -> str:
    """Return the first section of the benchmark's results, which has one table."""
    found = re.search(r"^\|.*?(?=\n\n)", results, flags=re.MULTILINE | re.DOTALL)
    return f"{found[0]}\n" if found else ""


# --------------------------------------------------------------------------------- a rule's section


def _section(name: str, rule: type[Rule]) -> str:
    texts = sections_of(rule)
    page = f"[How it decides, and known false alarms](../rules/{snake_case(name)}.md)"
    parts = [f"### {name}\n", f"{_escaped(rule.summary())} {page}\n", _caution(rule)]
    parts += [
        f"**{title}.**{_as_markdown(texts[title])}\n"
        for title in texts
        if title not in (DECIDES, PARAMETERS)
    ]
    parts += [_parameters(rule, texts[PARAMETERS]), _saved(rule), _needs(rule), _first_steps(name)]
    parts.append(_in_packs(rule))
    return "\n".join(part for part in parts if part)


def _as_markdown(paragraphs: Sequence[str]) -> str:
    """Return paragraphs and the items of lists, which begin with `* `, behind a title."""
    text, was_item = "", False
    for at, paragraph in enumerate(paragraphs):
        is_item = paragraph.startswith(ITEM)
        mark = ITEM if is_item else ""
        apart = "\n" if is_item and was_item else "\n\n"
        text += f"{apart if at or is_item else ' '}{mark}{_escaped(paragraph.removeprefix(mark))}"
        was_item = is_item
    return text


def _caution(rule: type[Rule]) -> str:
    return f"**Caution:** {_escaped(rule.caution)}.\n" if rule.caution else ""


def sections_of(rule: type[Rule]) -> dict[str, list[str]]:
    """Return the paragraphs, and items of lists, of a rule's documentation by heading.

    Those of `Parameters` are the parameters' descriptions.

    Raises:
        ValueError: If a heading is missing.
    """
    text = inspect.getdoc(rule) or ""
    pieces = re.split(r"^([A-Z][a-z ]+):\n", text, flags=re.MULTILINE)[1:]
    found = dict(zip(pieces[::2], pieces[1::2], strict=True))
    missing = [title for title in SECTIONS if title not in found]
    if missing:
        raise ValueError(f"the documentation of {rule.__name__} lacks {', '.join(missing)}")
    items = r"\n\s*\n|\n(?=\* )"
    between = {title: r"\n(?=\w)" if title == PARAMETERS else items for title in found}
    return {
        title: [" ".join(part.split()) for part in re.split(between[title], inspect.cleandoc(text))]
        for title, text in found.items()
    }


def _parameters(rule: type[Rule], described: Sequence[str]) -> str:
    if not rule.parameters():
        return "**Parameters.** None.\n"
    texts = dict(text.split(": ", maxsplit=1) for text in described if ": " in text)
    rows = [
        (
            f"`{parameter.name}`",
            _type(parameter.type),
            _default(parameter),
            ", ".join([str(c) for c in parameter.constraints if not isinstance(c, Regex)]),
            parameter.unit,
            _escaped(texts[parameter.name]),
        )
        for parameter in rule.parameters()
    ]
    head = ("parameter", "type", "default", "must be", "unit", "meaning")
    return f"**Parameters.**\n\n{_table(head, rows)}\n"


def _saved(rule: type[Rule]) -> str:
    shown = []
    for config in _required(rule):
        settings = ", ".join(f"`{key}` = `{value}`" for key, value in config.parameters.items())
        shown.append(_name(config) + (f" ({settings})" if settings else ""))
    return f"**The hook must save** {'; '.join(shown)}.\n" if shown else ""


def _needs(rule: type[Rule]) -> str:
    """Return after what a rule decides with its defaults, and in packs that change it."""
    one, default = "1 saved step", _made(rule).needs()
    in_packs = {
        f"; in `{pack}` {str(own.needs()) or one}": None
        for pack, rules in _packs_of(rule).items()
        for own in rules
        if own.needs() != default
    }
    text = f"{str(default) or one}{''.join(in_packs)}"
    return "" if text == one else f"**Decides after** {text}.\n"


def _first_steps(name: str) -> str:
    """Return from which step a rule evaluates, as the benchmark measured it."""
    measured = json.loads(FIRST_STEPS.read_text()).get(name, {})
    if not measured:
        return "**First steps.** Not measured: no run of the benchmark has what the rule needs.\n"
    found = f"; its earliest finding is at step {measured['finds']}" if "finds" in measured else ""
    return (
        f"**First steps.** The rule evaluates from training step {measured['evaluates']}{found}.\n"
    )


def _in_packs(rule: type[Rule]) -> str:
    shown = []
    for pack, rules in _packs_of(rule).items():
        for own in rules:
            changed = [
                f"`{p.name}` = {_shown(getattr(own, p.name))}"
                for p in rule.parameters()
                if getattr(own, p.name) != p.default
            ]
            shown.append(f"`{pack}` with {', '.join(changed) or 'the defaults'}")
    return f"**Packs.** {'; '.join(shown)}.\n" if shown else ""


# -------------------------------------------------------------------------------------------- words


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', BAR) for cell in line)} |" for line in lines)


def _default(parameter: Parameter) -> str:
    return "required" if parameter.is_required else _shown(parameter.default)


def _shown(value: object) -> str:
    if value is None or value in ((), ""):
        return "none"
    if isinstance(value, tuple):
        return f"`{','.join(map(str, value))}`"
    return f"`{value:.12g}`" if isinstance(value, float) else f"`{value}`"


def _type(kind: Any) -> str:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _type(next(arg for arg in args if arg is not type(None)))
    if origin is Literal:
        return " or ".join(f"`{arg}`" for arg in args)
    if origin is tuple:
        return f"list of {_type(args[0])}"
    names = {float: "number", int: "whole number", bool: "True or False", str: "text"}
    return names[kind]


def _escaped(text: str) -> str:
    """Return a text in which Markdown finds no marks of its own, except code in backticks."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(
        piece if at % 2 else re.sub(r"([*<>\[\]\\])", r"\\\1", piece)
        for at, piece in enumerate(pieces)
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file, or check it; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    is_check = parser.parse_args(arguments).check
    written = {README: document(), REFERENCE: reference()}
    return max(
        bring_up_to_date(
            path, text, name=str(path.relative_to(ROOT)), command=COMMAND, is_check=is_check
        )
        for path, text in written.items()
    )


if __name__ == "__main__":
    sys.exit(main())
