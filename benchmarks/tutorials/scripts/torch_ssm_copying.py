"""A small diagonal state-space model with a gated (Mamba-like) block on the selective copying task, in the manner of alxndrTL's mamba.py and the S4 repository."""

import sys
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(int(sys.argv[1]) if len(sys.argv) > 1 else 0)


@dataclass
class MambaConfig:
    d_model: int = 48
    n_layers: int = 2
    d_state: int = 8
    expand: int = 2
    d_conv: int = 4
    vocab: int = 8  # 0 is noise, 7 asks for the answer
    n_memorize: int = 3
    length: int = 12


cfg = MambaConfig()


def selective_copying(batch):
    """Few symbols scattered between noise; the model must give them back in order at the end."""
    tokens = torch.randint(1, cfg.vocab - 1, (batch, cfg.n_memorize))
    places = torch.rand(batch, cfg.length).argsort(1)[:, : cfg.n_memorize].sort(1).values
    x = torch.zeros(batch, cfg.length, dtype=torch.long).scatter(1, places, tokens)
    ask = torch.full((batch, cfg.n_memorize), cfg.vocab - 1)
    return torch.cat([x, ask], 1), tokens


class RMSNorm(nn.Module):
    def __init__(self, d, eps=1e-5):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(d))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class MambaBlock(nn.Module):
    def __init__(self, c: MambaConfig):
        super().__init__()
        d_inner, self.dt_rank = c.expand * c.d_model, 4
        self.in_proj = nn.Linear(c.d_model, 2 * d_inner, bias=False)
        self.conv1d = nn.Conv1d(d_inner, d_inner, c.d_conv, groups=d_inner, padding=c.d_conv - 1)
        self.x_proj = nn.Linear(d_inner, self.dt_rank + 2 * c.d_state, bias=False)
        self.dt_proj = nn.Linear(self.dt_rank, d_inner)
        dt = torch.exp(torch.empty(d_inner).uniform_(-5.0, -2.0))
        with torch.no_grad():
            self.dt_proj.bias.copy_(dt + torch.log(-torch.expm1(-dt)))
        self.A_log = nn.Parameter(torch.log(torch.arange(1.0, c.d_state + 1).repeat(d_inner, 1)))
        self.D = nn.Parameter(torch.ones(d_inner))
        self.out_proj = nn.Linear(d_inner, c.d_model, bias=False)
        self.d_state = c.d_state

    def forward(self, x):
        length = x.shape[1]
        x, z = self.in_proj(x).chunk(2, -1)
        x = F.silu(self.conv1d(x.transpose(1, 2))[..., :length].transpose(1, 2))
        return self.out_proj(self.ssm(x) * F.silu(z))

    def ssm(self, x):
        A = -torch.exp(self.A_log)
        delta, B, C = self.x_proj(x).split([self.dt_rank, self.d_state, self.d_state], -1)
        delta = F.softplus(self.dt_proj(delta))
        deltaA = torch.exp(delta[..., None] * A)
        BX = delta[..., None] * B[:, :, None] * x[..., None]
        h = torch.zeros_like(BX[:, 0])
        ys = []
        for t in range(x.shape[1]):
            h = deltaA[:, t] * h + BX[:, t]
            ys.append((h * C[:, t, None]).sum(-1))
        return torch.stack(ys, 1) + self.D * x


class Mamba(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embedding = nn.Embedding(c.vocab, c.d_model)
        self.layers = nn.ModuleList([MambaBlock(c) for _ in range(c.n_layers)])
        self.norms = nn.ModuleList([RMSNorm(c.d_model) for _ in range(c.n_layers)])
        self.norm_f, self.lm_head = RMSNorm(c.d_model), nn.Linear(c.d_model, c.vocab, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for norm, layer in zip(self.norms, self.layers):
            x = x + layer(norm(x))
        return self.lm_head(self.norm_f(x))[:, -cfg.n_memorize :]


model = Mamba(cfg)
optim = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.01)
sched = torch.optim.lr_scheduler.OneCycleLR(optim, 4e-3, total_steps=300, pct_start=0.1)
val_x, val_y = selective_copying(500)
for step in range(1, 301):
    x, y = selective_copying(48)
    loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
    optim.zero_grad()
    loss.backward()
    grad_norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optim.step()
    sched.step()
    if step % 30 == 0:
        model.eval()
        with torch.no_grad():
            logits = model(val_x)
            val_loss = F.cross_entropy(logits.flatten(0, 1), val_y.flatten()).item()
            acc = (logits.argmax(-1) == val_y).float().mean().item()
        model.train()
        print(
            f"step {step} loss {loss.item():.4f} gnorm {grad_norm:.3f} val loss {val_loss:.4f} val acc {acc:.4f}"
        )
