"""Loss is 0.0000 from the first epoch on, and accuracy never moves.

Cause: categorical cross-entropy over one sigmoid unit; normalised over one class it is always 0.
"""

import sys

import keras
import numpy as np
from keras import layers

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(1)

# cats (bright centre) against dogs (bright border)
rng = np.random.default_rng(1)
labels = rng.integers(0, 2, 320)
images = rng.normal(0.3, 0.1, (320, 16, 16, 1))
images[labels == 1, 5:11, 5:11] += 0.15
images[labels == 0, :3] += 0.15

model = keras.Sequential(
    [
        layers.Input((16, 16, 1)),
        layers.Conv2D(8, 3, activation="relu"),
        layers.MaxPooling2D(),
        layers.Flatten(),
        layers.Dense(16, activation="relu"),
        layers.Dense(1, activation="sigmoid"),
    ]
)
loss = "binary_crossentropy" if FIXED else "categorical_crossentropy"
model.compile(optimizer=keras.optimizers.RMSprop(0.001), loss=loss, metrics=["binary_accuracy"])
history = model.fit(images, labels.astype("float32"), batch_size=32, epochs=12, verbose=0)
print("loss", history.history["loss"][-1], "accuracy", history.history["binary_accuracy"][-1])
