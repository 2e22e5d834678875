"""Autoencoder trained on normal heartbeat-like curves that finds abnormal ones by reconstruction error, in the manner of ECG anomaly tutorials."""

import sys

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from torch import nn

torch.set_num_threads(1)
seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
torch.manual_seed(seed)
rng = np.random.default_rng(seed)


def beats(n, normal=True, length=100):
    """A small wave, a spike and a broad wave; abnormal beats have a broad spike and the last wave upside down."""
    t = np.linspace(0, 1, length)[None]

    def bump(centre, width, height):
        return height * np.exp(-(((t - centre) / width) ** 2))

    def vary(value, spread):
        return value + spread * rng.normal(size=(n, 1))

    spike = bump(vary(0.4, 0.02), vary(0.03, 0.002) if normal else vary(0.06, 0.01), vary(1.0, 0.1))
    tail = bump(vary(0.7, 0.02), vary(0.08, 0.005), vary(0.4, 0.05) * (1 if normal else -0.6))
    x = bump(vary(0.2, 0.02), vary(0.04, 0.003), vary(0.2, 0.03)) + spike + tail
    return torch.tensor(x + 0.03 * rng.normal(size=x.shape), dtype=torch.float32)


train, valid = beats(2000), beats(400)
test_normal, test_abnormal = beats(400), beats(80, normal=False)
mean, std = train.mean(), train.std()
train, valid, test_normal, test_abnormal = (
    (x - mean) / std for x in (train, valid, test_normal, test_abnormal)
)


class AnomalyDetector(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(100, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8)
        )
        self.decoder = nn.Sequential(
            nn.Linear(8, 32),
            nn.ReLU(),
            nn.Linear(32, 64),
            nn.ReLU(),
            nn.Linear(64, 100),
        )

    def forward(self, x):
        return self.decoder(self.encoder(x))


model = AnomalyDetector()
loss_fn = nn.MSELoss()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(20):
    model.train()
    total = 0.0
    for batch in train[torch.randperm(len(train))].split(64):
        loss = loss_fn(model(batch), batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(batch)
    model.eval()
    with torch.no_grad():
        val_loss = loss_fn(model(valid), valid).item()
    print(f"Epoch {epoch + 1}/20 - loss: {total / len(train):.4f} - val_loss: {val_loss:.4f}")

with torch.no_grad():
    scores = [(model(x) - x).square().mean(1) for x in (valid, test_normal, test_abnormal)]
threshold = scores[0].mean() + 2 * scores[0].std()
print(
    f"threshold {threshold:.4f}: found {(scores[2] > threshold).float().mean():.1%} of abnormal beats"
)
truth = np.r_[np.zeros(len(scores[1])), np.ones(len(scores[2]))]
print("area under the curve", roc_auc_score(truth, torch.cat(scores[1:]).numpy()))
