"""GRPO on a tiny GPT: warm start on noisy sums, then group-relative policy optimisation with a verifiable reward, in the manner of TRL's and the open R1 replications."""

import copy
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(int(sys.argv[1]) if len(sys.argv) > 1 else 0)

# prompts are "a + b =", completions are two digits; tokens 0-9 digits, 10 '+', 11 '='
VOCAB, CTX, D, HEADS, LAYERS = 12, 8, 64, 4, 2
GROUP, PROMPTS, BETA, CLIP = 8, 16, 0.02, 0.2


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.proj = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.mlp = nn.Sequential(nn.Linear(D, 4 * D), nn.GELU(), nn.Linear(4 * D, D))

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (
            z.view(b, t, HEADS, D // HEADS).transpose(1, 2)
            for z in self.qkv(self.ln1(x)).chunk(3, -1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, D))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCAB, D), nn.Embedding(CTX, D)
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.ln_f, self.head = nn.LayerNorm(D), nn.Linear(D, VOCAB, bias=False)
        self.apply(self._init)

    def _init(self, m):
        if isinstance(m, (nn.Linear, nn.Embedding)):
            nn.init.normal_(m.weight, std=0.02)
        if isinstance(m, nn.Linear) and m.bias is not None:
            nn.init.zeros_(m.bias)

    def forward(self, idx):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln_f(x))


def make_prompts(n):
    a, b = torch.randint(0, 10, (n,)), torch.randint(0, 10, (n,))
    ten, eq = torch.full((n,), 10), torch.full((n,), 11)
    return torch.stack([a, ten, b, eq], 1), a + b


def reward_fn(completions, answers):
    """1 for the right sum, 0.1 for a well-formed number."""
    value = completions[:, 0] * 10 + completions[:, 1]
    well_formed = (completions < 10).all(1)
    return (well_formed & (value == answers)).float() + 0.1 * well_formed.float()


@torch.no_grad()
def generate(model, prompts, greedy=False):
    seq = prompts
    for _ in range(2):
        logits = model(seq)[:, -1]
        nxt = logits.argmax(-1) if greedy else torch.multinomial(F.softmax(logits, -1), 1)[:, 0]
        seq = torch.cat([seq, nxt[:, None]], 1)
    return seq


def completion_logps(model, seq):
    logits = model(seq[:, :-1])[:, 3:]
    return torch.log_softmax(logits, -1).gather(-1, seq[:, 4:, None])[..., 0]


@torch.no_grad()
def evaluate(model):
    model.eval()
    a, b = torch.meshgrid(torch.arange(10), torch.arange(10), indexing="ij")
    a, b = a.flatten(), b.flatten()
    prompts = torch.stack([a, torch.full((100,), 10), b, torch.full((100,), 11)], 1)
    seq = generate(model, prompts, greedy=True)
    model.train()
    return (reward_fn(seq[:, 4:], a + b) > 1).float().mean().item()


model = GPT()

# 1. supervised warm start, where 30 % of the answers are wrong
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(500):
    prompts, answers = make_prompts(64)
    noisy = torch.where(torch.rand(64) < 0.3, torch.randint(0, 19, (64,)), answers)
    seq = torch.cat([prompts, (noisy // 10)[:, None], (noisy % 10)[:, None]], 1)
    loss = F.cross_entropy(model(seq[:, :-1])[:, 3:].reshape(-1, VOCAB), seq[:, 4:].reshape(-1))
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 100 == 99:
        print(f"sft step {step + 1} loss {loss.item():.3f} exact match {evaluate(model):.3f}")

# 2. GRPO
ref = copy.deepcopy(model).eval().requires_grad_(False)
opt = torch.optim.AdamW(model.parameters(), lr=2e-4, weight_decay=0.0)
for step in range(160):
    prompts, answers = make_prompts(PROMPTS)
    prompts, answers = prompts.repeat_interleave(GROUP, 0), answers.repeat_interleave(GROUP, 0)
    seq = generate(model, prompts)
    rewards = reward_fn(seq[:, 4:], answers).view(PROMPTS, GROUP)
    adv = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)
    adv = adv.view(-1, 1)
    with torch.no_grad():
        old_logps = completion_logps(model, seq)
        ref_logps = completion_logps(ref, seq)
    for _ in range(2):
        logps = completion_logps(model, seq)
        ratio = (logps - old_logps).exp()
        policy = -torch.min(ratio * adv, ratio.clamp(1 - CLIP, 1 + CLIP) * adv)
        kl = (ref_logps - logps).exp() - (ref_logps - logps) - 1
        loss = (policy + BETA * kl).mean()
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
    if step % 20 == 19:
        print(
            f"grpo step {step + 1} reward {rewards.mean():.3f} kl {kl.mean():.4f} "
            f"exact match {evaluate(model):.3f}"
        )
print("final exact match", evaluate(model))
