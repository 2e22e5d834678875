"""Vision transformer on scikit-learn's digits with warm-up, cosine schedule and weight-decay groups, in the manner of lucidrains' vit-pytorch and DeiT."""

import math
import sys

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.set_num_threads(1)
torch.manual_seed(int(sys.argv[1]) if len(sys.argv) > 1 else 0)


class PreNormBlock(nn.Module):
    def __init__(self, dim, heads, mlp_dim, dropout):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.heads, self.scale = heads, (dim // heads) ** -0.5
        self.to_qkv = nn.Linear(dim, dim * 3, bias=False)
        self.to_out = nn.Sequential(nn.Linear(dim, dim), nn.Dropout(dropout))
        self.ff = nn.Sequential(
            nn.Linear(dim, mlp_dim),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(mlp_dim, dim),
            nn.Dropout(dropout),
        )

    def attend(self, x):
        b, n, d = x.shape
        q, k, v = self.to_qkv(x).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        attn = (q @ k.transpose(-1, -2) * self.scale).softmax(-1)
        return self.to_out((attn @ v).transpose(1, 2).reshape(b, n, d))

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        return x + self.ff(self.norm2(x))


class ViT(nn.Module):
    def __init__(
        self, *, image_size, patch_size, num_classes, dim, depth, heads, mlp_dim, dropout=0.0
    ):
        super().__init__()
        num_patches = (image_size // patch_size) ** 2
        self.patch = nn.Conv2d(1, dim, patch_size, stride=patch_size)
        self.pos_embedding = nn.Parameter(torch.randn(1, num_patches + 1, dim))
        self.cls_token = nn.Parameter(torch.randn(1, 1, dim))
        self.blocks = nn.Sequential(
            *[PreNormBlock(dim, heads, mlp_dim, dropout) for _ in range(depth)]
        )
        self.mlp_head = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, num_classes))

    def forward(self, img):
        x = self.patch(img).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1) + self.pos_embedding
        return self.mlp_head(self.blocks(x)[:, 0])


images, labels = load_digits(return_X_y=True)
dataset = TensorDataset(
    torch.tensor(images / 8 - 1, dtype=torch.float32).view(-1, 1, 8, 8), torch.tensor(labels)
)
train_set, val_set = random_split(dataset, [1437, 360], generator=torch.Generator().manual_seed(0))
train_loader = DataLoader(train_set, batch_size=64, shuffle=True, drop_last=True)
val_loader = DataLoader(val_set, batch_size=360)


def jitter(x):
    """Shift every picture by up to one pixel."""
    x = nn.functional.pad(x, (1, 1, 1, 1), value=-1.0)
    dy, dx = torch.randint(0, 3, (2,)).tolist()
    return x[..., dy : dy + 8, dx : dx + 8]


model = ViT(
    image_size=8, patch_size=2, num_classes=10, dim=64, depth=3, heads=4, mlp_dim=128, dropout=0.1
)
decay = [p for p in model.parameters() if p.ndim == 2 or p.ndim == 4]
no_decay = [p for p in model.parameters() if p.ndim in (1, 3)]
optimizer = torch.optim.AdamW(
    [{"params": decay, "weight_decay": 0.05}, {"params": no_decay, "weight_decay": 0.0}], lr=2e-3
)
epochs, warmup = 20, 44
total = epochs * len(train_loader)
scheduler = torch.optim.lr_scheduler.LambdaLR(
    optimizer,
    lambda s: (
        (s + 1) / warmup
        if s < warmup
        else 0.5 * (1 + math.cos(math.pi * (s - warmup) / (total - warmup)))
    ),
)
criterion = nn.CrossEntropyLoss(label_smoothing=0.05)

for epoch in range(epochs):
    model.train()
    epoch_loss = epoch_accuracy = 0.0
    for data, label in train_loader:
        output = model(jitter(data))
        loss = criterion(output, label)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        epoch_accuracy += (output.argmax(1) == label).float().mean().item() / len(train_loader)
        epoch_loss += loss.item() / len(train_loader)
    model.eval()
    with torch.no_grad():
        for data, label in val_loader:
            output = model(data)
            val_loss, val_acc = (
                criterion(output, label).item(),
                (output.argmax(1) == label).float().mean().item(),
            )
    print(
        f"Epoch : {epoch + 1} - loss : {epoch_loss:.4f} - acc: {epoch_accuracy:.4f} "
        f"- val_loss : {val_loss:.4f} - val_acc: {val_acc:.4f}"
    )
