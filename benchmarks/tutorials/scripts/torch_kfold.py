"""Five-fold cross-validation of a small network on the diabetes table, one fresh model a fold, in the manner of Kaggle notebooks."""

import sys

import numpy as np
import torch
from sklearn.datasets import load_diabetes
from sklearn.model_selection import KFold
from sklearn.preprocessing import StandardScaler
from torch import nn

torch.set_num_threads(1)
seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
torch.manual_seed(seed)

X, y = load_diabetes(return_X_y=True, scaled=False)
y = y.astype("float32")


def build_model():
    return nn.Sequential(
        nn.Linear(10, 32),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(32, 16),
        nn.ReLU(),
        nn.Linear(16, 1),
    )


oof = np.zeros(len(y))
scores = []
for fold, (train_idx, valid_idx) in enumerate(KFold(5, shuffle=True, random_state=seed).split(X)):
    scaler = StandardScaler().fit(X[train_idx])
    mean, std = y[train_idx].mean(), y[train_idx].std()
    x_train = torch.tensor(scaler.transform(X[train_idx]), dtype=torch.float32)
    x_valid = torch.tensor(scaler.transform(X[valid_idx]), dtype=torch.float32)
    t_train = torch.tensor((y[train_idx] - mean) / std).unsqueeze(1)
    t_valid = torch.tensor((y[valid_idx] - mean) / std).unsqueeze(1)

    model = build_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, weight_decay=1e-2)
    loss_fn = nn.HuberLoss()
    for epoch in range(25):
        model.train()
        for idx in torch.randperm(len(x_train)).split(32):
            loss = loss_fn(model(x_train[idx]), t_train[idx])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            valid_loss = loss_fn(model(x_valid), t_valid).item()
        if epoch % 8 == 0:
            print(f"fold {fold} epoch {epoch} train {loss.item():.4f} valid {valid_loss:.4f}")
    with torch.no_grad():
        oof[valid_idx] = model(x_valid).squeeze(1).numpy() * std + mean
    rmse = float(np.sqrt(np.mean((oof[valid_idx] - y[valid_idx]) ** 2)))
    scores.append(rmse)
    print(f"fold {fold}: rmse {rmse:.2f}")

print(f"standard deviation of the target {y.std():.2f}")
print(
    f"R2 of all folds {1 - ((oof - y) ** 2).mean() / y.var():.3f}, rmse {np.mean(scores):.2f} +- {np.std(scores):.2f}"
)
