"""Writes the template files of a new rule and its test."""

from __future__ import annotations

import importlib.util
import keyword
import re
import sys
from pathlib import Path
from string import Template
from typing import Final, NamedTuple

from rule_runtime.custom_rules.built_in_templates import (
    BUILT_IN_PAGE,
    BUILT_IN_RULE,
    BUILT_IN_TEST,
)
from rule_runtime.engine.registry import available_rules
from rule_runtime.engine.rule import snake_case

__all__ = ["NewRule", "write_rule"]

_RULE: Final = Template('''"""$name: a rule of your own. Change what it looks at and compares."""

import stepwatch


class $name(stepwatch.Rule):
    """Finds weights whose norm is above a bound, or not finite."""

    bound: float = 100.0  # a parameter: --rule $module.py:$name:bound=5
    collections = ("weights",)  # what is saved and looked at; or losses, gradients, biases

    def check(self, step: stepwatch.StepView, memory: stepwatch.Memory) -> stepwatch.Outcome:
        # Statistics: size nan inf min max mean std abs_mean l1 l2; values: step.value("name").
        # To compare with earlier steps, keep numbers: memory["before"] = largest.value
        weights = step.tensors(collections=self.collections)
        for kind in ("nan", "inf"):  # other statistics are those of the finite elements
            most = weights.largest(kind)
            if most is not None and most.value > 0:
                return stepwatch.IssueFound(f"{most.name}: {most.value:.0f} elements are {kind}")
        largest = weights.largest("l2")
        if largest is None:
            return stepwatch.NotEvaluated("no weights were saved")
        if largest.value > self.bound:
            return stepwatch.IssueFound(f"{largest.name}: norm {largest.value:.3g} > {self.bound}")
        return stepwatch.Passed()
''')

_TEST: Final = Template('''"""Tests of $name: `pytest test_$module.py`."""

import pytest
import stepwatch
from stepwatch.testing import TrialBuilder
from $module import $name


def outcome_of(weights: list[float]) -> stepwatch.Outcome:
    """Return what the rule answers for one step with one tensor."""
    trial = TrialBuilder()
    trial.step(0, {"layer.weight": weights})
    return trial.outcomes($name(bound=5.0))[0]


def test_passes_below_the_bound() -> None:
    assert outcome_of([3.0, 1.0]) == stepwatch.Passed()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_finds_a_weight_that_is_not_finite(value: float) -> None:
    assert isinstance(outcome_of([3.0, value]), stepwatch.IssueFound)
    assert isinstance(outcome_of([value]), stepwatch.IssueFound)


def test_finds_a_norm_above_the_bound() -> None:
    outcome = outcome_of([3.0, 12.0])
    assert isinstance(outcome, stepwatch.IssueFound)
    assert outcome.evidence.tensor == "layer.weight"
    assert outcome.evidence.sentence == "layer.weight: norm 12.4 > 5.0"
''')


class NewRule(NamedTuple):
    """The written files.

    Attributes:
        name: Name of the class.
        rule: The file of the rule.
        test: The file of its test.
        page: The file of its page; None for a custom rule.
    """

    name: str
    rule: Path
    test: Path
    page: Path | None = None


def write_rule(name: str, folder: Path, *, built_in: bool = False) -> NewRule:
    """Write a rule and its test, and the page of a built-in rule.

    Args:
        name: Name of the rule, as `weight_norm` or `WeightNorm`.
        folder: Folder of the files; for a built-in rule, the checkout of Stepwatch.
        built_in: Whether the rule is a built-in one.

    Raises:
        ValueError: The name is not a valid module name, another module or rule has it, or the
            folder is not a checkout.
        FileExistsError: A file exists already.
        OSError: The files cannot be written.
    """
    module = snake_case(name)
    class_name = name if name != name.lower() else _in_cap_words(name)
    new = NewRule(class_name, folder / f"{module}.py", folder / f"test_{module}.py")
    templates = {new.rule: _RULE, new.test: _TEST}
    if built_in:
        new, templates = _in_checkout(folder, module, class_name)
    _check_name(name, module, class_name)
    for file in templates:
        if file.exists():
            raise FileExistsError(f"{file} exists already; choose another name, or delete it")
    _check_free(module, class_name)
    names = {"name": class_name, "module": module, "anchor": class_name.lower()}
    for file, template in templates.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(template.substitute(names), encoding="utf-8")
    return new


def _in_checkout(folder: Path, module: str, name: str) -> tuple[NewRule, dict[Path, Template]]:
    """Return the files of a built-in rule, with their templates."""
    rules, tests = folder / "rule_runtime" / "rules", folder / "tests" / "rule_runtime" / "rules"
    page = folder / "docs" / "rules" / f"{module}.md"
    if not (rules.is_dir() and tests.is_dir()):
        raise ValueError(f"{folder.absolute()} is not a checkout of Stepwatch; give its --folder")
    new = NewRule(name, rules / f"{module}.py", tests / f"test_{module}.py", page)
    return new, {new.rule: BUILT_IN_RULE, new.test: BUILT_IN_TEST, page: BUILT_IN_PAGE}


def _in_cap_words(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def _check_name(name: str, module: str, class_name: str) -> None:
    is_name = module.isidentifier() and class_name.isidentifier() and name.isascii()
    if not is_name or keyword.iskeyword(module) or module.startswith("_"):
        close = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_").lower().lstrip("0123456789_")
        hint = f"; try {close}" if close.isidentifier() and not keyword.iskeyword(close) else ""
        raise ValueError(f"{name!r} is not a valid Python module name, such as weight_norm{hint}")


def _check_free(module: str, class_name: str) -> None:
    if class_name in available_rules():
        raise ValueError(f"{class_name} is a built-in rule; `stepwatch rules explain {class_name}`")
    if module in sys.stdlib_module_names or importlib.util.find_spec(module) is not None:
        raise ValueError(f"{module} is the name of an installed module; try {module}_rule")
