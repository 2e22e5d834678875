"""What is saved in a step, and what of a tensor."""

from __future__ import annotations

from typing import Any

import pytest

from hook_layer.configuration.collection_manager import CollectionManager, TensorPlan
from hook_layer.configuration.collections import Collection
from hook_layer.configuration.save_config import SaveConfig, SaveConfigMode
from hook_layer.core.collector import Collector
from hook_layer.core.events import CollectionsResolve, Events
from hook_layer.format.modes import ModeKeys
from hook_layer.guard import FailureLog

TRAIN, EVAL = ModeKeys.TRAIN, ModeKeys.EVAL


class CountedManager(CollectionManager):
    """Counts how often it looks at all collections."""

    num_looks = 0

    def due(self, *arguments: Any) -> tuple[Collection, ...]:
        self.num_looks += 1
        return super().due(*arguments)


def make_collector(*collections: Collection, interval: int = 10, **options: Any) -> Collector:
    manager = CountedManager(
        collections={each.name: each for each in collections},
        include={each.name for each in collections},
        save_config=SaveConfig(save_interval=interval),
    )
    return Collector(manager, Events(FailureLog()), **options)


def due(collector: Collector, step: int, mode: ModeKeys = TRAIN) -> list[str]:
    collector.begin_step(mode, step, is_first=step == 0)
    return [collection.name for collection in collector.due]


def looks(collector: Collector) -> int:
    assert isinstance(collector.manager, CountedManager)
    return collector.manager.num_looks


def weights(**arguments: Any) -> Collection:
    return Collection("weights", ["w"], **arguments)


# When --------------------------------------------------------------------------------------------


def test_a_step_without_a_saved_collection_looks_at_none() -> None:
    other = Collection("other", ["o"], save_config=SaveConfig(save_interval=4))
    collector = make_collector(weights(), other)
    found = {step: due(collector, step) for step in range(13)}
    assert {step: names for step, names in found.items() if names} == {
        0: ["weights", "other"],
        4: ["other"],
        8: ["other"],
        10: ["weights"],
        12: ["other"],
    }
    assert looks(collector) == 5


def set_on_the_collection(collector: Collector) -> None:
    collector.manager.get("weights").save_config = SaveConfig(save_interval=1)


def set_on_the_hook(collector: Collector) -> None:
    collector.manager.save_config = SaveConfig(save_interval=1)


def set_on_the_mode(collector: Collector) -> None:
    collector.manager.save_config.set_save_config(TRAIN, SaveConfigMode(save_interval=1))


def listed(collector: Collector) -> None:
    config = collector.manager.save_config.get_save_config(TRAIN)
    config.save_steps.append(3)


def included(collector: Collector) -> None:
    collector.manager.add(Collection("more", ["w"], save_config=SaveConfig(save_interval=1)))
    collector.manager.include.add("more")


@pytest.mark.parametrize(
    "change", [set_on_the_collection, set_on_the_hook, set_on_the_mode, listed, included]
)
def test_a_change_of_when_applies_to_the_next_step(change: Any) -> None:
    collector = make_collector(weights())
    assert due(collector, 0)
    assert not due(collector, 2)
    change(collector)
    assert due(collector, 3)


def test_a_pattern_that_is_added_applies_to_the_next_saved_step() -> None:
    collector = make_collector(weights(), Collection("more", ["m"]))
    due(collector, 0)
    key = collector.due_key
    assert collector.plan("x") is None
    assert due(collector, 1) == []
    collector.manager.get("more").include_regex.append("x")
    due(collector, 10)
    assert collector.plan("x") is not None
    assert collector.due_key != key


def test_a_name_that_is_added_or_removed_applies_to_the_next_saved_step() -> None:
    collector = make_collector(weights(), Collection("more", ["m"]))
    due(collector, 0)
    assert collector.plan("x") is None
    collector.manager.get("more").add_tensor_name("x")
    due(collector, 10)
    assert collector.plan("x") is not None
    collector.manager.get("more").remove_tensor_name("x")
    due(collector, 20)
    assert collector.plan("x") is None


class Resolver:
    """Counts how often the tensors of collections are searched."""

    num_searches = 0

    def resolve(self, _: CollectionsResolve) -> None:
        self.num_searches += 1


def test_the_tensors_of_collections_are_searched_after_each_change_only() -> None:
    events, resolver = Events(FailureLog()), Resolver()
    events.subscribe(CollectionsResolve, resolver.resolve, "modules")
    manager = CollectionManager(
        {"weights": weights()}, {"weights"}, save_config=SaveConfig(save_interval=1)
    )
    collector, found = Collector(manager, events), []
    for step in range(8):
        if step == 3:
            manager.get("weights").include("b")
        if step == 5:
            manager.resolve_again()
        due(collector, step)
        found.append(resolver.num_searches)
    assert found == [1, 1, 1, 2, 2, 3, 3, 3]


def test_a_tensor_that_is_seen_changes_no_plan() -> None:
    collector = make_collector(weights())
    due(collector, 0)
    key = collector.due_key
    assert collector.plan("w1") is not None
    due(collector, 10)
    assert collector.due_key == key


# What --------------------------------------------------------------------------------------------


def test_a_tensor_is_planned_once_per_kind_of_step(monkeypatch: pytest.MonkeyPatch) -> None:
    collector = make_collector(weights(), interval=1)
    planned: list[str] = []
    plan = collector.manager.plan

    def noted(name: str, *arguments: Any, **options: Any) -> TensorPlan | None:
        planned.append(name)
        return plan(name, *arguments, **options)

    monkeypatch.setattr(collector.manager, "plan", noted)
    for step in range(3):
        due(collector, step)
        assert collector.planned({"w": 1, "x": 2}).keys() == {"w"}
    assert planned == ["w", "x"]


# Mistakes ----------------------------------------------------------------------------------------
