"""CLIP-like training: pictures of digits and their descriptions in words, two towers, learnt temperature, zero-shot accuracy, in the manner of OpenAI's CLIP and open_clip."""

import math
import random
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

torch.set_num_threads(1)
SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 0
random.seed(SEED)
torch.manual_seed(SEED)

NUMBERS = "zero one two three four five six seven eight nine".split()
TEMPLATES = [
    "a photo of a {}",
    "the digit {}",
    "a handwritten {}",
    "someone wrote {} {}",
    "a {} {}",
    "{} {}",
]
BRIGHT = {0: "pale", 1: "bold"}
WORDS = sorted(
    {w for t in TEMPLATES for w in t.split() if w != "{}"} | set(NUMBERS) | set(BRIGHT.values())
)
INDEX = {w: i + 1 for i, w in enumerate(WORDS)}  # 0 is padding


def caption(number, bold):
    template = random.choice(TEMPLATES)
    names = (NUMBERS[number],) if template.count("{}") == 1 else (BRIGHT[bold], NUMBERS[number])
    return template.format(*names)


def tokenize(texts, length=6):
    rows = [[INDEX[w] for w in t.split()] for t in texts]
    return torch.tensor([r + [0] * (length - len(r)) for r in rows])


class ImageTower(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 24, 3, padding=1),
            nn.GELU(),
            nn.Conv2d(24, 48, 3, stride=2, padding=1),
            nn.GELU(),
            nn.Conv2d(48, 48, 3, stride=2, padding=1),
            nn.GELU(),
            nn.Flatten(),
            nn.Linear(192, dim),
        )

    def forward(self, x):
        return self.net(x)


class TextTower(nn.Module):
    def __init__(self, dim, width=48):
        super().__init__()
        self.token, self.position = (
            nn.Embedding(len(WORDS) + 1, width, padding_idx=0),
            nn.Parameter(torch.randn(6, width) * 0.1),
        )
        layer = nn.TransformerEncoderLayer(
            width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.ln, self.projection = nn.LayerNorm(width), nn.Linear(width, dim, bias=False)

    def forward(self, tokens):
        pad = tokens == 0
        h = self.encoder(self.token(tokens) + self.position, src_key_padding_mask=pad)
        h = h.masked_fill(pad[..., None], 0).sum(1) / (~pad).sum(1, keepdim=True)
        return self.projection(self.ln(h))


class CLIP(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.visual, self.text = ImageTower(dim), TextTower(dim)
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def forward(self, images, tokens):
        i, t = F.normalize(self.visual(images), dim=-1), F.normalize(self.text(tokens), dim=-1)
        return self.logit_scale.exp() * i @ t.T


x, y = load_digits(return_X_y=True)
bold = (x.mean(1) > x.mean(1).mean()).astype(int).tolist()
images, labels = torch.tensor(x / 8 - 1, dtype=torch.float32).view(-1, 1, 8, 8), y.tolist()
order = torch.randperm(len(images)).tolist()
train, val = order[:1400], order[1400:]

model = CLIP()
optimizer = torch.optim.AdamW(
    model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.1
)
epochs, batch = 15, 32
scheduler = torch.optim.lr_scheduler.OneCycleLR(
    optimizer, 2e-3, total_steps=epochs * (len(train) // batch)
)


def contrastive_loss(idx):
    logits = model(images[idx], tokenize([caption(labels[i], bold[i]) for i in idx]))
    target = torch.arange(len(idx))
    return (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2


@torch.no_grad()
def zero_shot():
    model.eval()
    logits = model(images[val], tokenize([f"a photo of a {n}" for n in NUMBERS]))
    loss = sum(contrastive_loss(val[i : i + batch]).item() for i in range(0, 384, batch)) / 12
    model.train()
    return loss, (logits.argmax(1) == torch.tensor([labels[i] for i in val])).float().mean().item()


for epoch in range(epochs):
    random.shuffle(train)
    running = 0.0
    for start in range(0, len(train) - batch + 1, batch):
        loss = contrastive_loss(train[start : start + batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        with torch.no_grad():
            model.logit_scale.clamp_(0, math.log(100))
        running += loss.item() / (len(train) // batch)
    val_loss, acc = zero_shot()
    print(
        f"epoch {epoch} loss {running:.4f} val loss {val_loss:.4f} scale {model.logit_scale.exp():.2f} zero-shot acc {acc:.4f}"
    )
