"""DPO on a tiny character GPT: a language model of Python help pages, then preference pairs by an annotator who likes vowels, in the manner of minGPT and eric-mitchell's direct-preference-optimization."""

import copy
import pydoc_data.topics
import random
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(int(sys.argv[1]) if len(sys.argv) > 1 else 0)

block_size, n_embd, n_head, n_layer, beta = 24, 64, 4, 2, 0.1
PROMPT, ANSWER = 10, 14

pages = [v for _, v in sorted(pydoc_data.topics.topics.items())]
random.Random(0).shuffle(pages)
text = "".join(
    c if c.isalpha() and c.isascii() or c in ".," else " " for c in "".join(pages).lower()
)
text = " ".join(text.split())[:200_000]
chars = sorted(set(text))
stoi = {c: i for i, c in enumerate(chars)}
data = torch.tensor([stoi[c] for c in text])
n = int(0.9 * len(data))
train_data, val_data = data[:n], data[n:]


def get_batch(split, batch=32, length=block_size):
    d = train_data if split == "train" else val_data
    ix = torch.randint(len(d) - length - 1, (batch,))
    return torch.stack([d[i : i + length] for i in ix]), torch.stack(
        [d[i + 1 : i + 1 + length] for i in ix]
    )


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.attn = nn.MultiheadAttention(n_embd, n_head, batch_first=True)
        self.mlp = nn.Sequential(
            nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd)
        )

    def forward(self, x):
        t = x.shape[1]
        mask = torch.triu(torch.ones(t, t, dtype=torch.bool), 1)
        h = self.ln_1(x)
        x = x + self.attn(h, h, h, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(len(chars), n_embd), nn.Embedding(block_size, n_embd)
        self.h = nn.Sequential(*[Block() for _ in range(n_layer)])
        self.ln_f, self.lm_head = nn.LayerNorm(n_embd), nn.Linear(n_embd, len(chars), bias=False)

    def forward(self, idx):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
        return self.lm_head(self.ln_f(self.h(x)))


@torch.no_grad()
def sample(model, prompts):
    seq = prompts
    for _ in range(ANSWER):
        probs = F.softmax(model(seq)[:, -1], -1)
        seq = torch.cat([seq, torch.multinomial(probs, 1)], 1)
    return seq


VOWELS = torch.tensor([float(c.lower() in "aeiou") for c in chars])


def preference_score(seq):
    """The 'annotator' likes answers with many vowels."""
    return VOWELS[seq[:, PROMPT:]].mean(1)


def get_batch_logps(model, seq):
    logps = torch.log_softmax(model(seq[:, :-1]), -1).gather(2, seq[:, 1:, None])[..., 0]
    return logps[:, PROMPT - 1 :].sum(1)


def preference_loss(policy, reference, chosen, rejected):
    pi = get_batch_logps(policy, chosen) - get_batch_logps(policy, rejected)
    with torch.no_grad():
        ref = get_batch_logps(reference, chosen) - get_batch_logps(reference, rejected)
    logits = beta * (pi - ref)
    return -F.logsigmoid(logits).mean(), (logits > 0).float().mean(), logits.mean()


def make_pairs(model, count, split):
    prompts = get_batch(split, count, PROMPT)[0]
    a, b = sample(model, prompts), sample(model, prompts)
    sa, sb = preference_score(a), preference_score(b)
    keep = (sa - sb).abs() > 0.05
    swap = (sb > sa)[:, None]
    return torch.where(swap, b, a)[keep], torch.where(swap, a, b)[keep]


model = GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(260):
    x, y = get_batch("train")
    loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 99:
        with torch.no_grad():
            x, y = get_batch("val", 128)
            val = F.cross_entropy(model(x).flatten(0, 1), y.flatten()).item()
        print(f"sft step {step + 1} train {loss.item():.3f} val {val:.3f}")

reference = copy.deepcopy(model).eval().requires_grad_(False)
chosen, rejected = make_pairs(reference, 1200, "train")
val_chosen, val_rejected = make_pairs(reference, 200, "val")
print(len(chosen), "pairs")
optimizer = torch.optim.RMSprop(model.parameters(), lr=5e-5)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 20))
step = 0
for epoch in range(3):
    model.train()
    for idx in torch.randperm(len(chosen)).split(32):
        loss, acc, margin = preference_loss(model, reference, chosen[idx], rejected[idx])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        scheduler.step()
        step += 1
    model.eval()
    with torch.no_grad():
        vloss, vacc, vmargin = preference_loss(model, reference, val_chosen, val_rejected)
    vowels = preference_score(sample(model, get_batch("val", 100, PROMPT)[0])).mean()
    print(
        f"dpo epoch {epoch} loss {loss.item():.4f} val loss {vloss.item():.4f} val accuracy {vacc.item():.3f} "
        f"margin {vmargin.item():.3f} vowels {vowels:.3f}"
    )
