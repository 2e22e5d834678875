"""Patch-based vision transformer on handwritten digits under bfloat16 autocast on the CPU, in the manner of PyTorch's AMP recipe."""

import sys

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.set_num_threads(1)
torch.manual_seed(int(sys.argv[1]) if len(sys.argv) > 1 else 0)


class TinyViT(nn.Module):
    def __init__(self, dim=48, depth=2, heads=4):
        super().__init__()
        self.patch = nn.Conv2d(1, dim, kernel_size=2, stride=2)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos = nn.Parameter(0.02 * torch.randn(1, 17, dim))
        block = nn.TransformerEncoderLayer(
            dim, heads, 2 * dim, 0.1, "gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(block, depth, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, 10)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], dim=1) + self.pos
        return self.head(self.norm(self.encoder(x)[:, 0]))


digits = load_digits()
x = (torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16 - 0.5) / 0.5
train_set, val_set = random_split(TensorDataset(x, torch.tensor(digits.target)), [1437, 360])
train_loader = DataLoader(train_set, batch_size=64, shuffle=True)
val_loader = DataLoader(val_set, batch_size=360)

model = TinyViT()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
epochs = 20
scheduler = torch.optim.lr_scheduler.OneCycleLR(
    optimizer, 3e-3, total_steps=epochs * len(train_loader), pct_start=0.2
)

for epoch in range(epochs):
    model.train()
    running = 0.0
    for images, targets in train_loader:
        with torch.autocast(device_type="cpu", dtype=torch.bfloat16):
            loss = criterion(model(images), targets)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        running += loss.item() * len(images)
    model.eval()
    correct = val_loss = 0.0
    with torch.no_grad(), torch.autocast(device_type="cpu", dtype=torch.bfloat16):
        for images, targets in val_loader:
            logits = model(images)
            val_loss += criterion(logits, targets).item() * len(images)
            correct += (logits.argmax(1) == targets).sum().item()
    print(
        f"epoch {epoch + 1} loss {running / len(train_set):.4f} val_loss {val_loss / len(val_set):.4f} val_acc {correct / len(val_set):.4f}"
    )
