"""ConvNeXt-like network with LayerScale, stochastic depth, gradient checkpointing and EMA weights on digits, in the manner of facebookresearch's ConvNeXt."""

import argparse
import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.checkpoint import checkpoint


def drop_path(x, drop_prob, training):
    if drop_prob == 0.0 or not training:
        return x
    keep_prob = 1 - drop_prob
    return x * x.new_empty((x.shape[0], 1, 1, 1)).bernoulli_(keep_prob).div_(keep_prob)


class LayerNorm2d(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Block(nn.Module):
    def __init__(self, dim, drop=0.0, layer_scale_init_value=1e-1):
        super().__init__()
        self.dwconv = nn.Conv2d(dim, dim, kernel_size=3, padding=1, groups=dim)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.pwconv1, self.pwconv2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.gamma = nn.Parameter(layer_scale_init_value * torch.ones(dim))
        self.drop = drop

    def forward(self, x):
        y = self.norm(self.dwconv(x).permute(0, 2, 3, 1))
        y = self.gamma * self.pwconv2(F.gelu(self.pwconv1(y)))
        return x + drop_path(y.permute(0, 3, 1, 2), self.drop, self.training)


class ConvNeXt(nn.Module):
    def __init__(self, num_classes=10, depths=(2, 2), dims=(24, 48), drop_path_rate=0.1):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(1, dims[0], kernel_size=2, stride=2), LayerNorm2d(dims[0], eps=1e-6)
        )
        self.downsample = nn.Sequential(
            LayerNorm2d(dims[0], eps=1e-6), nn.Conv2d(dims[0], dims[1], kernel_size=2, stride=2)
        )
        rates = torch.linspace(0, drop_path_rate, sum(depths)).tolist()
        self.stage1 = nn.Sequential(*[Block(dims[0], r) for r in rates[: depths[0]]])
        self.stage2 = nn.Sequential(*[Block(dims[1], r) for r in rates[depths[0] :]])
        self.norm, self.head = nn.LayerNorm(dims[-1], eps=1e-6), nn.Linear(dims[-1], num_classes)
        self.apply(self._init_weights)

    def _init_weights(self, m):
        if isinstance(m, (nn.Conv2d, nn.Linear)):
            nn.init.trunc_normal_(m.weight, std=0.1)
            nn.init.constant_(m.bias, 0)

    def forward(self, x):
        x = self.stem(x)
        x = checkpoint(self.stage1, x, use_reentrant=False) if self.training else self.stage1(x)
        x = self.stage2(self.downsample(x))
        return self.head(self.norm(x.mean([-2, -1])))


@torch.no_grad()
def evaluate(x, y, model):
    model.eval()
    out = model(x)
    return F.cross_entropy(out, y).item(), (out.argmax(1) == y).float().mean().item()


def main(args):
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 8 - 1, dtype=torch.float32).view(-1, 1, 8, 8), torch.tensor(labels)
    order = torch.randperm(len(x))
    train_idx, val_idx = order[:1347], order[1347:]

    model = ConvNeXt()
    ema = copy.deepcopy(model).requires_grad_(False)
    decay = [p for n, p in model.named_parameters() if p.ndim > 1]
    no_decay = [p for n, p in model.named_parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [
            {"params": decay, "weight_decay": args.weight_decay},
            {"params": no_decay, "weight_decay": 0.0},
        ],
        lr=args.lr,
    )
    steps = math.ceil(len(train_idx) / args.batch_size)
    total, warmup, it = args.epochs * steps, args.warmup_epochs * steps, 0
    for epoch in range(args.epochs):
        model.train()
        loss_sum = 0.0
        for idx in train_idx[torch.randperm(len(train_idx))].split(args.batch_size):
            lr = (
                args.lr * (it + 1) / warmup
                if it < warmup
                else 0.5 * args.lr * (1 + math.cos(math.pi * (it - warmup) / (total - warmup)))
            )
            for group in optimizer.param_groups:
                group["lr"] = lr
            loss = F.cross_entropy(model(x[idx]), y[idx], label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            it += 1
            loss_sum += loss.item()
            with torch.no_grad():
                for pe, p in zip(ema.parameters(), model.parameters()):
                    pe.lerp_(p, 1 - args.model_ema_decay)
        val_loss, acc = evaluate(x[val_idx], y[val_idx], model)
        _, ema_acc = evaluate(x[val_idx], y[val_idx], ema)
        print(
            f"Epoch: [{epoch}] lr {lr:.5f} loss {loss_sum / steps:.4f} val loss {val_loss:.4f} acc {acc:.4f} ema acc {ema_acc:.4f}"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser("ConvNeXt training")
    parser.add_argument("seed", nargs="?", default=0, type=int)
    parser.add_argument("--batch_size", default=64, type=int)
    parser.add_argument("--epochs", default=20, type=int)
    parser.add_argument("--warmup_epochs", default=2, type=int)
    parser.add_argument("--lr", default=4e-3, type=float)
    parser.add_argument("--weight_decay", default=0.05, type=float)
    parser.add_argument("--model_ema_decay", default=0.97, type=float)
    main(parser.parse_args())
