"""Conditional DDPM with classifier-free guidance on scikit-learn's digits, in the manner of TeaPearce's Conditional_Diffusion_MNIST; a classifier judges the samples."""

import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

torch.set_num_threads(1)


class EmbedFC(nn.Module):
    def __init__(self, input_dim, emb_dim):
        super().__init__()
        self.model = nn.Sequential(
            nn.Linear(input_dim, emb_dim), nn.GELU(), nn.Linear(emb_dim, emb_dim)
        )

    def forward(self, x):
        return self.model(x)


class ContextNet(nn.Module):
    """Residual MLP for 8 x 8 pictures; time and class come in at every block."""

    def __init__(self, dim=64, hidden=192, n_classes=10, blocks=3):
        super().__init__()
        self.n_classes = n_classes
        self.inp = nn.Linear(dim, hidden)
        self.time = nn.ModuleList([EmbedFC(1, hidden) for _ in range(blocks)])
        self.context = nn.ModuleList([EmbedFC(n_classes, hidden) for _ in range(blocks)])
        self.body = nn.ModuleList(
            [
                nn.Sequential(
                    nn.LayerNorm(hidden),
                    nn.Linear(hidden, hidden),
                    nn.GELU(),
                    nn.Linear(hidden, hidden),
                )
                for _ in range(blocks)
            ]
        )
        self.out = nn.Sequential(nn.LayerNorm(hidden), nn.Linear(hidden, dim))

    def forward(self, x, c, t, context_mask):
        c = F.one_hot(c, self.n_classes).float() * (1 - context_mask[:, None])
        h = self.inp(x)
        for time, context, body in zip(self.time, self.context, self.body):
            h = h + body(context(c) * h + time(t[:, None]))
        return self.out(h)


class DDPM(nn.Module):
    def __init__(self, nn_model, betas, n_T, drop_prob=0.1):
        super().__init__()
        self.nn_model, self.n_T, self.drop_prob = nn_model, n_T, drop_prob
        beta_t = torch.linspace(*betas, n_T + 1)
        alpha_t = 1 - beta_t
        alphabar_t = torch.cumprod(alpha_t, 0)
        for name, value in {
            "oneover_sqrta": 1 / alpha_t.sqrt(),
            "sqrt_beta_t": beta_t.sqrt(),
            "sqrtab": alphabar_t.sqrt(),
            "sqrtmab": (1 - alphabar_t).sqrt(),
            "mab_over_sqrtmab": (1 - alpha_t) / (1 - alphabar_t).sqrt(),
        }.items():
            self.register_buffer(name, value)

    def forward(self, x, c):
        ts = torch.randint(1, self.n_T + 1, (len(x),))
        noise = torch.randn_like(x)
        x_t = self.sqrtab[ts, None] * x + self.sqrtmab[ts, None] * noise
        context_mask = torch.bernoulli(torch.full((len(x),), self.drop_prob))
        return F.mse_loss(noise, self.nn_model(x_t, c, ts / self.n_T, context_mask))

    @torch.no_grad()
    def sample(self, c, guide_w=1.0):
        x = torch.randn(len(c), 64)
        c2, mask = c.repeat(2), torch.cat([torch.zeros(len(c)), torch.ones(len(c))])
        for i in range(self.n_T, 0, -1):
            z = torch.randn_like(x) if i > 1 else 0
            t = torch.full((2 * len(c),), i / self.n_T)
            eps1, eps2 = self.nn_model(x.repeat(2, 1), c2, t, mask).chunk(2)
            eps = (1 + guide_w) * eps1 - guide_w * eps2
            x = (
                self.oneover_sqrta[i] * (x - eps * self.mab_over_sqrtmab[i])
                + self.sqrt_beta_t[i] * z
            )
        return x


def train_mnist(seed):
    torch.manual_seed(seed)
    x, y = load_digits(return_X_y=True)
    judge = LogisticRegression(max_iter=500).fit(x / 8 - 1, y)
    x, y = torch.tensor(x / 8 - 1, dtype=torch.float32), torch.tensor(y)
    order = torch.randperm(len(x))
    tr, va = order[:1500], order[1500:]

    n_epoch, batch_size, lrate = 30, 64, 1e-3
    ddpm = DDPM(ContextNet(), betas=(1e-4, 0.1), n_T=100)
    optim = torch.optim.Adam(ddpm.parameters(), lr=lrate)
    loss_ema = None
    for ep in range(n_epoch):
        ddpm.train()
        optim.param_groups[0]["lr"] = lrate * (1 - ep / n_epoch)
        for idx in tr[torch.randperm(len(tr))].split(batch_size):
            optim.zero_grad()
            loss = ddpm(x[idx], y[idx])
            loss.backward()
            loss_ema = loss.item() if loss_ema is None else 0.95 * loss_ema + 0.05 * loss.item()
            optim.step()
        ddpm.eval()
        with torch.no_grad():
            val = sum(ddpm(x[va], y[va]).item() for _ in range(10)) / 10
        line = f"epoch {ep} loss: {loss_ema:.4f} val: {val:.4f}"
        if ep % 10 == 9:
            c = torch.arange(10).repeat(20)
            for w in (0.0, 1.0):
                agreed = judge.score(ddpm.sample(c, w).clamp(-1, 1).numpy(), c.numpy())
                line += f" | w={w} judged right {agreed:.3f}"
        print(line)


if __name__ == "__main__":
    train_mnist(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
