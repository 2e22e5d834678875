"""Neural collaborative ranking with the BPR loss on made-up clicks, hit rate at 10 with leave-one-out, in the manner of recommender tutorials."""

import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
torch.manual_seed(seed)
rng = np.random.default_rng(seed)

N_USERS, N_ITEMS, CLICKS = 500, 240, 25


def simulate():
    """Users like some of six genres and popular items; they click on 25 different items."""
    taste = rng.dirichlet(np.full(6, 0.25), N_USERS)
    genre = rng.dirichlet(np.full(6, 0.15), N_ITEMS)
    popular = rng.gamma(2.0, 1.0, N_ITEMS)
    p = popular * (taste @ genre.T) ** 2 + 1e-4
    clicks = [rng.choice(N_ITEMS, CLICKS, replace=False, p=row / row.sum()) for row in p]
    return [c[:-2] for c in clicks], [c[-2] for c in clicks], [c[-1] for c in clicks]


class BPRDataset(Dataset):
    def __init__(self, train):
        self.pairs = [(u, i) for u, items in enumerate(train) for i in items]
        self.seen = [set(items.tolist()) for items in train]

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, k):
        user, pos = self.pairs[k]
        neg = int(torch.randint(N_ITEMS, (1,)))
        while neg in self.seen[user]:
            neg = int(torch.randint(N_ITEMS, (1,)))
        return user, int(pos), neg


class NeuMF(nn.Module):
    """A product of embeddings beside a small network on another pair of embeddings."""

    def __init__(self, dim=16):
        super().__init__()
        self.user_gmf, self.item_gmf = nn.Embedding(N_USERS, dim), nn.Embedding(N_ITEMS, dim)
        self.user_mlp, self.item_mlp = nn.Embedding(N_USERS, dim), nn.Embedding(N_ITEMS, dim)
        for table in (self.user_gmf, self.item_gmf, self.user_mlp, self.item_mlp):
            nn.init.normal_(table.weight, std=0.1)
        self.mlp = nn.Sequential(
            nn.Linear(2 * dim, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 16), nn.ReLU()
        )
        self.out = nn.Linear(dim + 16, 1, bias=False)
        nn.init.ones_(self.out.weight[:, :dim])

    def forward(self, user, item):
        gmf = self.user_gmf(user) * self.item_gmf(item)
        mlp = self.mlp(torch.cat([self.user_mlp(user), self.item_mlp(item)], dim=-1))
        return self.out(torch.cat([gmf, mlp], dim=-1)).squeeze(-1)


@torch.no_grad()
def hit_rate(model, held_out, hidden, k=10):
    model.eval()
    hits = 0
    items = torch.arange(N_ITEMS)
    for user, target in enumerate(held_out):
        scores = model(torch.full((N_ITEMS,), user), items)
        scores[list(hidden[user])] = -1e9
        hits += int(target) in scores.topk(k).indices.tolist()
    return hits / len(held_out)


train, valid, test = simulate()
dataset = BPRDataset(train)
loader = DataLoader(dataset, batch_size=256, shuffle=True)
model = NeuMF()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=1e-4)
print(f"hit rate of a random list: {10 / (N_ITEMS - CLICKS + 2):.3f}")
for epoch in range(10):
    model.train()
    total = 0.0
    for user, pos, neg in loader:
        loss = -F.logsigmoid(model(user, pos) - model(user, neg)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(user)
    print(
        f"epoch {epoch + 1}: loss {total / len(dataset):.4f} valid hit rate {hit_rate(model, valid, dataset.seen):.3f}"
    )
print(
    "test hit rate at 10:",
    hit_rate(model, test, [s | {int(v)} for s, v in zip(dataset.seen, valid)]),
)
