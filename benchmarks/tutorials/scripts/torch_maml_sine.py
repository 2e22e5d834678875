"""Second-order MAML on sine waves (functional inner step), in the manner of the paper's sinusoid experiment and torch.func examples."""

import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call

parser = argparse.ArgumentParser()
parser.add_argument("seed", type=int, nargs="?", default=0)
parser.add_argument("--meta-lr", type=float, default=2e-3)
parser.add_argument("--inner-lr", type=float, default=0.02)
parser.add_argument("--k-shot", type=int, default=10)
parser.add_argument("--tasks", type=int, default=8)
parser.add_argument("--iterations", type=int, default=800)
args = parser.parse_args()

torch.set_num_threads(1)
torch.manual_seed(args.seed)
rng = np.random.default_rng(args.seed)

model = nn.Sequential(nn.Linear(1, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=args.meta_lr)


def sample_task():
    amplitude, phase = rng.uniform(0.1, 5.0), rng.uniform(0, np.pi)

    def batch(n):
        x = torch.tensor(rng.uniform(-5, 5, (n, 1)), dtype=torch.float32)
        return x, amplitude * torch.sin(x - phase)

    return batch


def adapt(params, x, y, steps, create_graph):
    for _ in range(steps):
        loss = F.mse_loss(functional_call(model, params, (x,)), y)
        grads = torch.autograd.grad(loss, params.values(), create_graph=create_graph)
        params = {k: p - args.inner_lr * g for (k, p), g in zip(params.items(), grads)}
    return params


def evaluate(tasks, steps):
    before, after = [], []
    for (xs, ys), (xq, yq) in tasks:
        params = {k: p.detach().requires_grad_() for k, p in model.named_parameters()}
        fast = adapt(params, xs, ys, steps, create_graph=False)
        with torch.no_grad():
            before.append(F.mse_loss(functional_call(model, params, (xq,)), yq).item())
            after.append(F.mse_loss(functional_call(model, fast, (xq,)), yq).item())
    return np.mean(before), np.mean(after)


val_tasks = [(task(args.k_shot), task(100)) for task in (sample_task() for _ in range(40))]
running = 0.0
for it in range(1, args.iterations + 1):
    meta_loss = 0.0
    for _ in range(args.tasks):
        task = sample_task()
        (xs, ys), (xq, yq) = task(args.k_shot), task(args.k_shot)
        fast = adapt(dict(model.named_parameters()), xs, ys, 1, create_graph=True)
        meta_loss = meta_loss + F.mse_loss(functional_call(model, fast, (xq,)), yq)
    meta_loss = meta_loss / args.tasks
    optimizer.zero_grad()
    meta_loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
    optimizer.step()
    running = meta_loss.item() if it == 1 else 0.95 * running + 0.05 * meta_loss.item()
    if it % 100 == 0:
        before, after = evaluate(val_tasks, steps=5)
        print(
            f"iter {it} meta loss {running:.3f} val before {before:.3f} after 5 steps {after:.3f}"
        )
