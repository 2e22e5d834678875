"""The recommender predicts 1 for each pair of user and film, and the loss stays near 6.

Cause: the ratings are 1 to 5, but a sigmoid output is at most 1.
"""

import sys

import keras
import numpy as np
from keras import layers

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(5)
rng = np.random.default_rng(5)
n_users, n_films = 60, 40
taste, genre = rng.normal(size=(n_users, 3)), rng.normal(size=(n_films, 3))
user, film = rng.integers(0, n_users, 3000), rng.integers(0, n_films, 3000)
rating = np.clip(np.round(3.2 + (taste[user] * genre[film]).sum(1) * 0.7), 1, 5)
if FIXED:
    rating = (rating - 1) / 4

user_in, film_in = layers.Input((1,), name="user"), layers.Input((1,), name="film")
u = layers.Flatten()(layers.Embedding(n_users, 8)(user_in))
f = layers.Flatten()(layers.Embedding(n_films, 8)(film_in))
x = layers.Concatenate()([u, f, layers.Multiply()([u, f])])
x = layers.Dense(32, activation="relu")(x)
score = layers.Dense(1, activation="sigmoid")(x)
model = keras.Model([user_in, film_in], score)
model.compile(keras.optimizers.Adam(0.01), loss="mse")
model.fit([user, film], rating, batch_size=128, epochs=10, verbose=0)

predicted = model.predict([user, film], verbose=0).ravel()
correlation = np.corrcoef(predicted + 1e-6 * rng.normal(size=3000), rating)[0, 1]
print("mse", float(np.mean((predicted - rating) ** 2)), "correlation", round(correlation, 3))
