"""Regression on the Friedman function with Keras' own gradient accumulation, AdamW with cosine decay and a Normalization layer, in the manner of the Keras structured-data examples."""

import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

import keras
import tensorflow as tf
from keras import layers
from sklearn.datasets import make_friedman1
from sklearn.model_selection import train_test_split

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
keras.utils.set_random_seed(seed)

X, y = make_friedman1(2400, n_features=8, noise=1.0, random_state=seed)
X = X * [1, 10, 1, 100, 1, 5, 1, 1]  # columns in their own units
X_train, X_val, y_train, y_val = train_test_split(X, y, test_size=0.2, random_state=seed)

normalizer = layers.Normalization()
normalizer.adapt(X_train)
target_mean = float(y_train.mean())

model = keras.Sequential(
    [
        keras.Input(shape=(8,)),
        normalizer,
        layers.Dense(64, activation="gelu"),
        layers.Dense(64, activation="gelu"),
        layers.Dense(1, bias_initializer=keras.initializers.Constant(target_mean)),
    ]
)
epochs, batch_size, accumulate = 30, 16, 4
schedule = keras.optimizers.schedules.CosineDecay(
    initial_learning_rate=5e-4,
    warmup_target=4e-3,
    warmup_steps=100,
    decay_steps=epochs * 120 - 100,
    alpha=0.05,
)
model.compile(
    optimizer=keras.optimizers.AdamW(
        schedule, weight_decay=1e-3, gradient_accumulation_steps=accumulate, global_clipnorm=5.0
    ),
    loss="mse",
    metrics=["mae"],
)
model.fit(
    X_train,
    y_train,
    batch_size=batch_size,
    epochs=epochs,
    validation_data=(X_val, y_val),
    verbose=2,
)
mse, mae = model.evaluate(X_val, y_val, verbose=0)
print(f"val mse {mse:.4f} (variance {y_val.var():.2f}), mae {mae:.4f}")
