"""Gradient accumulation over four small batches and an average of the weights for evaluation, convolutional network on digits, in the manner of training recipes at work."""

import argparse
import logging

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, TensorDataset

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
log = logging.getLogger("train")


def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("seed", nargs="?", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument("--micro-batch", type=int, default=24)
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--ema-decay", type=float, default=0.97)
    return parser.parse_args()


def build_model():
    def conv(cin, cout):
        return [nn.Conv2d(cin, cout, 3, padding=1), nn.GroupNorm(4, cout), nn.SiLU()]

    return nn.Sequential(
        *conv(1, 16),
        *conv(16, 32),
        nn.MaxPool2d(2),
        *conv(32, 32),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 10),
    )


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    loss = right = n = 0
    for x, y in loader:
        logits = model(x)
        loss += nn.functional.cross_entropy(logits, y, reduction="sum").item()
        right += (logits.argmax(1) == y).sum().item()
        n += len(y)
    return loss / n, right / n


def main():
    args = get_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    x, y = load_digits(return_X_y=True)
    x = (x.reshape(-1, 1, 8, 8).astype("float32") / 16 - 0.3) / 0.38
    parts = train_test_split(x, y, test_size=0.2, stratify=y, random_state=args.seed)
    x_train, x_valid, y_train, y_valid = (torch.tensor(p) for p in parts)
    loader = DataLoader(
        TensorDataset(x_train, y_train), batch_size=args.micro_batch, shuffle=True, drop_last=True
    )
    valid_loader = DataLoader(TensorDataset(x_valid, y_valid), batch_size=256)

    model = build_model()
    ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(args.ema_decay))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.05)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    step, running = 0, 0.0
    for epoch in range(args.epochs):
        model.train()
        optimizer.zero_grad()
        for i, (xb, yb) in enumerate(loader, 1):
            loss = criterion(model(xb), yb) / args.accumulate
            loss.backward()
            running += loss.item()
            if i % args.accumulate == 0:
                nn.utils.clip_grad_norm_(model.parameters(), 5.0)
                optimizer.step()
                optimizer.zero_grad()
                ema.update_parameters(model)
                step += 1
        if epoch % 2 == 1:
            plain, averaged = evaluate(model, valid_loader), evaluate(ema, valid_loader)
            log.info(
                "epoch %d step %d weights %.4f / %.3f average %.4f / %.3f",
                epoch + 1,
                step,
                *plain,
                *averaged,
            )
    print("validation accuracy of averaged weights", evaluate(ema, valid_loader)[1])


if __name__ == "__main__":
    main()
