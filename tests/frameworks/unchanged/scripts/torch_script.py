"""Trains a small classifier with PyTorch; nothing of Stepwatch in it."""

import torch
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
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(NUM_FEATURES, NUM_HIDDEN)
        self.head = nn.Linear(NUM_HIDDEN, NUM_CLASSES)

    def forward(self, features):
        return self.head(torch.relu(self.hidden(features)))


features, labels = map(torch.from_numpy, load())
model = Classifier()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE)
with timed():
    for _ in range(NUM_EPOCHS):
        for batch, expected in zip(features.split(BATCH), labels.split(BATCH), strict=True):
            optimizer.zero_grad()
            loss = criterion(model(batch), expected)
            loss.backward()
            optimizer.step()
print("final loss", loss.item())
