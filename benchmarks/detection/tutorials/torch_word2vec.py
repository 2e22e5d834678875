"""Skip-gram word vectors with negative sampling on Python's help pages, sparse embeddings, in the manner of word2vec walk-throughs."""

import pydoc_data.topics
import re
import sys
from collections import Counter

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
torch.manual_seed(seed)
rng = np.random.default_rng(seed)

WINDOW, NEGATIVES, DIM, BATCH = 3, 5, 32, 512

text = " ".join(page for _, page in sorted(pydoc_data.topics.topics.items())).lower()
tokens = re.findall(r"[a-z]{2,}", text)[:60_000]
vocab = [w for w, n in Counter(tokens).most_common(800)]
index = {w: i for i, w in enumerate(vocab)}
ids = np.array([index[w] for w in tokens if w in index])
freq = np.bincount(ids, minlength=len(vocab)) / len(ids)
keep = rng.random(len(ids)) < np.sqrt(1e-3 / freq[ids])  # leave out some of the most frequent words
ids = ids[keep]

centre, context = [], []
for shift in range(1, WINDOW + 1):
    centre += [ids[:-shift], ids[shift:]]
    context += [ids[shift:], ids[:-shift]]
pairs = torch.tensor(np.stack([np.concatenate(centre), np.concatenate(context)], axis=1))
pairs = pairs[torch.randperm(len(pairs))]
train_pairs, valid_pairs = pairs[5000:], pairs[:5000]
noise = torch.tensor(freq**0.75, dtype=torch.float32)
print(len(vocab), "words,", len(train_pairs), "pairs")


class SkipGram(nn.Module):
    def __init__(self):
        super().__init__()
        self.inputs = nn.Embedding(len(vocab), DIM, sparse=True)
        self.outputs = nn.Embedding(len(vocab), DIM, sparse=True)
        nn.init.uniform_(self.inputs.weight, -0.5 / DIM**0.5, 0.5 / DIM**0.5)
        nn.init.uniform_(self.outputs.weight, -0.5 / DIM**0.5, 0.5 / DIM**0.5)

    def forward(self, centre, context, negatives):
        v = self.inputs(centre)
        positive = (v * self.outputs(context)).sum(-1)
        negative = torch.bmm(self.outputs(negatives), v.unsqueeze(2)).squeeze(2)
        return -(F.logsigmoid(positive) + F.logsigmoid(-negative).sum(-1)).mean()


def draw(n):
    return torch.multinomial(noise, n * NEGATIVES, replacement=True).view(n, NEGATIVES)


model = SkipGram()
optimizer = torch.optim.SparseAdam(list(model.parameters()), lr=5e-3)
valid_negatives = draw(len(valid_pairs))
for epoch in range(1, 5):
    model.train()
    total = 0.0
    for batch in train_pairs[torch.randperm(len(train_pairs))].split(BATCH):
        loss = model(batch[:, 0], batch[:, 1], draw(len(batch)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(batch)
    model.eval()
    with torch.no_grad():
        valid = model(valid_pairs[:, 0], valid_pairs[:, 1], valid_negatives).item()
    print(f"epoch {epoch}: train {total / len(train_pairs):.4f} valid {valid:.4f}")

vectors = F.normalize(model.inputs.weight.detach(), dim=1)
for word in ("class", "string", "import"):
    near = (vectors @ vectors[index[word]]).topk(5).indices[1:]
    print(word, "->", ", ".join(vocab[i] for i in near))
print(f"valid loss {valid:.4f}")
