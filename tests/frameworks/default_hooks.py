"""Tests what the hooks of `stepwatch` save in a framework, with and without configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

import pytest

from hook_layer.configuration.configuration_file import ConfigurationFile
from hook_layer.configuration.hook_json import parse_hook_configuration
from hook_layer.core.hook import BaseHook
from hook_layer.format.modes import ModeKeys
from hook_layer.testing.contract_training import ContractTraining, new_uri
from hook_layer.testing.written_trial import WrittenTrial
from rule_runtime.embedded.hook_configuration import hook_configuration

__all__ = ["DefaultHookContract"]

_STEPS: Final = 62
"""Beyond the dense start and the next multiple of the interval."""
_FEW_STEPS: Final = 11
"""Enough for the first two multiples of the interval."""
_DENSE: Final = (*range(11), *range(12, 51, 2), 60)
"""The steps of training that are saved."""

Saved = tuple[dict[str, Any], dict[int, tuple[ModeKeys, frozenset[str]]]]


def saved(trial: WrittenTrial) -> Saved:
    """Return the collections, and mode and tensors of each step."""
    collections = {name: vars(of) for name, of in trial.collections().collections.items()}
    indexes = trial.indexes()
    return collections, {s: (indexes[s].mode, frozenset(trial.names(s))) for s in indexes}


class DefaultHookContract(ContractTraining):
    """Compares hooks of `stepwatch` with those of `stepwatch run` and of `hook_layer`.

    Attributes:
        default_type: The hook or callback of `stepwatch`.
        num_evaluations: Number of validation steps in the training.
    """

    default_type: ClassVar[Callable[..., Any]]
    num_evaluations: ClassVar[int] = 3

    def default_hook(self, **arguments: Any) -> BaseHook:
        made = self.default_type(new_uri(), **arguments)
        hook = made if isinstance(made, BaseHook) else made.hook
        assert isinstance(hook, self.hook_type)
        return hook

    def saved_by(self, hook: BaseHook, steps: int = _STEPS) -> Saved:
        return saved(self.trained(hook, steps=steps, evaluations=self.num_evaluations))

    def test_without_configuration_it_saves_what_run_saves(self) -> None:
        document = {**hook_configuration("recommended"), "LocalPath": new_uri()}
        configuration = parse_hook_configuration(ConfigurationFile(document, "run"))
        of_run = self.saved_by(self.hook_type(configuration=configuration))  # type: ignore[call-arg]
        collections, steps = self.saved_by(self.default_hook())
        assert collections == of_run[0], (collections, of_run[0])
        assert steps == of_run[1], (steps, of_run[1])
        trained = {s for s, (mode, _) in steps.items() if mode is not ModeKeys.EVAL}
        assert trained.issuperset(_DENSE)  # XGBoost saves its metrics in each round

    @pytest.mark.parametrize(
        "arguments",
        [{"include_collections": []}, {"include_collections": ["gradients"]}, {"save_all": True}],
    )
    def test_configured_collections_are_exact(self, arguments: dict[str, Any]) -> None:
        original = self.hook_type(new_uri(), **arguments)
        found = self.saved_by(self.default_hook(**arguments), _FEW_STEPS)
        assert found == self.saved_by(original, _FEW_STEPS)
