"""Former names of functions of `rule_runtime.facts.missing`, which return texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec

from rule_runtime.facts import missing
from rule_runtime.facts.missing import are_not_finite

if TYPE_CHECKING:
    from rule_runtime.engine.outcome import Missing

__all__ = ["are_not_finite", "why_no_drift", "why_no_gradient", "why_no_loss", "why_unknown"]

_P = ParamSpec("_P")


def _text_of(function: Callable[_P, Missing | None]) -> Callable[_P, str]:
    """Return the function with a text as its result, empty if nothing is missing."""
    return lambda *args, **kwargs: str(function(*args, **kwargs) or "")


why_unknown = _text_of(missing.missing_statistics)
why_no_gradient = _text_of(missing.missing_gradients)
why_no_loss = _text_of(missing.missing_counted_loss)
why_no_drift = _text_of(missing.missing_drift)
