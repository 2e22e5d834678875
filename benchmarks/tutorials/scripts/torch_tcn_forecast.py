"""Temporal convolutional network with dilations and weight norm that forecasts made-up electricity load for the next day, in the manner of TCN tutorials."""

import math
import sys

import numpy as np
import torch
import torch.nn as nn
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
torch.manual_seed(seed)
np.random.seed(seed)

HISTORY, HORIZON = 72, 24


def make_load(hours=24 * 200):
    t = np.arange(hours)
    weekday = (t // 24) % 7
    day = 8 * np.sin(2 * math.pi * (t - 7) / 24) + 3 * np.sin(4 * math.pi * t / 24)
    weather = np.zeros(hours)
    for i in range(1, hours):
        weather[i] = 0.98 * weather[i - 1] + 0.6 * np.random.randn()
    return (
        50
        + day * np.where(weekday >= 5, 0.6, 1.0)
        - 4 * (weekday >= 5)
        + weather
        + 0.5 * np.random.randn(hours)
    ).astype("float32")


class Windows(Dataset):
    def __init__(self, series, stride):
        self.series = torch.from_numpy(series)
        self.starts = range(0, len(series) - HISTORY - HORIZON + 1, stride)

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, i):
        window = self.series[self.starts[i] : self.starts[i] + HISTORY + HORIZON]
        return window[None, :HISTORY], window[HISTORY:]


class Chomp1d(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size

    def forward(self, x):
        return x[:, :, : -self.size]


class TemporalBlock(nn.Module):
    def __init__(self, n_in, n_out, kernel_size, dilation, dropout=0.1):
        super().__init__()
        pad = (kernel_size - 1) * dilation

        def conv(a, b):
            layer = weight_norm(nn.Conv1d(a, b, kernel_size, padding=pad, dilation=dilation))
            return [layer, Chomp1d(pad), nn.ReLU(), nn.Dropout(dropout)]

        self.net = nn.Sequential(*conv(n_in, n_out), *conv(n_out, n_out))
        self.downsample = nn.Conv1d(n_in, n_out, 1) if n_in != n_out else nn.Identity()

    def forward(self, x):
        return torch.relu(self.net(x) + self.downsample(x))


class TCN(nn.Module):
    def __init__(self, channels=(24, 24, 24, 24), kernel_size=3):
        super().__init__()
        sizes = (1, *channels)
        self.network = nn.Sequential(
            *[
                TemporalBlock(a, b, kernel_size, 2**i)
                for i, (a, b) in enumerate(zip(sizes[:-1], sizes[1:]))
            ]
        )
        self.linear = nn.Linear(channels[-1], HORIZON)

    def forward(self, x):
        return self.linear(self.network(x)[:, :, -1])


load = make_load()
cut = int(0.8 * len(load))
mean, std = load[:cut].mean(), load[:cut].std()
load = (load - mean) / std
train_loader = DataLoader(Windows(load[:cut], 3), batch_size=32, shuffle=True)
valid_loader = DataLoader(Windows(load[cut:], 6), batch_size=64)

model = TCN()
criterion = nn.HuberLoss()
optimizer = torch.optim.RAdam(model.parameters(), lr=2e-3)


def evaluate(predict):
    with torch.no_grad():
        errors = [(predict(x) - y).abs().mean(1) for x, y in valid_loader]
    return torch.cat(errors).mean().item()


print(f"valid mae of yesterday's load {evaluate(lambda x: x[:, 0, -HORIZON:]):.4f}")
for epoch in range(1, 13):
    model.train()
    running = 0.0
    for x, y in train_loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        running += loss.item()
    model.eval()
    print(
        f"epoch {epoch} train loss {running / len(train_loader):.4f} valid mae {evaluate(model):.4f}"
    )
