"""Image augmentation layers, class weights, ReduceLROnPlateau and EarlyStopping in one model.fit on unbalanced digits, in the manner of the Keras image-classification examples."""

import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

import keras
import numpy as np
import tensorflow as tf
from keras import layers
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
keras.utils.set_random_seed(seed)

x, y = load_digits(return_X_y=True)
x = x.reshape(-1, 8, 8, 1).astype("float32")
x_train, x_val, y_train, y_val = train_test_split(
    x, y, test_size=0.3, random_state=seed, stratify=y
)
# half of the pictures of the digits 5 to 9 are missing from training
keep = (y_train < 5) | (np.random.default_rng(seed).random(len(y_train)) < 0.5)
x_train, y_train = x_train[keep], y_train[keep]
counts = np.bincount(y_train)
class_weight = {i: len(y_train) / (10 * c) for i, c in enumerate(counts)}

data_augmentation = keras.Sequential(
    [
        layers.RandomTranslation(0.1, 0.1, fill_mode="constant"),
        layers.RandomRotation(0.04, fill_mode="constant"),
        layers.RandomZoom(0.1, fill_mode="constant"),
    ],
    name="augmentation",
)


def make_model():
    inputs = keras.Input(shape=(8, 8, 1))
    h = data_augmentation(inputs)
    h = layers.Rescaling(1.0 / 16)(h)
    for size in (16, 32):
        h = layers.Conv2D(size, 3, padding="same", use_bias=False)(h)
        h = layers.BatchNormalization(momentum=0.9)(h)
        h = layers.Activation("relu")(h)
        h = layers.Conv2D(size, 3, padding="same", use_bias=False)(h)
        h = layers.BatchNormalization(momentum=0.9)(h)
        h = layers.Activation("relu")(h)
        h = layers.MaxPooling2D(2)(h)
    h = layers.Flatten()(h)
    h = layers.Dropout(0.2)(h)
    return keras.Model(inputs, layers.Dense(10)(h))


model = make_model()
model.compile(
    optimizer=keras.optimizers.Adam(3e-3),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=[keras.metrics.SparseCategoricalAccuracy(name="acc")],
)
callbacks = [
    keras.callbacks.ReduceLROnPlateau(
        monitor="val_loss", factor=0.5, patience=3, min_lr=1e-5, verbose=1
    ),
    keras.callbacks.EarlyStopping(monitor="val_loss", patience=8, restore_best_weights=True),
]
model.fit(
    x_train,
    y_train,
    batch_size=32,
    epochs=25,
    callbacks=callbacks,
    class_weight=class_weight,
    validation_data=(x_val, y_val),
    verbose=2,
)
print("val loss, acc:", model.evaluate(x_val, y_val, verbose=0))
