"""Rules compare validation by `fit` with training."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest

from hook_layer.keras import KerasHook
from rule_runtime.cli.evaluation import evaluate_run
from rule_runtime.configuration.packs import PACKS
from rule_runtime.engine.evidence import Evidence
from tests.rule_runtime.recommended_hook import hook_file

FEATURES, CLASSES = 8, 3


def findings(folder: Path, *, scale: float = 1.0) -> dict[str, Evidence]:
    """Train with `validation_data` of another scale, and return what two rules find."""
    keras.backend.clear_session(free_memory=False)
    keras.utils.set_random_seed(0)
    hook = KerasHook.create_from_json_file(hook_file(folder))
    model = keras.Sequential(
        [
            keras.Input((FEATURES,)),
            keras.layers.Dense(16, activation="relu"),
            keras.layers.Dense(CLASSES, activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy")
    rows = np.random.default_rng(0).normal(size=(356, FEATURES)).astype(np.float32)
    classes = rows[:, :CLASSES].argmax(1)
    held_out = scale * rows[256:], classes[256:]
    model.fit(
        rows[:256],
        classes[:256],
        batch_size=32,
        epochs=3,
        validation_data=held_out,
        validation_batch_size=40,  # the last one is smaller
        verbose=0,
        callbacks=[hook],
    )
    hook.close()
    assert not hook.report().errors
    rules = PACKS["recommended"].rules()
    names = ("OutputContract", "InputStatistics")
    states = evaluate_run(str(folder / "run"), [(name, rules[name]) for name in names])
    assert all(state.counts.evaluated and not state.counts.failure for state in states.values())
    return {name: state.evidence for name, state in states.items() if state.evidence is not None}


@pytest.mark.parametrize(("scale", "rules"), [(1.0, set()), (50.0, {"InputStatistics"})])
def test_validation_data_of_another_scale_is_found(
    tmp_path: Path, scale: float, rules: set[str]
) -> None:
    found = findings(tmp_path, scale=scale)
    assert set(found) == rules
    for evidence in found.values():
        assert evidence.mode == "EVAL"
        assert evidence.tensor == "inputs"
        assert "scaled in another way" in evidence.sentence
