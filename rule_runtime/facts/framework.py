"""The framework that trains the model of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from hook_layer.frameworks import FRAMEWORKS, TORCH, Advice, Framework

if TYPE_CHECKING:  # commands start without numpy
    from hook_layer.format.collections_file import CollectionEntry
    from rule_runtime.trial.step_view import StepView

__all__ = ["advice_of", "framework_of", "framework_of_collections"]


def advice_of(step: StepView) -> Advice:
    """Return how a script provides missing data with the run's framework."""
    return framework_of(step).facts.advice


def framework_of(step: StepView) -> Framework:
    """Return the framework from the collections of its hook; PyTorch if they are unknown."""
    files = (step.collections_file(worker) for worker in step.workers)
    collections = (file.collections for file in files if file is not None)
    return framework_of_collections(next(collections, {}))


def framework_of_collections(collections: Mapping[str, CollectionEntry]) -> Framework:
    """Return the framework from the collections of a file; PyTorch if there are none."""
    losses = collections.get("losses")
    patterns = () if losses is None else losses.include_regex
    found = (each for each in FRAMEWORKS if each.facts.wrote(collections.keys(), patterns))
    return next(found, TORCH)
