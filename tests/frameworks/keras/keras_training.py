"""A small Keras training, from the same seed each time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from hook_layer.keras import KerasHook, SaveConfig
from rule_runtime import create_trial

BATCH, ROWS, FEATURES, CLASSES = 16, 64, 4, 3
RANDOM = np.random.default_rng(0)
FEATURES_OF_ROWS = RANDOM.normal(size=(ROWS, FEATURES)).astype(np.float32)
LABELS = RANDOM.integers(0, CLASSES, ROWS)
EVERY_STEP = SaveConfig(save_interval=1)


def new_model(*, is_built: bool = True, policy: str = "float32", **compilation: Any) -> Any:
    """Return a compiled model with dropout and batch normalisation, which have states."""
    # To free memory, Keras would look through all that the frameworks hold, for each model.
    keras.backend.clear_session(free_memory=False)
    keras.utils.set_random_seed(1)
    layers = [
        keras.layers.Dense(8, activation="relu", name="hidden", dtype=policy),
        keras.layers.Dropout(0.3, name="dropout", dtype=policy),
        keras.layers.BatchNormalization(name="normed", dtype=policy),
        keras.layers.Dense(CLASSES, name="head", dtype=policy),
    ]
    model = keras.Sequential([keras.Input((FEATURES,)), *layers] if is_built else layers)
    return compiled(model, **compilation)


def compiled(model: Any, optimizer: Any = None, **compilation: Any) -> Any:
    """Return a classifier, compiled."""
    model.compile(
        optimizer or keras.optimizers.Adam(0.05),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        **compilation,
    )
    return model


def fitted(model: Any, hook: Any = None, epochs: int = 2, **options: Any) -> dict[str, Any]:
    """Train a model, and return what Keras says of it."""
    callbacks: Sequence[Any] = options.pop("callbacks", [])
    history = model.fit(
        FEATURES_OF_ROWS,
        LABELS,
        batch_size=BATCH,
        epochs=epochs,
        shuffle=False,
        verbose=0,
        callbacks=[*callbacks, *([] if hook is None else [hook])],
        **options,
    )
    result: dict[str, Any] = history.history
    return result


def saved(folder: Path, model: Any, **options: Any) -> Any:
    """Train a model with a hook that saves everything in every step, and return the trial."""
    epochs = options.pop("epochs", 1)
    hook = KerasHook(folder, save_config=EVERY_STEP, save_all=True)
    fitted(model, hook, epochs, **options)
    hook.close()
    assert not hook.report().errors
    return create_trial(str(folder))


def same(ours: Sequence[NDArray[Any]], theirs: Sequence[NDArray[Any]]) -> bool:
    """Tell whether arrays are equal bit by bit."""
    return all(a.tobytes() == b.tobytes() for a, b in zip(ours, theirs, strict=True))
