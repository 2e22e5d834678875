"""Trains a small convnet on scikit-learn's digits with a hand-written GradientTape loop, in the manner of TensorFlow's guide 'Writing a training loop from scratch'."""

import os
import sys
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
keras.utils.set_random_seed(int(sys.argv[1]) if len(sys.argv) > 1 else 0)

x, y = load_digits(return_X_y=True)
x = (x / 16.0).astype("float32").reshape(-1, 8, 8, 1)
perm = np.random.default_rng(0).permutation(len(x))
x, y = x[perm], y[perm]
x_train, y_train, x_val, y_val = x[:1300], y[:1300], x[1300:], y[1300:]

batch_size = 32
train_dataset = tf.data.Dataset.from_tensor_slices((x_train, y_train))
train_dataset = train_dataset.shuffle(buffer_size=1300).batch(batch_size)
val_dataset = tf.data.Dataset.from_tensor_slices((x_val, y_val)).batch(128)

inputs = keras.Input(shape=(8, 8, 1), name="digits")
h = keras.layers.Conv2D(16, 3, padding="same", activation="relu")(inputs)
h = keras.layers.Conv2D(32, 3, padding="same", activation="relu")(h)
h = keras.layers.MaxPooling2D()(h)
h = keras.layers.Flatten()(h)
h = keras.layers.Dropout(0.2)(h)
outputs = keras.layers.Dense(10, name="predictions")(h)
model = keras.Model(inputs=inputs, outputs=outputs)

optimizer = keras.optimizers.Adam(learning_rate=1e-3)
loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
train_acc_metric = keras.metrics.SparseCategoricalAccuracy()
val_acc_metric = keras.metrics.SparseCategoricalAccuracy()


@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        logits = model(x, training=True)
        loss_value = loss_fn(y, logits)
    grads = tape.gradient(loss_value, model.trainable_weights)
    optimizer.apply_gradients(zip(grads, model.trainable_weights))
    train_acc_metric.update_state(y, logits)
    return loss_value


@tf.function
def test_step(x, y):
    val_acc_metric.update_state(y, model(x, training=False))


epochs = 8
for epoch in range(epochs):
    print(f"\nStart of epoch {epoch}")
    start_time = time.time()
    for step, (x_batch_train, y_batch_train) in enumerate(train_dataset):
        loss_value = train_step(x_batch_train, y_batch_train)
        if step % 20 == 0:
            print(f"Training loss (for 1 batch) at step {step}: {float(loss_value):.4f}")

    print(f"Training acc over epoch: {float(train_acc_metric.result()):.4f}")
    train_acc_metric.reset_state()
    for x_batch_val, y_batch_val in val_dataset:
        test_step(x_batch_val, y_batch_val)
    val_acc = val_acc_metric.result()
    val_acc_metric.reset_state()
    print(f"Validation acc: {float(val_acc):.4f}, time taken: {time.time() - start_time:.2f}s")
