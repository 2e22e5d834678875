"""Adversarial training with PGD on digits, clean and robust accuracy after each epoch, in the manner of MadryLab's challenge and locuslab's fast_adversarial."""

import argparse
import logging

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.utils.data import DataLoader, TensorDataset

logging.basicConfig(format="[%(asctime)s] - %(message)s", datefmt="%H:%M:%S", level=logging.INFO)
logger = logging.getLogger(__name__)


def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("seed", nargs="?", default=0, type=int)
    parser.add_argument("--batch-size", default=64, type=int)
    parser.add_argument("--epochs", default=12, type=int)
    parser.add_argument("--lr-max", default=5e-3, type=float)
    parser.add_argument("--attack-iters", default=5, type=int)
    parser.add_argument("--epsilon", default=0.1, type=float)
    parser.add_argument("--alpha", default=0.04, type=float)
    return parser.parse_args()


def attack_pgd(model, X, y, epsilon, alpha, attack_iters):
    delta = torch.empty_like(X).uniform_(-epsilon, epsilon)
    delta.data = torch.clamp(delta, 0 - X, 1 - X)
    for _ in range(attack_iters):
        delta.requires_grad_(True)
        loss = F.cross_entropy(model(X + delta), y)
        (grad,) = torch.autograd.grad(loss, delta)
        delta = torch.clamp(delta.detach() + alpha * grad.sign(), -epsilon, epsilon)
        delta = torch.max(torch.min(delta, 1 - X), 0 - X)
    return delta.detach()


def evaluate(model, loader, args):
    model.eval()
    clean = robust = n = 0
    for X, y in loader:
        delta = attack_pgd(model, X, y, args.epsilon, args.alpha, 10)
        with torch.no_grad():
            clean += (model(X).argmax(1) == y).sum().item()
            robust += (model(X + delta).argmax(1) == y).sum().item()
        n += len(y)
    return clean / n, robust / n


def main():
    args = get_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    X, y = load_digits(return_X_y=True)
    X = torch.tensor(X / 16, dtype=torch.float32).view(-1, 1, 8, 8)
    X_tr, X_te, y_tr, y_te = train_test_split(
        X, torch.tensor(y), test_size=0.25, random_state=args.seed
    )
    train_loader = DataLoader(TensorDataset(X_tr, y_tr), args.batch_size, shuffle=True)
    test_loader = DataLoader(TensorDataset(X_te, y_te), 450)

    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 16, 100),
        nn.ReLU(),
        nn.Linear(100, 10),
    )
    opt = torch.optim.Adam(model.parameters(), lr=args.lr_max)
    total_steps = args.epochs * len(train_loader)
    scheduler = torch.optim.lr_scheduler.CyclicLR(
        opt,
        base_lr=1e-5,
        max_lr=args.lr_max,
        step_size_up=total_steps * 2 // 5,
        step_size_down=total_steps * 3 // 5,
        cycle_momentum=False,
    )
    logger.info("Epoch \t LR \t \t Train Loss \t Train Acc \t Clean \t Robust")
    for epoch in range(args.epochs):
        model.train()
        train_loss = train_acc = train_n = 0
        for X_b, y_b in train_loader:
            delta = attack_pgd(model, X_b, y_b, args.epsilon, args.alpha, args.attack_iters)
            output = model(X_b + delta)
            loss = F.cross_entropy(output, y_b)
            opt.zero_grad()
            loss.backward()
            opt.step()
            scheduler.step()
            train_loss += loss.item() * len(y_b)
            train_acc += (output.argmax(1) == y_b).sum().item()
            train_n += len(y_b)
        clean, robust = evaluate(model, test_loader, args)
        print(
            f"{epoch} \t {scheduler.get_last_lr()[0]:.4f} \t {train_loss / train_n:.4f} \t "
            f"{train_acc / train_n:.4f} \t {clean:.4f} \t {robust:.4f}"
        )


if __name__ == "__main__":
    main()
