"""TransE with margin ranking loss and filtered hits@10 on a made-up map of towns, in the manner of OpenKE and PyKEEN."""

import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
torch.manual_seed(seed)
rng = np.random.default_rng(seed)

# towns on a hidden grid; the relations say who lies how of whom
side, relations = (
    14,
    {
        "east": (1, 0),
        "north": (0, 1),
        "northeast": (1, 1),
        "two_east": (2, 0),
        "southeast": (1, -1),
    },
)
triples = []
for x in range(side):
    for y in range(side):
        for r, (dx, dy) in enumerate(relations.values()):
            if 0 <= x + dx < side and 0 <= y + dy < side:
                triples.append((x * side + y, r, (x + dx) * side + y + dy))
triples = torch.tensor(triples)[torch.randperm(len(triples))]
n_entities, n_relations = side * side, len(relations)
valid, train = triples[:100], triples[100:]


class TransE(nn.Module):
    def __init__(self, ent_tot, rel_tot, dim=24, margin=0.5, p_norm=2):
        super().__init__()
        self.ent_embeddings, self.rel_embeddings = (
            nn.Embedding(ent_tot, dim),
            nn.Embedding(rel_tot, dim),
        )
        bound = 6 / dim**0.5
        nn.init.uniform_(self.ent_embeddings.weight, -bound, bound)
        nn.init.uniform_(self.rel_embeddings.weight, -bound, bound)
        with torch.no_grad():
            self.rel_embeddings.weight.copy_(F.normalize(self.rel_embeddings.weight, dim=1))
        self.normalize()
        self.criterion = nn.MarginRankingLoss(margin=margin)
        self.p_norm = p_norm

    def distance(self, triplets):
        h, t = self.ent_embeddings(triplets[:, 0]), self.ent_embeddings(triplets[:, 2])
        return (h + self.rel_embeddings(triplets[:, 1]) - t).norm(p=self.p_norm, dim=1)

    def forward(self, positive, negative):
        d_pos, d_neg = self.distance(positive), self.distance(negative)
        return self.criterion(d_pos, d_neg, -torch.ones_like(d_pos))

    @torch.no_grad()
    def normalize(self):
        w = self.ent_embeddings.weight
        w.copy_(w / w.norm(dim=1, keepdim=True).clamp(min=1.0))


def corrupt(batch):
    negative = batch.clone()
    head = torch.rand(len(batch)) < 0.5
    other = torch.randint(n_entities, (len(batch),))
    negative[:, 0] = torch.where(head, other, negative[:, 0])
    negative[:, 2] = torch.where(head, negative[:, 2], other)
    return negative


known = {(h, r): set() for h, r, _ in triples.tolist()}
for h, r, t in triples.tolist():
    known[h, r].add(t)


@torch.no_grad()
def evaluate(model):
    model.eval()
    ranks = []
    tails = torch.arange(n_entities)
    for h, r, t in valid.tolist():
        d = model.distance(
            torch.stack([torch.full_like(tails, h), torch.full_like(tails, r), tails], 1)
        )
        for other in known[h, r] - {t}:
            d[other] = float("inf")
        ranks.append((d < d[t]).sum().item() + 1)
    ranks = np.array(ranks)
    model.train()
    return (ranks <= 10).mean(), (1 / ranks).mean()


model = TransE(n_entities, n_relations)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 80)
for epoch in range(80):
    losses = []
    for idx in torch.randperm(len(train)).split(64):
        positive = train[idx].repeat(4, 1)
        loss = model(positive, corrupt(positive))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.normalize()
        losses.append(loss.item())
    scheduler.step()
    if epoch % 8 == 7:
        hits, mrr = evaluate(model)
        print(
            f"Epoch {epoch + 1} | loss: {np.mean(losses):.4f} | hits@10 {hits:.3f} | MRR {mrr:.3f}"
        )
