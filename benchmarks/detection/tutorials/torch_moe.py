"""Mixture of experts with a top-2 gate and a load balance loss on a made-up task with several regimes, in the manner of sparse MoE walk-throughs."""

import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(int(sys.argv[1]) if len(sys.argv) > 1 else 0)


class Expert(nn.Module):
    def __init__(self, d_model, d_hidden):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(d_model, d_hidden), nn.GELU(), nn.Linear(d_hidden, d_model)
        )

    def forward(self, x):
        return self.net(x)


class MoELayer(nn.Module):
    def __init__(self, d_model=32, d_hidden=48, n_experts=4, k=2):
        super().__init__()
        self.gate = nn.Linear(d_model, n_experts, bias=False)
        self.experts = nn.ModuleList([Expert(d_model, d_hidden) for _ in range(n_experts)])
        self.n_experts, self.k = n_experts, k

    def forward(self, x):
        probs = F.softmax(self.gate(x), dim=-1)
        weight, chosen = probs.topk(self.k, dim=-1)
        weight = weight / weight.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            rows, slot = torch.where(chosen == i)
            if len(rows):
                out = out.index_add(0, rows, weight[rows, slot, None] * expert(x[rows]))
        share = F.one_hot(chosen, self.n_experts).float().sum(1).mean(0) / self.k
        balance = self.n_experts * (share * probs.mean(0)).sum()
        return out, balance, share.detach()


class MoEClassifier(nn.Module):
    def __init__(self, n_in=10, n_classes=4, d_model=32):
        super().__init__()
        self.inp = nn.Linear(n_in, d_model)
        self.norm = nn.LayerNorm(d_model)
        self.moe = MoELayer(d_model)
        self.head = nn.Linear(d_model, n_classes)

    def forward(self, x):
        h = self.inp(x)
        mixed, balance, share = self.moe(self.norm(h))
        return self.head(h + mixed), balance, share


def make_data(n, rules):
    """Which of four linear rules gives the class depends on the quadrant of the first two columns."""
    x = torch.randn(n, 10)
    regime = 2 * (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
    y = torch.einsum("ni,nic->nc", x, rules[regime]).argmax(1)
    return x, y


rules = torch.randn(4, 10, 4)
x_train, y_train = make_data(6000, rules)
x_valid, y_valid = make_data(1000, rules)
model = MoEClassifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.02)
epochs, batch_size = 12, 100
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs)
for epoch in range(epochs):
    model.train()
    ce_sum = aux_sum = 0.0
    for idx in torch.randperm(len(x_train)).split(batch_size):
        logits, balance, _ = model(x_train[idx])
        ce = F.cross_entropy(logits, y_train[idx])
        loss = ce + 0.01 * balance
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ce_sum, aux_sum = ce_sum + ce.item() * len(idx), aux_sum + balance.item() * len(idx)
    scheduler.step()
    model.eval()
    with torch.no_grad():
        logits, _, share = model(x_valid)
    acc = (logits.argmax(1) == y_valid).float().mean().item()
    n = len(x_train)
    print(
        f"epoch {epoch + 1:2d} train {ce_sum / n:.3f} balance {aux_sum / n:.3f} use {[round(s, 2) for s in share.tolist()]} "
        f"valid {F.cross_entropy(logits, y_valid).item():.3f} accuracy {acc:.3f}"
    )
