"""The rules judge what the hook saves when it is configured for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from hook_layer.keras import KerasHook
from rule_runtime.configuration.packs import PACKS
from rule_runtime.engine.evaluator import Evaluation
from rule_runtime.engine.registry import create_rule
from tests.frameworks.stored_views import views_of

JUDGE = {"DeadRelu", "ExplodingTensor", "LossNotDecreasing", "Overfit", "VanishingGradient"}


def train(folder: Path, learning_rate: float, data: str = "sound") -> Path:
    """Train with a hook that a file configures for the recommended rules."""
    collections = (
        PACKS["recommended"]
        .with_interval(1)
        .collections_for([*PACKS["recommended"].rules().values(), *map(create_rule, sorted(JUDGE))])
    )
    configuration = {
        "LocalPath": str(folder / "trial"),
        "CollectionConfigurations": [
            {"CollectionName": of.name, "CollectionParameters": dict(of.parameters)}
            for of in collections
        ],
    }
    folder.mkdir()
    (folder / "hook.json").write_text(json.dumps(configuration))
    hook = KerasHook.create_from_json_file(folder / "hook.json")
    keras.backend.clear_session(free_memory=False)
    keras.utils.set_random_seed(0)
    layers = [
        keras.layers.Dense(16, activation="relu", name="hidden"),
        keras.layers.Dense(3, name="head"),
    ]
    random = np.random.default_rng(0)
    rows = random.normal(size=(400, 8)).astype(np.float32)
    labels = rows[:, :3].argmax(axis=1)
    if data == "leak":
        rows = np.column_stack([rows, labels * 3 + 1]).astype(np.float32)
    if data in ("unscaled", "normalised"):
        rows = rows * 200 + 900
    if data == "normalised":
        layers.insert(0, keras.layers.BatchNormalization())
    model = keras.Sequential([keras.Input((rows.shape[1],)), *layers])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(learning_rate), loss, metrics=["accuracy"])
    held = rows[-80:], labels[-80:]
    options: Any = {"batch_size": 16, "verbose": 0, "validation_data": held}
    model.fit(rows[:320], labels[:320], epochs=3, callbacks=[hook], **options)
    hook.close()
    assert not hook.report().errors
    return folder / "trial"


def judged(path: Path) -> dict[str, Evaluation]:
    rules = {**PACKS["recommended"].rules(), **{name: create_rule(name) for name in JUDGE}}
    evaluations = {name: Evaluation.fresh(rule) for name, rule in rules.items()}
    for view in views_of(path):
        for evaluation in evaluations.values():
            evaluation.feed(view)
    return evaluations


def test_a_sound_training_passes(tmp_path: Path) -> None:
    evaluations = judged(train(tmp_path / "sound", 0.1))
    unjudged = {
        name: e.counts.last_reason for name, e in evaluations.items() if not e.counts.evaluated
    }
    assert not unjudged.keys() & {*JUDGE, "InputStatistics", "SuspiciouslyGood"}
    assert not [name for name, e in evaluations.items() if e.counts.failure]
    assert not {name: e.evidence for name, e in evaluations.items() if e.evidence}


@pytest.mark.parametrize(
    ("data", "rule", "reported"),
    [
        ("leak", "SuspiciouslyGood", "inputs: column 8 predicts the target labels"),
        ("unscaled", "InputStatistics", "inputs: has a root mean square of "),
    ],
)
def test_faulty_inputs_are_found(data: str, rule: str, reported: str, tmp_path: Path) -> None:
    evaluations = judged(train(tmp_path / "faulty", 1e-3, data))
    evidence = evaluations[rule].evidence
    assert evidence is not None
    assert reported in evidence.sentence


def test_normalised_inputs_pass(tmp_path: Path) -> None:
    evaluations = judged(train(tmp_path / "sound", 0.01, "normalised"))
    judging = {"InputStatistics", "SuspiciouslyGood"}
    assert not {name: evaluations[name].evidence for name in judging if evaluations[name].evidence}
    assert evaluations["SuspiciouslyGood"].counts.evaluated
    assert not evaluations["InputStatistics"].counts.evaluated


def test_a_learning_rate_that_is_far_too_high_is_found(tmp_path: Path) -> None:
    evaluations = judged(train(tmp_path / "wild", 1e30))
    assert {name for name, e in evaluations.items() if e.evidence} >= {"ExplodingTensor"}
