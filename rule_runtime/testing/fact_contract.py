"""Tests which facts a framework's hook saves for rules.

```python
class TestFactsOfMyFramework(MyTraining, FactContract):
    missing_facts = {"sample weights": "the loss gets none"}
```

The training is that of a `HookContract`; it must be a classifier. The results form a table with one
row per framework.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import ClassVar, Final

import pytest

from hook_layer.format.modes import ModeKeys
from hook_layer.testing.contract_training import ContractTraining
from rule_runtime.configuration.packs import find_pack
from rule_runtime.facts.last_layers import last_layers
from rule_runtime.facts.losses import Input, Loss, Losses, LossKind, described
from rule_runtime.facts.saved_tensors import largest_count
from rule_runtime.facts.weight_movement import tree_rate
from rule_runtime.trial.step_index import list_index_files, load_step_files
from rule_runtime.trial.step_view import StepReader, StepView

__all__ = ["FACTS", "FactContract"]


def _loss(step: StepView) -> Loss | None:
    """Return the loss with the most known facts."""
    losses = step.fact(Losses).losses
    return max(losses, key=lambda loss: loss.outputs is not None, default=None)


def _known(step: StepView, regex: str) -> Input | None:
    """Return the statistics of the first tensor that matches a name."""
    return next(iter(described(step.tensors(regex=(regex,))).values()), None)


def _outputs(step: StepView) -> Input | None:
    loss = _loss(step)
    return _known(step, "^predictions$") if loss is None or not loss.outputs else loss.outputs


def _targets(step: StepView) -> Input | None:
    loss = _loss(step)
    return _known(step, "^labels$") if loss is None or not loss.targets else loss.targets


def _kind(step: StepView) -> bool:
    loss = _loss(step)
    is_known = loss is not None and loss.kind is not LossKind.UNKNOWN
    return is_known or _known(step, "^hyperparameters/objective$") is not None


def _num_classes(step: StepView) -> bool:
    loss = _loss(step)
    is_known = loss is not None and loss.num_classes is not None
    return is_known or _known(step, "^hyperparameters/num_class$") is not None


def _learning_rate(step: StepView) -> bool:
    return tree_rate(step) is not None or largest_count(step, "learning_rate") is not None


FACTS: Final[Mapping[str, Callable[[StepView], bool]]] = {
    "value of the loss": lambda step: (loss := _loss(step)) is not None and isfinite(loss.value),
    "kind of the loss": _kind,
    "outputs, after the last activation": lambda step: _outputs(step) is not None,
    "last layer before the loss": lambda step: bool(last_layers(step)),
    "targets": lambda step: _targets(step) is not None,
    "range of targets": lambda step: (of := _targets(step)) is not None and of.low < of.high,
    "number of classes": _num_classes,
    "sample weights": lambda step: _known(step, r"Loss_input_2$") is not None,
    "inputs of the model": lambda step: (
        _known(step, r"^(inputs|input_values|\w+_input_0)$") is not None
    ),
    "weights": lambda step: len(step.tensors(collections=("weights",))) > 0,
    "gradients": lambda step: len(step.tensors(collections=("gradients",))) > 0,
    "norms of gradients before and after clipping": lambda step: (
        largest_count(step, "gradient_norm_at_step") is not None
    ),
    "learning rate": _learning_rate,
    "optimizer steps": lambda step: largest_count(step, "backward_passes_since") is not None,
    "loss of validation": lambda step: (
        step.mode is ModeKeys.EVAL or _known(step, "^validation-") is not None
    ),
}
"""Facts of a run for rules, and a function that tests whether a step shows each."""


class FactContract(ContractTraining):
    """Trains with the collections of the pack `recommended`, and checks which facts the steps show.

    Attributes:
        missing_facts: Facts that the hook does not provide, with the reason.
        num_evaluations: Number of validation steps in the training.
    """

    missing_facts: ClassVar[Mapping[str, str]] = {}
    num_evaluations: ClassVar[int] = 2
    _stored: ClassVar[dict[type, list[StepView]]] = {}

    @pytest.mark.parametrize("fact", FACTS)
    def test_a_fact_is_known(self, fact: str) -> None:
        reason = self.missing_facts.get(fact)
        assert any(map(FACTS[fact], self._steps())) == (reason is None)
        if reason is not None:
            pytest.skip(reason)

    def _steps(self) -> list[StepView]:
        """Return the steps of one training for all tests of the class."""
        if type(self) not in self._stored:
            self._stored[type(self)] = self._saved_steps()
        return self._stored[type(self)]

    def _saved_steps(self) -> list[StepView]:
        pack = find_pack("recommended").with_interval(1)
        hook = self.new_hook(include_collections=[config.name for config in pack.collections()])
        store = self.trained(hook, steps=6, evaluations=self.num_evaluations).store
        reader = StepReader(store)
        files = load_step_files(store, [key for key, _ in list_index_files(store)])
        return [reader.view(file.step, [file], num_workers=1) for file in files]
