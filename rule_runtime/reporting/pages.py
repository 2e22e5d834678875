"""Renders self-contained pages from templates; texts are escaped."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any, Final

from rule_runtime.optional_extra import require_report_extra

require_report_extra("a report", "jinja2")

from jinja2 import Environment, FunctionLoader, StrictUndefined  # noqa: E402
from markupsafe import Markup  # noqa: E402

from rule_runtime.reporting.axes import number_text  # noqa: E402
from rule_runtime.reporting.display_text import shown_text  # noqa: E402
from rule_runtime.reporting.heat_map import heat_map  # noqa: E402
from rule_runtime.reporting.line_chart import line_chart  # noqa: E402

__all__ = ["rendered"]

_FOLDER: Final = "templates"


def rendered(template: str, **content: Any) -> str:
    """Return a page or a part of one."""
    return _environment().get_template(template).render(**content)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(_source),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["shown"] = shown_text
    environment.filters["number"] = number_text
    for draw in (line_chart, heat_map):
        environment.globals[draw.__name__] = _as_markup(draw)
    return environment


def _as_markup(draw: Callable[..., str]) -> Callable[..., Markup]:
    return lambda *data, **options: Markup(draw(*data, **options))  # noqa: S704 - it escapes texts


def _source(name: str) -> str:
    return files("rule_runtime.reporting").joinpath(_FOLDER).joinpath(name).read_text("utf-8")
