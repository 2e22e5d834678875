"""Convolutional network with batch normalisation on handwritten digits, callbacks and an exponential decay schedule, Keras on the JAX backend."""

import os
import sys

os.environ["KERAS_BACKEND"] = "jax"
os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)

import keras
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
keras.utils.set_random_seed(seed)

digits = load_digits()
images = digits.images[..., None].astype("float32") / 16.0
x_train, x_val, y_train, y_val = train_test_split(
    images, digits.target, test_size=0.2, random_state=seed
)

model = keras.models.Sequential(
    [
        keras.layers.Input((8, 8, 1)),
        keras.layers.Conv2D(16, 3, padding="same"),
        keras.layers.BatchNormalization(momentum=0.9),
        keras.layers.ReLU(),
        keras.layers.MaxPooling2D(),
        keras.layers.Conv2D(32, 3, padding="same"),
        keras.layers.BatchNormalization(momentum=0.9),
        keras.layers.ReLU(),
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dropout(0.1),
        keras.layers.Dense(10),
    ]
)
steps = len(x_train) // 32
schedule = keras.optimizers.schedules.ExponentialDecay(5e-3, decay_steps=steps, decay_rate=0.9)
model.compile(
    optimizer=keras.optimizers.AdamW(schedule, weight_decay=1e-3),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
model.fit(
    x_train,
    y_train,
    epochs=15,
    batch_size=32,
    validation_data=(x_val, y_val),
    callbacks=[keras.callbacks.EarlyStopping(patience=5, restore_best_weights=True)],
    verbose=2,
)
loss, accuracy = model.evaluate(x_val, y_val, verbose=0)
print(f"validation loss {loss:.4f} accuracy {accuracy:.4f}")
