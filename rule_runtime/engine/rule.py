"""The base class of rules: frozen parameters, required tensors, and one pure method.

A subclass automatically becomes a frozen, keyword-only dataclass. Its fields are converted and
checked when it is created, so `check` sees only valid parameters.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from rule_runtime.configuration.collection_config import CollectionConfig, as_collections
from rule_runtime.engine.constraints import AtLeast, AtMost, GreaterThan, LessThan, Regex, Unit
from rule_runtime.engine.needs import Needs
from rule_runtime.engine.outcome import Outcome
from rule_runtime.engine.parameters import Parameter, coerce, current_names, parameters_of
from rule_runtime.engine.step_bounds import StepBounds

if TYPE_CHECKING:  # commands that only list rule names start without numpy
    from rule_runtime.trial.step_view import StepView

if sys.version_info >= (3, 11):  # an evaluator starts without the other, which is large
    from typing import dataclass_transform
else:
    from typing_extensions import dataclass_transform

__all__ = [
    "AtLeast",
    "AtMost",
    "GreaterThan",
    "LessThan",
    "Memory",
    "Needs",
    "Regex",
    "Rule",
    "Unit",
    "snake_case",
]

Memory = MutableMapping[str, Any]
"""A rule's own state between steps: strings, numbers, booleans, None, lists and dicts of them."""


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Rule(ABC):
    """A condition that is checked at every step of a training run.

    Attributes:
        collections: Collections that the hook should save for this rule, by name or as
            `CollectionConfig`.
        caution: A warning about the defaults in one sentence; empty for most rules. The command
            line prints it for rules with default parameters.
        fatal_measures: Measures of findings from which a run cannot recover, such as constant
            outputs; `*` for all findings. Such a finding stops a run by default.
        only_training: Why steps of a mode other than training are not applicable, with `{}` for
            the mode; empty if they are.
        step_bounds: Global steps that the rule evaluates; other steps are not applicable.
        former_names: Former and current names of parameters; the former work with a warning.
    """

    collections: ClassVar[tuple[CollectionConfig | str, ...]] = ()
    caution: ClassVar[str] = ""
    fatal_measures: ClassVar[tuple[str, ...]] = ()
    only_training: ClassVar[str] = ""
    former_names: ClassVar[tuple[tuple[str, str], ...]] = ()
    step_bounds: ClassVar[StepBounds] = StepBounds()  # not a parameter of the rule: see `bounded`

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # A subclass with its own constructor, such as an adapter, keeps it.
        own_constructor = "__init__" in cls.__dict__
        documentation = cls.__doc__  # a dataclass would replace a missing one by its signature
        try:
            dataclass(frozen=True, kw_only=True, init=not own_constructor, repr=True)(cls)
        except ValueError as error:
            raise TypeError(
                f"{error}; several values are a tuple: `names: tuple[str, ...] = ()`"
            ) from None
        cls.__doc__ = documentation
        if cls.former_names and not own_constructor:
            _accept_former_names(cls)

    def __post_init__(self) -> None:
        for parameter in self.parameters():
            value = getattr(self, parameter.name)
            coerced = coerce(parameter, value, owner=type(self).__name__)
            object.__setattr__(self, parameter.name, coerced)

    @classmethod
    def parameters(cls) -> tuple[Parameter, ...]:
        """Return the rule's parameters in declaration order."""
        return parameters_of(cls)

    @property
    def has_defaults(self) -> bool:
        """Whether every parameter has its default."""
        return all(
            not parameter.is_required and getattr(self, parameter.name) == parameter.default
            for parameter in self.parameters()
        )

    @classmethod
    def summary(cls) -> str:
        """Return the first sentence of the rule's docstring, for tables."""
        text = inspect.cleandoc(cls.__doc__ or "").partition("\n\n")[0]
        return " ".join(text.split())

    def requires(self) -> tuple[CollectionConfig, ...]:
        """Return the collections that the hook should save for this rule with these parameters."""
        return as_collections(self.collections)

    def needs(self) -> Needs:
        """Return what the rule needs to decide that there is no issue, with these parameters.

        Until then, steps that passed are not evaluated yet. A finding counts at any time.
        """
        return Needs()

    @abstractmethod
    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Evaluate one complete step.

        The outcome must depend only on the step, the parameters and the memory. Then the same steps
        in the same order always give the same verdict, in one or several processes.

        Args:
            step: The saved data of the step.
            memory: The rule's state, changed in place and kept for the next step.
        """

    def check_silence(self, seconds: float, step: int) -> Outcome | None:  # noqa: ARG002
        """Evaluate a period without output; called by evaluators with a clock.

        Args:
            seconds: Seconds since the last output of a run that has not ended.
            step: Global step of that output; -1 if there was none yet.

        Returns:
            The outcome; None if the rule does not evaluate such periods.
        """
        return None


def snake_case(name: str) -> str:
    """Return the module name of a class: `VanishingGradient` becomes `vanishing_gradient`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _accept_former_names(cls: type[Rule]) -> None:
    """Let the constructor of a class accept former names of parameters."""
    constructor: Callable[..., None] = cls.__init__

    @functools.wraps(constructor)
    def with_former_names(self: Rule, **given: Any) -> None:
        constructor(self, **current_names(cls.__name__, cls.former_names, given))

    cls.__init__ = with_former_names  # type: ignore[method-assign, assignment]
