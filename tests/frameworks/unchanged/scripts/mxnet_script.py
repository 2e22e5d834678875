"""Trains a small classifier with MXNet Gluon; nothing of Stepwatch in it."""

import mxnet as mx
from mxnet import autograd, gluon
from mxnet.gluon import nn
from small_task import BATCH, LEARNING_RATE, NUM_CLASSES, NUM_EPOCHS, NUM_HIDDEN, load, timed

mx.random.seed(0)
features, labels = map(mx.nd.array, load())
net = nn.HybridSequential(prefix="net_")
net.add(
    nn.Dense(NUM_HIDDEN, activation="relu", prefix="hidden_"),
    nn.Dense(NUM_CLASSES, prefix="head_"),
)
net.initialize(mx.init.Xavier())
criterion = gluon.loss.SoftmaxCrossEntropyLoss()
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": LEARNING_RATE})
with timed():
    for _ in range(NUM_EPOCHS):
        for start in range(0, len(features), BATCH):
            batch = slice(start, start + BATCH)
            with autograd.record():
                loss = criterion(net(features[batch]), labels[batch])
            loss.backward()
            trainer.step(BATCH)
    final_loss = loss.mean().asscalar()
print("final loss", final_loss)
