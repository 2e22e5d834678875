"""Survival analysis with censored times: a network trained with Cox's partial likelihood (DeepSurv style), concordance index on held-out patients."""

import sys

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(int(sys.argv[1]) if len(sys.argv) > 1 else 0)


def simulate_patients(n):
    x = torch.randn(n, 8)
    risk = 1.2 * x[:, 0] - 0.8 * x[:, 1] + 1.0 * x[:, 2] ** 2 + 0.7 * x[:, 3] * x[:, 4]
    time = -torch.log(torch.rand(n)) / torch.exp(risk - 1.5)
    censored_at = -torch.log(torch.rand(n)) * 3.0
    return x, torch.minimum(time, censored_at), (time <= censored_at).float()


def cox_ph_loss(log_h, durations, events):
    """Negative partial log likelihood (Breslow), the mean over events."""
    order = durations.argsort(descending=True)
    log_h, events = log_h[order], events[order]
    log_cumsum_h = torch.logcumsumexp(log_h, dim=0)
    return -((log_h - log_cumsum_h) * events).sum() / events.sum()


def concordance(log_h, durations, events):
    earlier = (durations[:, None] < durations[None, :]) & (events[:, None] == 1)
    higher = (log_h[:, None] > log_h[None, :]).float()
    return (higher * earlier).sum().item() / earlier.sum().item()


class DeepSurv(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(8, 32),
            nn.ReLU(),
            nn.BatchNorm1d(32),
            nn.Dropout(0.1),
            nn.Linear(32, 32),
            nn.ReLU(),
            nn.BatchNorm1d(32),
            nn.Dropout(0.1),
            nn.Linear(32, 1, bias=False),
        )

    def forward(self, x):
        return self.net(x).squeeze(1)


def main():
    x, t, e = simulate_patients(3000)
    xv, tv, ev = simulate_patients(800)
    print(f"{1 - e.mean():.0%} censored")
    model = DeepSurv()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=1e-4)
    best, waited = float("inf"), 0
    for epoch in range(30):
        model.train()
        total, batches = 0.0, 0
        for idx in torch.randperm(len(x)).split(250):
            optimizer.zero_grad()
            loss = cox_ph_loss(model(x[idx]), t[idx], e[idx])
            loss.backward()
            optimizer.step()
            total, batches = total + loss.item(), batches + 1
        model.eval()
        with torch.no_grad():
            log_h = model(xv)
        valid = cox_ph_loss(log_h, tv, ev).item()
        print(
            f"{epoch}: train {total / batches:.4f} valid {valid:.4f} concordance {concordance(log_h, tv, ev):.4f}"
        )
        if valid < best:
            best, waited = valid, 0
        else:
            waited += 1
        if waited == 8:
            print("no improvement for 8 epochs, stopping early")
            break
    print(f"best validation loss {best:.4f}")


if __name__ == "__main__":
    main()
