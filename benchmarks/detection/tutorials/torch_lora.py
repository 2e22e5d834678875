"""Trains a network on upright digits, freezes it and adapts it to turned digits with low-rank adapters, in the manner of LoRA-from-scratch posts."""

import math
import sys

import torch
import torch.nn as nn
from sklearn.datasets import load_digits

torch.set_num_threads(1)
torch.manual_seed(int(sys.argv[1]) if len(sys.argv) > 1 else 0)


class LoRALinear(nn.Module):
    def __init__(self, linear, rank=4, alpha=8):
        super().__init__()
        self.linear = linear
        self.lora_A = nn.Parameter(torch.empty(rank, linear.in_features))
        self.lora_B = nn.Parameter(torch.zeros(linear.out_features, rank))
        self.scaling = alpha / rank
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))

    def forward(self, x):
        return self.linear(x) + (x @ self.lora_A.T @ self.lora_B.T) * self.scaling


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)
        )  # fmt: skip

    def forward(self, x):
        return self.layers(x)


def fit(model, data, parameters, lr, epochs, name):
    x, y, xv, yv = data
    optimizer = torch.optim.AdamW(parameters, lr=lr, weight_decay=0.01)
    loss_fn = nn.CrossEntropyLoss()
    for epoch in range(1, epochs + 1):
        model.train()
        total = 0.0
        for idx in torch.randperm(len(x)).split(64):
            optimizer.zero_grad(set_to_none=True)
            loss = loss_fn(model(x[idx]), y[idx])
            loss.backward()
            optimizer.step()
            total += loss.item() * len(idx)
        model.eval()
        with torch.no_grad():
            logits = model(xv)
        acc = (logits.argmax(1) == yv).float().mean().item()
        if epoch % 3 == 0 or epoch == 1:
            print(
                f"{name} epoch {epoch}: train {total / len(x):.4f} valid {loss_fn(logits, yv).item():.4f} accuracy {acc:.4f}"
            )


digits = load_digits()
images = (torch.tensor(digits.images, dtype=torch.float32) / 16 - 0.3) / 0.38
labels = torch.tensor(digits.target)
order = torch.randperm(len(images))
images, labels = images[order], labels[order]
turned = torch.rot90(images, 1, dims=(1, 2))
cut = 1350
upright_data = (images[:cut].flatten(1), labels[:cut], images[cut:].flatten(1), labels[cut:])
turned_data = (turned[:cut].flatten(1), labels[:cut], turned[cut:].flatten(1), labels[cut:])

model = MLP()
fit(model, upright_data, model.parameters(), 1e-3, 12, "base")

for param in model.parameters():
    param.requires_grad = False
for i in (0, 2):
    model.layers[i] = LoRALinear(model.layers[i], rank=8, alpha=16)
trainable = [p for p in model.parameters() if p.requires_grad]
print(
    sum(p.numel() for p in trainable),
    "of",
    sum(p.numel() for p in model.parameters()),
    "parameters are trained",
)
fit(model, turned_data, trainable, 3e-3, 21, "adapters")
