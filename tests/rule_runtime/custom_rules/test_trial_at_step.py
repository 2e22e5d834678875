"""A trial as it was at a step: which collections it knows, and how often it reads their files."""

from __future__ import annotations

import numpy as np
import pytest

from hook_layer.format.collections_file import CollectionEntry, CollectionsFile
from hook_layer.format.paths import COLLECTIONS_PREFIX, collections_key
from rule_runtime.custom_rules.trial_at_step import TrialAtStep
from rule_runtime.testing import TrialBuilder
from tests.rule_runtime.counting_store import CountingStore

ALL = (".*",)
GRADIENTS = ("^gradient",)


class Store(CountingStore):
    def take(self) -> int:
        """Return how often collections files were read since the last call."""
        count = len(self.gets(COLLECTIONS_PREFIX))
        self.reset()
        return count

    def tell(self, **collections: tuple[tuple[str, ...], tuple[str, ...]]) -> None:
        """Write the collections file: regular expressions and names by collection."""
        entries = {
            name: CollectionEntry(name, include_regex=regex, tensor_names=names)
            for name, (regex, names) in collections.items()
        }
        self.put(collections_key("worker_0"), CollectionsFile(entries).encode())


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def run(store: Store) -> TrialBuilder:
    """Five steps with a gradient and a loss."""
    builder = TrialBuilder(store)
    for step in range(5):
        builder.step(step, {"gradient/a": np.float32([step]), "loss": np.float32([1.0])})
    return builder


@pytest.mark.parametrize("patterns_of_all", [ALL, ()])
def test_collections_cost_one_read_however_many_steps(
    store: Store, run: TrialBuilder, patterns_of_all: tuple[str, ...]
) -> None:
    store.tell(gradients=(GRADIENTS, ()), all=(patterns_of_all, ("loss",)))
    first, *later = run.views()
    trial = TrialAtStep(first)
    for view in later:
        trial.go_to(view, is_next=True)
        assert trial.tensor_names(collection="gradients") == ["gradient/a"]
        assert trial.collection("gradients").tensor_names == {"gradient/a"}
        assert trial.tensor_names(collection="all") == ["gradient/a", "loss"]
    assert store.take() == 1


def test_collections_are_read_again_when_new_tensors_come(store: Store, run: TrialBuilder) -> None:
    for step in range(5, 8):
        run.step(step, {"gradient/a": [1.0], "late": [1.0]})
    store.tell(gradients=(GRADIENTS, ()), all=(ALL, ("late", "loss")))
    first, *later = run.views()
    trial = TrialAtStep(first)
    assert trial.tensor_names(collection="gradients") == ["gradient/a"]
    store.tell(gradients=(GRADIENTS, ("late",)), all=(ALL, ("late", "loss")))
    store.take()
    seen = []
    for view in later:
        trial.go_to(view, is_next=True)
        seen.append(trial.tensor_names(collection="gradients"))
    assert seen == [["gradient/a"]] * 4 + [["gradient/a", "late"]] * 3
    assert store.take() == 1


def test_collections_are_read_until_they_tell_where_each_tensor_belongs(
    store: Store, run: TrialBuilder
) -> None:
    # `hook.save_tensor(..., "gradients")` names a tensor that no file tells until it is exported.
    store.tell(gradients=(GRADIENTS, ()), all=(ALL, ()))
    views = run.views()
    trial = TrialAtStep(views[0])
    seen = []
    for view in views[1:]:
        trial.go_to(view, is_next=True)
        if view.step == 3:
            store.tell(gradients=(GRADIENTS, ("loss",)), all=(ALL, ()))
            store.take()
        seen.append(trial.tensor_names(collection="gradients"))
    assert seen == [["gradient/a"]] * 2 + [["gradient/a", "loss"]] * 2
    assert store.take() == 1


@pytest.mark.parametrize("names", [(), ("gradient/a",)])
def test_a_collection_that_is_filled_by_hand_is_read_at_each_step(
    store: Store, run: TrialBuilder, names: tuple[str, ...]
) -> None:
    known = {"gradients": (GRADIENTS, ()), "losses": (("^loss",), ())}
    before: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = (
        {"mine": ((), names)} if names else {}
    )
    store.tell(**known, **before)
    views = run.views()
    trial = TrialAtStep(views[0])
    for view in views[1:3]:
        trial.go_to(view, is_next=True)
        assert trial.tensor_names(collection="mine") == list(names)
        assert trial.tensor_names(collection="mine") == list(names)
    assert store.take() == 2
    store.tell(**known, mine=((), (*names, "loss")))
    trial.go_to(views[3], is_next=True)
    assert trial.tensor_names(collection="gradients") == ["gradient/a"]
    assert trial.collection("mine").tensor_names == {*names, "loss"}
    assert store.take() == 1


def test_collections_with_an_expression_that_is_refused_are_read_at_each_step(
    store: Store, run: TrialBuilder
) -> None:
    store.tell(gradients=(GRADIENTS, ()), slow=(("(a|aa)+$",), ()))
    first, *later = run.views()
    trial = TrialAtStep(first)
    for view in later:
        trial.go_to(view, is_next=True)
        assert trial.tensor_names(collection="gradients") == ["gradient/a"]
        assert store.take() == 1


def test_all_collections_together_are_read_at_each_step(store: Store, run: TrialBuilder) -> None:
    store.tell(gradients=(GRADIENTS, ()), losses=(("^loss",), ()))
    first, *later = run.views()
    trial = TrialAtStep(first)
    for view in later:
        trial.go_to(view, is_next=True)
        assert set(trial.collections()) == {"gradients", "losses"}
        assert store.take() == 1
