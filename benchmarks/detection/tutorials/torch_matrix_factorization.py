"""Matrix factorisation with biases on made-up film ratings from 1 to 5, in the manner of recommender system courses."""

import sys

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
torch.manual_seed(seed)
rng = np.random.default_rng(seed)

n_users, n_items, n_ratings = 300, 200, 18000
taste, genre = rng.normal(size=(n_users, 3)), rng.normal(size=(n_items, 3))
user_bias, item_bias = 0.3 * rng.normal(size=n_users), 0.5 * rng.normal(size=n_items)
cells = rng.choice(n_users * n_items, n_ratings, replace=False)
u, i = cells // n_items, cells % n_items
score = (
    3.3
    + user_bias[u]
    + item_bias[i]
    + 0.5 * (taste[u] * genre[i]).sum(1)
    + 0.4 * rng.normal(size=n_ratings)
)
rating = np.clip(np.round(score), 1, 5).astype("float32")

data = TensorDataset(torch.tensor(u), torch.tensor(i), torch.tensor(rating))
train_set, valid_set = torch.utils.data.random_split(data, [15000, 3000])
train_loader = DataLoader(train_set, batch_size=256, shuffle=True)
valid_loader = DataLoader(valid_set, batch_size=1000)


class MatrixFactorization(nn.Module):
    def __init__(self, n_users, n_items, n_factors=8):
        super().__init__()
        self.user_factors = nn.Embedding(n_users, n_factors)
        self.item_factors = nn.Embedding(n_items, n_factors)
        self.user_bias = nn.Embedding(n_users, 1)
        self.item_bias = nn.Embedding(n_items, 1)
        self.global_bias = nn.Parameter(torch.tensor(3.0))
        for factors in (self.user_factors, self.item_factors):
            nn.init.normal_(factors.weight, std=0.1)
        for bias in (self.user_bias, self.item_bias):
            nn.init.zeros_(bias.weight)

    def forward(self, user, item):
        dot = (self.user_factors(user) * self.item_factors(item)).sum(-1)
        return (
            dot
            + self.user_bias(user).squeeze(-1)
            + self.item_bias(item).squeeze(-1)
            + self.global_bias
        )


model = MatrixFactorization(n_users, n_items)
loss_fn = nn.MSELoss()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=1e-4)
print("standard deviation of ratings:", rating.std())
for epoch in range(13):
    model.train()
    losses = []
    for user, item, target in train_loader:
        optimizer.zero_grad()
        loss = loss_fn(model(user, item), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        squares = [
            ((model(user, item).clamp(1, 5) - target) ** 2) for user, item, target in valid_loader
        ]
    rmse = torch.cat(squares).mean().sqrt().item()
    print(f"epoch {epoch}: train mse {np.mean(losses):.4f}, valid rmse {rmse:.4f}")
