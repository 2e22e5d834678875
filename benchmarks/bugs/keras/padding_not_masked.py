"""The LSTM on film reviews stays at an accuracy of 50 % although the words decide the class.

Cause: short texts are padded with 45 zeros at the end and the zeros are not masked.
"""

import sys

import keras
import numpy as np
from keras.layers import LSTM, Dense, Embedding
from keras.models import Sequential

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(40)
rng = np.random.default_rng(40)

texts, mood = [], rng.integers(0, 2, 480)
for m in mood:
    words = rng.integers(20, 200, rng.integers(4, 10))
    words[rng.integers(0, len(words), 2)] = rng.integers(1, 10, 2) + 10 * m
    texts.append(words.tolist())
X = keras.utils.pad_sequences(texts, maxlen=50, padding="post")

model = Sequential()
model.add(Embedding(200, 16, mask_zero=FIXED))
model.add(LSTM(16))
model.add(Dense(1, activation="sigmoid"))
model.compile(keras.optimizers.Adam(0.01), "binary_crossentropy", metrics=["accuracy"])
model.fit(X, mood, batch_size=48, epochs=6, verbose=0)
print("loss, accuracy:", model.evaluate(X, mood, verbose=0))
