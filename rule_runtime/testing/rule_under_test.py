"""What the author of a rule says about it: how it is made, what is healthy and what is sick."""

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
"""Seconds; a step of the default run takes one."""


class RuleUnderTest:
    """The rule, and runs to try it on; only `make_rule` must be given.

    Attributes:
        least_workers: How many workers a run must have for the rule to judge it.
    """

    least_workers: ClassVar[int] = 1

    def make_rule(self) -> Rule:
        """Return the rule, with parameters that a healthy run does not violate and a sick one does.

        It is called for every call of an evaluator, as a new process would.

        Raises:
            NotImplementedError: If it is not overridden.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must override make_rule(self) and return the rule that is to "
            "be tried, such as MyRule(threshold=2.0)"
        )

    def make_tensors(self, step: int, worker: int) -> Tensors:
        """Return what a healthy run saves at a training step, all that the rule needs included."""
        return healthy_tensors(step, worker)

    def make_sick(self, tensors: dict[str, Any]) -> Tensors:
        """Return the tensors of a healthy step as a run that the rule should find saves them.

        Args:
            tensors: The tensors, a dict of its own.
        """
        return sick_tensors(tensors)

    def make_steps(self, worker: int) -> Iterable[SavedStep]:
        """Return what a worker of a healthy run saves, in step order.

        Override it where modes other than TRAIN, or the times of the steps, matter. Steps are
        numbered through all modes.
        """
        for step in range(0, _NUM_STEPS * _INTERVAL, _INTERVAL):
            yield SavedStep(step, self.make_tensors(step, worker), time=_START_TIME + step)

    def make_sick_steps(self, worker: int) -> Iterable[SavedStep]:
        """Return what a worker saves of a run that the rule should find, in step order.

        Override it where what is wrong depends on the step, the mode or the worker.
        """
        for saved in self.make_steps(worker):
            yield saved._replace(tensors=self.make_sick(dict(saved.tensors)))

    def make_frozen(self) -> Tensors:
        """Return what frozen parameters add to every step: constant weights, without gradients.

        Return nothing if tensors that do not change are just what the rule is asked for.
        """
        return {"Net_frozen.weight": np.full(4, 0.5), "Net_frozen.bias": np.full(2, 0.5)}

    def make_collections(self) -> Mapping[str, tuple[str, ...]]:
        """Return the regular expressions of the run's collections files; none for no such files."""
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
            run_of: What each worker saves; that of `make_steps` unless given.
            num_workers: How many workers write.
            run: RunId; None for files as the original client writes them.
            save_values: False to save statistics only.
        """
        return write_run(
            run_of or self.make_steps,
            num_workers=num_workers,
            collections=self.make_collections(),
            store=self.make_store(),
            run=run,
            save_values=save_values,
        )
