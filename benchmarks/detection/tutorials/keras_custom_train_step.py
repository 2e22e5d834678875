"""Classifier with its own `train_step` and `test_step` on handwritten digits, in the manner of Keras' "customising what happens in fit" (TensorFlow)."""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
keras.utils.set_random_seed(seed)


class CustomModel(keras.Model):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.loss_tracker = keras.metrics.Mean(name="loss")
        self.acc_metric = keras.metrics.SparseCategoricalAccuracy(name="accuracy")
        self.loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)  # Forward pass
            loss = self.loss_fn(y, y_pred) + tf.add_n(self.losses)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        self.loss_tracker.update_state(loss)
        self.acc_metric.update_state(y, y_pred)
        return {m.name: m.result() for m in self.metrics}

    def test_step(self, data):
        x, y = data
        y_pred = self(x, training=False)
        self.loss_tracker.update_state(self.loss_fn(y, y_pred))
        self.acc_metric.update_state(y, y_pred)
        return {m.name: m.result() for m in self.metrics}

    @property
    def metrics(self):
        return [self.loss_tracker, self.acc_metric]


x, y = load_digits(return_X_y=True)
x_train, x_val, y_train, y_val = train_test_split(
    x.astype("float32") / 16 - 0.3, y, test_size=0.2, random_state=seed
)

regularizer = keras.regularizers.L2(1e-4)
inputs = keras.Input(shape=(64,))
h = keras.layers.Dense(64, activation="relu", kernel_regularizer=regularizer)(inputs)
h = keras.layers.Dropout(0.2)(h)
h = keras.layers.Dense(64, activation="relu", kernel_regularizer=regularizer)(h)
outputs = keras.layers.Dense(10)(h)
model = CustomModel(inputs, outputs)
model.compile(optimizer=keras.optimizers.SGD(learning_rate=0.05, momentum=0.9, nesterov=True))
model.fit(x_train, y_train, batch_size=32, epochs=15, validation_data=(x_val, y_val), verbose=2)
print("val accuracy", float(model.evaluate(x_val, y_val, verbose=0, return_dict=True)["accuracy"]))
