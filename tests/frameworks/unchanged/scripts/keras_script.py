"""Trains a small classifier with Keras, on whatever backend; nothing of Stepwatch in it."""

import keras
from small_task import (
    BATCH,
    LEARNING_RATE,
    NUM_CLASSES,
    NUM_EPOCHS,
    NUM_FEATURES,
    NUM_HIDDEN,
    load,
    timed,
)

keras.utils.set_random_seed(0)
features, labels = load()
model = keras.Sequential(
    [
        keras.Input((NUM_FEATURES,)),
        keras.layers.Dense(NUM_HIDDEN, activation="relu", name="hidden"),
        keras.layers.Dense(NUM_CLASSES, activation="softmax", name="head"),
    ]
)
model.compile(keras.optimizers.SGD(LEARNING_RATE), "sparse_categorical_crossentropy")
with timed():
    history = model.fit(features, labels, BATCH, NUM_EPOCHS, verbose=0)
print("final loss", history.history["loss"][-1])
