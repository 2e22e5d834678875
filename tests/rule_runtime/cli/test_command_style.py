"""What all commands have in common: `--json`, short options, and help without types."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from rule_runtime.cli.app import app
from tests.rule_runtime.cli.invoking import invoke

TYPE = re.compile(r"<\w|\b(INTEGER|FLOAT|TEXT|PATH|BOOLEAN)\b(?! RANGE)|list\[")


def commands(group: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, group
    for name, command in getattr(group, "commands", {}).items():
        yield from commands(command, *path, name)


ALL = dict(commands(typer.main.get_command(app)))


def options(command: Any) -> list[Any]:
    found = command.get_params(typer.Context(command))
    return [each for each in found if each.param_type_name == "option"]


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_help_fits_80_columns_and_names_no_type(path: tuple[str, ...]) -> None:
    for switch in ("-h", "--help"):
        done = CliRunner().invoke(app, [*path, switch], env={"COLUMNS": "80"})
        assert done.exit_code == 0
        assert max(map(len, done.output.splitlines())) <= 80
        assert not TYPE.search(
            done.output.replace("doctor [OPTIONS] [PATH]", "").replace("PATH  ", "")
        )


def test_an_option_has_one_short_form_and_it_means_that_option_alone() -> None:
    shorts: dict[str, set[str]] = {}
    longs: dict[str, set[str]] = {}
    for option in (option for command in ALL.values() for option in options(command)):
        long = next(name for name in option.opts if name.startswith("--"))
        short = next((name for name in option.opts if not name.startswith("--")), "")
        shorts.setdefault(long, set()).add(short)
        longs.setdefault(short, set()).add(long)
    assert [found for found in shorts.items() if len(found[1]) > 1] == []
    assert {short: found for short, found in longs.items() if short and len(found) > 1} == {}
    assert {"-a", "-e", "-f", "-o", "-p", "-r", "-v"} <= longs.keys()


def test_each_command_with_an_output_format_has_json() -> None:
    names = {path: {name for each in options(of) for name in each.opts} for path, of in ALL.items()}
    with_output = {path for path, of in names.items() if "--output" in of}
    assert with_output == {path for path, of in names.items() if "--json" in of}
    assert len(with_output) == len(ALL) - 3  # `stepwatch`, `local` and `rules new` print lines


@pytest.mark.parametrize(
    "command", [("rules",), ("rules", "explain", "dead_relu"), ("autopatch", "status")]
)
def test_json_is_a_short_form(command: tuple[str, ...]) -> None:
    expected = invoke(*command, "--output", "json")
    assert json.loads(expected[1])
    assert invoke(*command, "--json") == invoke(*command, "-o", "json") == expected


def test_json_contradicts_another_format() -> None:
    status, output = invoke("evaluate", "run", "--json", "-o", "junit")
    assert status == 2
    assert "--json and --output junit: give one of them" in output


def test_switches_after_the_watched_command_belong_to_it() -> None:
    group = typer.main.get_command(app)
    run: Any = ALL["run",]
    context = run.make_context("run", ["train.py", "--json", "-v"], parent=typer.Context(group))
    assert context.params["command"] in (["train.py", "--json", "-v"], ("train.py", "--json", "-v"))
    assert not context.params["is_json"]
