"""The tensors that a rule of the original client requires at a step."""

from __future__ import annotations

from collections.abc import Iterable, KeysView, ValuesView
from typing import TYPE_CHECKING

from rule_runtime.trial.errors import TensorUnavailable, TensorUnavailableForStep

if TYPE_CHECKING:
    from rule_runtime.trial.tensor import Tensor
    from rule_runtime.trial.trial import Trial

__all__ = ["RequiredTensors", "RequiredTensorsForTrial"]


class RequiredTensorsForTrial:
    """The tensors of one trial that a rule needs."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self._tensor_steps: dict[str, list[int]] = {}
        self._tensors: dict[str, Tensor] = {}

    def add(self, name: str, steps: Iterable[int], should_match_regex: bool = False) -> None:
        """Require a tensor at some steps.

        Args:
            name: Name of the tensor, or a regular expression.
            steps: Global steps; several calls for a tensor accumulate.
            should_match_regex: True for a regular expression, which may match no tensor.

        Raises:
            TensorUnavailable: If no tensor has the name.
        """
        names = self.trial.tensor_names(regex=[name]) if should_match_regex else [name]
        wanted = list(steps)
        for found in names:
            if not self.trial.has_tensor(found):
                raise TensorUnavailable(found)
            known = self._tensor_steps.setdefault(found, [])
            known += [step for step in wanted if step not in known]
            self._tensors[found] = self.trial.tensor(found)

    def get_tensor_steps(self, name: str) -> list[int]:
        """Return the steps at which a tensor is required.

        Raises:
            KeyError: If it is not required.
        """
        return self._tensor_steps[name]

    def get_names(self) -> KeysView[str]:
        """Return the names of the required tensors."""
        return self._tensor_steps.keys()

    def get(self) -> ValuesView[Tensor]:
        """Return the required tensors."""
        return self._tensors.values()

    def clear(self) -> None:
        """Remove all requirements."""
        self._tensor_steps.clear()
        self._tensors.clear()

    def fetch(self) -> None:
        """Wait until the required steps can be read, and check that the tensors were saved.

        It reads no values. The rule reads them on use, or not at all if statistics suffice.

        Raises:
            StepUnavailable: If a step was passed without being saved.
            NoMoreData: If the training ended before a step.
            TensorUnavailableForStep: If no data of a tensor was saved at a step.
        """
        self.trial.wait_for_steps(
            sorted({s for steps in self._tensor_steps.values() for s in steps})
        )
        for name, steps in self._tensor_steps.items():
            saved = set(self._tensors[name].steps(show_incomplete_steps=True))
            for step in steps:
                if step not in saved:
                    raise TensorUnavailableForStep(name, step)


class RequiredTensors:
    """The tensors that a rule needs, by trial; see `RequiredTensorsForTrial` for the methods.

    Args:
        base_trial: The default trial.
        other_trials: The further trials of the rule.
    """

    def __init__(self, base_trial: Trial, other_trials: Iterable[Trial] | None) -> None:
        self.base_trial = base_trial
        trials = [base_trial, *(other_trials or ())]
        self._per_trial = {trial: RequiredTensorsForTrial(trial) for trial in trials}

    def add(
        self,
        name: str,
        steps: Iterable[int],
        trial: Trial | None = None,
        should_match_regex: bool = False,
    ) -> None:
        """Require a tensor, or all whose names match, at some global steps of a trial."""
        self._of(trial).add(name, steps, should_match_regex=should_match_regex)

    def get_tensor_steps(self, name: str, trial: Trial | None = None) -> list[int]:
        """Return the steps at which a tensor of a trial is required."""
        return self._of(trial).get_tensor_steps(name)

    def get_names(self, trial: Trial | None = None) -> KeysView[str]:
        """Return the names of the required tensors of a trial."""
        return self._of(trial).get_names()

    def get(self, trial: Trial | None = None) -> ValuesView[Tensor]:
        """Return the required tensors of a trial."""
        return self._of(trial).get()

    def clear(self) -> None:
        """Remove all requirements of all trials."""
        for required in self._per_trial.values():
            required.clear()

    def fetch(self) -> None:
        """Wait for the requirements of every trial, and check that they were saved."""
        for required in self._per_trial.values():
            required.fetch()

    def _of(self, trial: Trial | None) -> RequiredTensorsForTrial:
        wanted = self.base_trial if trial is None else trial
        if wanted not in self._per_trial:
            raise ValueError(
                f"{wanted!r} is no trial of this rule: give it to Rule.__init__ in other_trials"
            )
        return self._per_trial[wanted]
