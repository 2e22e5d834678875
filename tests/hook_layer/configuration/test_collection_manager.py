"""Which collections are due at a step, and what is saved and shown of a tensor."""

from __future__ import annotations

from typing import Any

import pytest

from hook_layer.capture.reductions import ReductionConfig
from hook_layer.configuration.collection_manager import CollectionManager, SummaryPlan, TensorPlan
from hook_layer.configuration.collections import SCALARS, Collection, CollectionKeys
from hook_layer.configuration.save_config import SaveConfig
from hook_layer.errors import HookConfigurationError
from hook_layer.format.collections_file import parse_collections
from hook_layer.format.modes import ModeKeys

RAW = ReductionConfig(save_raw_tensor=True)


def manager(
    *collections: Collection, include: tuple[str, ...] | None = None, **more: Any
) -> CollectionManager:
    names = tuple(c.name for c in collections)
    return CollectionManager(
        collections={c.name: c for c in collections},
        include=set(names if include is None else include),
        save_config=SaveConfig(save_interval=10),
        built_in=frozenset((CollectionKeys.GRADIENTS, CollectionKeys.LOSSES, CollectionKeys.ALL)),
        **{"reduction_config": RAW, **more},
    )


def test_only_included_collections_are_due_at_their_steps() -> None:
    colls = manager(
        Collection("often", ["a"], save_config=SaveConfig(save_interval=2)),
        Collection("rare", ["b"]),
        Collection("never", ["c"]),
        include=("often", "rare"),
    )
    due = {step: [c.name for c in colls.due(ModeKeys.TRAIN, step)] for step in (0, 1, 2, 10)}
    assert due == {0: ["often", "rare"], 1: [], 2: ["often"], 10: ["often", "rare"]}


def test_all_means_every_collection() -> None:
    colls = manager(Collection("all", [".*"]), Collection("x", ["x"]), include=("all",))
    assert len(colls.due(ModeKeys.TRAIN, 0)) == 2


def test_gradients_are_not_due_outside_of_training() -> None:
    colls = manager(Collection("gradients", ["^gradient"]), Collection("losses", ["loss"]))
    for mode in (ModeKeys.EVAL, ModeKeys.PREDICT):
        assert [c.name for c in colls.due(mode, 0)] == ["losses"]
    for mode in (ModeKeys.TRAIN, ModeKeys.GLOBAL):
        assert len(colls.due(mode, 0)) == 2


def test_a_tensors_plan_is_the_union_of_its_due_collections() -> None:
    colls = manager(
        Collection("means", ["w"], reduction_config=ReductionConfig(["mean"], abs_norms=["l1"])),
        Collection("more", ["w"], reduction_config=ReductionConfig(["mean", "max"])),
        Collection("raw", tensor_names=["w2"]),
    )
    due = colls.due(ModeKeys.TRAIN, 0)
    reductions = (("mean", False), ("l1", True), ("max", False))
    assert colls.plan("w1", due) == TensorPlan(raw=False, reductions=reductions)
    assert colls.plan("w2", due) == TensorPlan(raw=True, reductions=reductions)
    assert colls.plan("v", due) is None
    assert colls.plan("v2", due, member_of=("raw",)) == TensorPlan(raw=True)


def test_losses_are_saved_as_they_are() -> None:
    losses = Collection("losses", ["loss"], reduction_config=ReductionConfig(["mean"]))
    colls = manager(losses)
    assert colls.plan("loss", colls.due(ModeKeys.TRAIN, 0)) == TensorPlan(raw=True)


def test_seen_names_are_in_the_file_also_of_collections_that_are_not_due() -> None:
    colls = manager(
        Collection("often", ["w"], save_config=SaveConfig(save_interval=1)),
        Collection("rare", ["w"]),
    )
    colls.plan("w1", colls.due(ModeKeys.TRAIN, 1))
    colls.set_num_workers(3)
    file = parse_collections(colls.to_file().encode(), file="test")
    assert file.num_workers == 3
    assert file.collections["often"].tensor_names == ("w1",)
    assert file.collections["rare"].tensor_names == ("w1",)
    save_config = file.collections["rare"].save_config
    assert save_config is not None
    assert save_config["TRAIN"]["save_interval"] == 10


def test_collections_added_later_count_from_then_on() -> None:
    colls = manager(Collection("losses", ["loss"]), include=("losses", "x"))
    colls.get("x")
    with pytest.raises(ValueError, match="Collection x has not been configured"):
        colls.due(ModeKeys.TRAIN, 0)
    colls.get("x").include("x")
    assert len(colls.due(ModeKeys.TRAIN, 0)) == 2
    colls.get("losses").include("metric")
    assert colls.plan("my_metric", colls.due(ModeKeys.TRAIN, 0)) is not None


def test_a_reported_mistake_costs_no_other_collection() -> None:
    colls = manager(Collection("mine", ["w"]), Collection("b"))
    mistakes: list[HookConfigurationError] = []
    for _ in range(2):
        due = colls.due(ModeKeys.TRAIN, 0, mistakes.append)
        assert [collection.name for collection in due] == ["mine"]
    assert [str(mistake).split()[1] for mistake in mistakes] == ["b"]
    colls.get("b").add_tensor_name("w")
    assert [c.name for c in colls.due(ModeKeys.TRAIN, 0, mistakes.append)] == ["mine", "b"]
    assert len(mistakes) == 1


# TensorBoard --------------------------------------------------------------------------------------


def plan(name: str, *collections: Collection) -> TensorPlan:
    colls = manager(*collections, reduction_config=ReductionConfig(), has_summaries=True)
    found = colls.plan(name, colls.due(ModeKeys.TRAIN, 0))
    assert found is not None
    return found


MINE, OTHER = Collection("mine", ["w"]), Collection("other", ["x"])
OFF = Collection("off", ["w"], save_histogram=False)
EVERYTHING, WEIGHTS = Collection("all", [".*"]), Collection("weights", ["w"])
NUMBER = SummaryPlan(scalar=True)


@pytest.mark.parametrize(
    ("name", "collections", "expected"),
    [
        ("w", [MINE, OTHER, OFF], SummaryPlan(histograms=("mine",))),
        ("w", [OFF], None),
        *(("a", [Collection(of_scalars, ["a"])], NUMBER) for of_scalars in sorted(SCALARS)),
        ("a", [Collection(CollectionKeys.TENSORFLOW_SUMMARIES, ["a"])], None),
        ("w", [EVERYTHING, WEIGHTS], SummaryPlan(histograms=("weights",))),
        ("x", [EVERYTHING, WEIGHTS], SummaryPlan(histograms=("all",))),
    ],
)
def test_collections_decide_what_tensorboard_shows(
    name: str, collections: list[Collection], expected: SummaryPlan | None
) -> None:
    assert plan(name, *collections).summaries == expected


def test_a_histogram_needs_no_raw_value() -> None:
    found = plan("w", WEIGHTS, Collection("raw", ["v"], reduction_config=RAW))
    assert found == TensorPlan(raw=False, summaries=SummaryPlan(histograms=("weights",)))
