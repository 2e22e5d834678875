"""What a training is given stays as the script gave it, and nobody keeps it longer."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any
from weakref import ref

import pytest
import xgboost

from hook_layer.testing.written_trial import WrittenTrial
from hook_layer.xgboost.unchanged import add_hook
from tests.hook_layer.xgboost.boosting import Script, make_hook, matrix, train

NAMES = ("train", "other")


def given_by_iterators(data: list[xgboost.DMatrix], *callbacks: Any) -> dict[str, Any]:
    return {"evals": zip(data, NAMES, strict=True), "callbacks": iter(callbacks)}


@pytest.mark.parametrize("is_watched", [True, False])
def test_iterators_are_used_up_by_the_training_alone(trial: WrittenTrial, is_watched: bool) -> None:
    hook, data, script = make_hook(trial), [matrix(), matrix(rows=slice(50))], Script()
    source: Any = SimpleNamespace(make=lambda _: hook if is_watched else None)
    given = given_by_iterators(data, script)
    add_hook(source, ({}, data[0]), given)
    assert list(given["evals"]) == list(zip(data, NAMES, strict=True))
    assert list(given["callbacks"]) == [script, hook][: 1 + is_watched]


def test_a_later_training_has_its_iterators(trial: WrittenTrial) -> None:
    hooks = [make_hook(trial), make_hook(trial)]
    made = iter(hooks)
    source: Any = SimpleNamespace(make=lambda _: next(made))
    data, script = [matrix(), matrix(rows=slice(50))], Script()
    for hook in hooks:
        given = given_by_iterators(data, script)
        add_hook(source, ({}, data[0]), given)
        assert list(given["evals"]) == list(zip(data, NAMES, strict=True))
        assert list(given["callbacks"]) == [script, hook]


def test_what_was_not_given_stays_away(trial: WrittenTrial) -> None:
    source: Any = SimpleNamespace(make=lambda _: None)
    given: dict[str, Any] = {"evals": None}
    add_hook(source, ({}, matrix()), given)
    assert given == {"evals": None}


def test_data_is_released_after_the_training(trial: WrittenTrial) -> None:
    data, other = matrix(), matrix(rows=slice(50))
    hook = make_hook(trial, "predictions", train_data=data, validation_data=other)
    train(hook, data=data, evals=[(data, "train"), (other, "other")])
    assert "predictions" in trial.names(3)
    known = ref(data), ref(other)
    del data, other
    gc.collect()
    assert [each() for each in known] == [None, None]


def test_in_a_block_data_serves_all_trainings(trial: WrittenTrial) -> None:
    data = matrix()
    with make_hook(trial, "predictions", validation_data=data) as hook:
        train(hook, data=data)
        train(hook, data=data)
        assert hook.validation_data is data
    assert "predictions" in trial.names(7)
    assert hook.validation_data is None
