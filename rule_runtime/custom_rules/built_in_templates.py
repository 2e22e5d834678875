"""Templates of a built-in rule: its file, its test and its page."""

from __future__ import annotations

from string import Template
from typing import Final

__all__ = ["BUILT_IN_PAGE", "BUILT_IN_RULE", "BUILT_IN_TEST"]

BUILT_IN_RULE: Final = Template('''"""$name: detects weights whose norm is above a bound."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from rule_runtime.engine.findings import finding
from rule_runtime.engine.outcome import NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import GreaterThan, Memory, Rule, Unit
from rule_runtime.engine.selection import saved_every
from rule_runtime.facts.missing import missing_statistics
from rule_runtime.trial.step_view import StepView
from rule_runtime.trial.tensor_rows import worst

__all__ = ["$name"]


class $name(Rule):
    """Detects weights whose norm is above a bound.

    How it decides:
        The rule compares the norm of each saved weight with `bound`.

    Parameters:
        bound: Largest norm that passes.

    What to try:
        Lower the learning rate, or use weight decay.
    """

    bound: Annotated[float, GreaterThan(0), Unit("norm")] = 100.0

    collections = saved_every(500, "weights")

    def check(self, step: StepView, memory: Memory) -> Outcome:  # noqa: ARG002
        """Compare the largest norm with the bound."""
        weights = step.tensors(collections=("weights",))
        if not len(weights):
            return NotEvaluated("no tensor of the collection weights was saved")
        missing = missing_statistics(weights, ("l2",), "weight")
        if missing is not None:
            raise missing
        norms = weights.column("l2")
        at = worst(weights, norms, largest=True)
        value = float(norms[at])
        if np.isnan(value) or value <= self.bound:
            return Passed()
        message = f"the norm {value:.3g} is above {self.bound:g}"
        return finding(self, step, (weights, at), ("l2", value, self.bound), message)
''')

BUILT_IN_TEST: Final = Template("""from __future__ import annotations

import pytest

from rule_runtime.engine.outcome import IssueFound, Passed
from rule_runtime.engine.rule import Rule
from rule_runtime.rules.$module import $name
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract


class Test${name}Contract(RuleContract):
    def make_rule(self) -> Rule:
        return $name()


@pytest.mark.parametrize(("bound", "answer"), [(13.0, Passed), (12.0, IssueFound)])
def test_a_norm_of_12_4(bound: float, answer: type) -> None:
    trial = TrialBuilder()
    trial.step(0, {"layer.weight": [3.0, 12.0]})
    (outcome,) = trial.outcomes($name(bound=bound))
    assert isinstance(outcome, answer)
""")

BUILT_IN_PAGE: Final = Template("""# $name

Detects weights whose norm is above a bound.

[Parameters and packs](../reference/rules.md#$anchor)

## Why

Large weights make the outputs and the gradients of a model large.

## How it decides

The norm is the square root of the sum of squares of a saved weight. The rule reports the largest
norm above `bound`.

## Known false alarms

None is known.

## Example

```sh
stepwatch evaluate <run> --rule $name
```

> layer.weight: the norm 12.4 is above 12

## Source

Stepwatch.
""")
