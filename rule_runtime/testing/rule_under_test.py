"""The rule under test, with its healthy and sick runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

import numpy as np

from hook_layer.storage.base import Store
from rule_runtime.engine.rule import Rule
from rule_runtime.testing.rule_runs import (
    RunOfWorker,
    SavedStep,
    Tensors,
    healthy_tensors,
    sick_tensors,
    write_run,
)
from rule_runtime.testing.trial_builder import TrialBuilder

__all__ = ["RuleUnderTest"]

_NUM_STEPS: Final = 40
_INTERVAL: Final = 5
_START_TIME: Final = 1.5e9
"""Seconds; a step of the default run takes one second."""


class RuleUnderTest:
    """The rule, and runs to test it; you must override only `make_rule`.

    Attributes:
        least_workers: Minimum number of workers that the rule needs.
    """

    least_workers: ClassVar[int] = 1

    def make_rule(self) -> Rule:
        """Return the rule; its parameters must accept a healthy run and detect a sick one.

        It is called for every evaluation, as in a new process.

        Raises:
            NotImplementedError: If it is not overridden.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must override make_rule(self) and return the rule that is to "
            "be tried, such as MyRule(threshold=2.0)"
        )

    def make_tensors(self, step: int, worker: int) -> Tensors:
        """Return the tensors of a healthy training step, including all that the rule needs."""
        return healthy_tensors(step, worker)

    def make_sick(self, tensors: dict[str, Any]) -> Tensors:
        """Return the tensors of a sick step, made from those of a healthy one.

        Args:
            tensors: A copy of the healthy tensors.
        """
        return sick_tensors(tensors)

    def make_steps(self, worker: int) -> Iterable[SavedStep]:
        """Return the steps of a worker in a healthy run, in order.

        Override it if modes other than TRAIN, or the times of steps, matter. Steps are numbered
        across all modes.
        """
        for step in range(0, _NUM_STEPS * _INTERVAL, _INTERVAL):
            yield SavedStep(step, self.make_tensors(step, worker), time=_START_TIME + step)

    def make_sick_steps(self, worker: int) -> Iterable[SavedStep]:
        """Return the steps of a worker in a sick run, in order.

        Override it if the fault depends on the step, the mode or the worker.
        """
        for saved in self.make_steps(worker):
            yield saved._replace(tensors=self.make_sick(dict(saved.tensors)))

    def make_frozen(self) -> Tensors:
        """Return the frozen parameters for every step: constant weights without gradients.

        Return an empty dict if the rule detects constant tensors.
        """
        return {"Net_frozen.weight": np.full(4, 0.5), "Net_frozen.bias": np.full(2, 0.5)}

    def make_collections(self) -> Mapping[str, tuple[str, ...]]:
        """Return the regular expressions of the run's collections files; empty for no files."""
        return {}

    def make_store(self) -> Store | None:
        """Return an empty store for a run; None for one in memory."""
        return None

    def build(
        self,
        run_of: RunOfWorker | None = None,
        *,
        num_workers: int = 1,
        run: str | None = "run-1",
        save_values: bool = True,
    ) -> TrialBuilder:
        """Return the trial of a run.

        Args:
            run_of: Returns the steps of each worker; by default `make_steps`.
            num_workers: Number of workers.
            run: RunId; None for files in the original client's format.
            save_values: False to save only statistics.
        """
        return write_run(
            run_of or self.make_steps,
            num_workers=num_workers,
            collections=self.make_collections(),
            store=self.make_store(),
            run=run,
            save_values=save_values,
        )
