"""What keeps gradients from parameters, as the hook found it in the first saved steps of a run."""

from __future__ import annotations

from rule_runtime.trial.step_view import StepView

__all__ = ["stopped_by"]


def stopped_by(step: StepView, parameter: str = "", worker: str = "") -> str | None:
    """Return what stops the gradient of a parameter, in words; None if unknown.

    By default, return what stops most gradients of any worker.
    """
    files = map(step.collections_file, (worker,) if worker else step.workers)
    stops = [stop for file in files if file is not None for stop in file.gradient_stops.items()]
    known = [(len(names), text) for text, names in stops if not parameter or parameter in names]
    return max(known, key=lambda stop: stop[0])[1] if known else None
