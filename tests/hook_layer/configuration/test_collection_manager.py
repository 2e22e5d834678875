from __future__ import annotations

from collections.abc import Iterable

import pytest

from hook_layer.capture.reductions import ReductionConfig
from hook_layer.configuration.collection_manager import (
    CollectionManager,
    OnMistake,
    SummaryPlan,
    TensorPlan,
)
from hook_layer.configuration.collections import SCALARS, Collection, CollectionKeys
from hook_layer.configuration.save_config import SaveConfig
from hook_layer.errors import HookConfigurationError
from hook_layer.format.modes import ModeKeys

RAW = ReductionConfig(save_raw_tensor=True)


def plan(name: str, *collections: Collection, has_summaries: bool = True) -> TensorPlan | None:
    manager = CollectionManager(
        collections={c.name: c for c in collections},
        include={c.name for c in collections},
        save_config=SaveConfig(save_interval=1),
        reduction_config=ReductionConfig(),
        has_summaries=has_summaries,
    )
    return manager.plan(name, manager.due(ModeKeys.TRAIN, 0))


def summaries(name: str, *collections: Collection) -> SummaryPlan | None:
    found = plan(name, *collections)
    assert found is not None
    return found.summaries


def test_histograms_are_planned_where_a_collection_asks() -> None:
    mine = Collection("mine", ["w"])
    off = Collection("off", ["w"], save_histogram=False)
    assert summaries("w", mine, Collection("other", ["x"]), off) == SummaryPlan(
        histograms=("mine",)
    )
    assert summaries("w", off) is None


@pytest.mark.parametrize("name", sorted(SCALARS))
def test_collections_of_scalars_are_shown_as_numbers_only(name: str) -> None:
    assert summaries("a", Collection(name, ["a"])) == SummaryPlan(scalar=True)


def test_summaries_of_tensorflow_have_no_histograms() -> None:
    assert summaries("a", Collection(CollectionKeys.TENSORFLOW_SUMMARIES, ["a"])) is None


def test_everything_is_named_only_where_nothing_else_is() -> None:
    everything, weights = Collection("all", [".*"]), Collection("weights", ["w"])
    assert summaries("w", everything, weights) == SummaryPlan(histograms=("weights",))
    assert summaries("x", everything, weights) == SummaryPlan(histograms=("all",))


def test_a_histogram_needs_no_raw_value() -> None:
    found = plan("w", Collection("weights", ["w"]), Collection("raw", ["v"], reduction_config=RAW))
    assert found == TensorPlan(raw=False, summaries=SummaryPlan(histograms=("weights",)))


# Mistakes -----------------------------------------------------------------------------------------


def made(*collections: Collection, include: Iterable[str] = ("mine",)) -> CollectionManager:
    return CollectionManager(
        collections={c.name: c for c in collections},
        include=set(include),
        save_config=SaveConfig(save_interval=1),
    )


def due(manager: CollectionManager, on_mistake: OnMistake | None = None) -> list[str]:
    return [collection.name for collection in manager.due(ModeKeys.TRAIN, 0, on_mistake)]


def test_a_reported_mistake_costs_no_other_collection() -> None:
    manager = made(Collection("mine", ["w"]), Collection("b"), include=("mine", "b"))
    mistakes: list[HookConfigurationError] = []
    assert due(manager, mistakes.append) == due(manager, mistakes.append) == ["mine"]
    assert [str(mistake).split()[1] for mistake in mistakes] == ["b"]
    manager.get("b").add_tensor_name("w")
    assert due(manager) == ["mine", "b"]
    assert len(mistakes) == 1
