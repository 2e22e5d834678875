"""The segmentation network gets worse with each epoch: its masks end empty.

Cause: the loss returns the Dice coefficient itself, so the optimizer minimises the overlap.
"""

import sys

import keras
import numpy as np
from keras import layers, ops

FIXED = "--fixed" in sys.argv
keras.utils.set_random_seed(30)
rng = np.random.default_rng(30)


def dice_coef(y_true, y_pred, smooth=1.0):
    overlap = ops.sum(y_true * y_pred)
    return (2.0 * overlap + smooth) / (ops.sum(y_true) + ops.sum(y_pred) + smooth)


def dice_loss(y_true, y_pred):
    coefficient = dice_coef(y_true, y_pred)
    return 1 - coefficient if FIXED else coefficient


masks = np.zeros((240, 16, 16, 1), "float32")
for mask in masks:
    r, c = rng.integers(0, 10, 2)
    mask[r : r + 6, c : c + 6] = 1
images = masks * 0.7 + rng.normal(0, 0.3, masks.shape)

inp = layers.Input((16, 16, 1))
c1 = layers.Conv2D(8, 3, padding="same", activation="relu")(inp)
c2 = layers.Conv2D(8, 3, padding="same", activation="relu")(c1)
out = layers.Conv2D(1, 1, activation="sigmoid")(c2)
unet = keras.Model(inp, out)
unet.compile(keras.optimizers.Adam(0.01), loss=dice_loss, metrics=[dice_coef])
unet.fit(images, masks, batch_size=16, epochs=6, verbose=0)
print("loss, dice:", unet.evaluate(images, masks, verbose=0))
