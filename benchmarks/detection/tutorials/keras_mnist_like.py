"""Convolutional network on handwritten digits with `fit` and `validation_split`, in the manner of Keras' "Simple MNIST convnet"."""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

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

num_classes = 10
input_shape = (8, 8, 1)

digits = load_digits()
x_train, x_test, y_train, y_test = train_test_split(
    digits.images, digits.target, test_size=300, random_state=seed
)
# Scale images to the [0, 1] range
x_train = np.expand_dims(x_train.astype("float32") / 16, -1)
x_test = np.expand_dims(x_test.astype("float32") / 16, -1)
y_train = keras.utils.to_categorical(y_train, num_classes)
y_test = keras.utils.to_categorical(y_test, num_classes)
print("x_train shape:", x_train.shape)

model = keras.Sequential(
    [
        keras.Input(shape=input_shape),
        layers.Conv2D(32, kernel_size=(3, 3), activation="relu", padding="same"),
        layers.MaxPooling2D(pool_size=(2, 2)),
        layers.Conv2D(64, kernel_size=(3, 3), activation="relu", padding="same"),
        layers.MaxPooling2D(pool_size=(2, 2)),
        layers.Flatten(),
        layers.Dropout(0.5),
        layers.Dense(num_classes, activation="softmax"),
    ]
)
model.summary()
model.compile(loss="categorical_crossentropy", optimizer="adam", metrics=["accuracy"])
model.fit(x_train, y_train, batch_size=64, epochs=30, validation_split=0.1, verbose=2)

score = model.evaluate(x_test, y_test, verbose=0)
print("Test loss:", score[0])
print("Test accuracy:", score[1])
