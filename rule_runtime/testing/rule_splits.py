"""Tests that any split of a run into calls gives the same result; needs hypothesis."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from typing import Final

from hypothesis import example, given, settings
from hypothesis import strategies as st

from rule_runtime.testing.rule_evaluations import MakeRule, in_calls
from rule_runtime.testing.rule_runs import views_by_step
from rule_runtime.testing.trial_builder import TrialBuilder
from rule_runtime.trial.step_view import StepView

__all__ = ["check_any_split"]

_NUM_EXAMPLES: Final = 12
_MAX_STRETCHES: Final = 6


def check_any_split(runs: Mapping[str, TrialBuilder], make_rule: MakeRule) -> None:
    """Assert that calls with the state as JSON in between give the outcomes of one call.

    Parts of several runs are joined and evaluated as one run.

    Args:
        runs: The runs by name, one of them `sick`; all have the same step numbers.
        make_rule: Returns the rule; called for each call.
    """
    views_of = {name: views_by_step(run) for name, run in runs.items()}
    steps = sorted(set(chain.from_iterable(views_of.values())))
    stretch = st.tuples(st.sampled_from(sorted(runs)), st.integers(1, len(steps)))
    stretches_of = st.lists(stretch, min_size=1, max_size=_MAX_STRETCHES)

    every_step = set(range(1, len(steps)))

    @settings(max_examples=_NUM_EXAMPLES, deadline=None, database=None)
    @example([("sick", len(steps))], every_step)
    @given(stretches_of, st.sets(st.sampled_from(sorted(every_step)), min_size=1))
    def check(stretches: list[tuple[str, int]], cuts: set[int]) -> None:
        names = chain.from_iterable([name] * length for name, length in stretches)
        views: list[Callable[[], StepView]] = [
            views_of[name][step]
            for step, name in zip(steps, names, strict=False)
            if step in views_of[name]
        ]
        inside = sorted(cut for cut in cuts if cut < len(views))
        assert in_calls(views, inside, make_rule) == in_calls(views, [], make_rule)

    check()
