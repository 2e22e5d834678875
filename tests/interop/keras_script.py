"""Train a Keras model with our hook, and note the weights and losses that Keras has.

    python keras_script.py FOLDER

The hook writes to FOLDER/trial; what Keras had goes to FOLDER/source.npz, by `step|tensor`.
"""

from __future__ import annotations

import os
import sys
from typing import Any

os.environ["KERAS_BACKEND"] = "tensorflow"  # the only one that the original has an adapter for

import keras
import numpy as np

from hook_layer.keras import KerasHook, SaveConfig

KERNEL = "hidden/weights/hidden/kernel:0"


class Source(keras.callbacks.Callback):  # keras has no types
    """Notes the kernel before each step."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, Any] = {}

    def on_train_batch_begin(self, batch: int, logs: object = None) -> None:  # noqa: ARG002
        kernel = self.model.get_layer("hidden").kernel
        self.values[f"{batch}|{KERNEL}"] = keras.ops.convert_to_numpy(kernel)


def main(folder: str) -> None:
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(4, activation="relu", name="hidden"), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((3,)), *layers])
    model.compile(keras.optimizers.SGD(0.1), "mse")
    hook = KerasHook(
        f"{folder}/trial",
        save_config=SaveConfig(save_interval=2),
        include_collections=["weights", "gradients", "losses"],
    )
    source = Source()
    random = np.random.default_rng(0)
    features, labels = random.normal(size=(24, 3)), random.normal(size=(24, 1))
    data = (features.astype("float32"), labels.astype("float32"))
    options = {"batch_size": 4, "shuffle": False, "verbose": 0, "validation_data": data}
    model.fit(*data, callbacks=[source, hook], **options)
    hook.close()
    assert not hook.report().errors, hook.report()
    np.savez(f"{folder}/source.npz", **source.values)


if __name__ == "__main__":
    main(sys.argv[1])
