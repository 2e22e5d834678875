"""Made-up income table with categorical embeddings and continuous columns, one in five positive, in the manner of fastai's tabular model."""

import sys

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
from sklearn.metrics import roc_auc_score
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
torch.manual_seed(seed)
rng = np.random.default_rng(seed)

n = 6000
df = pd.DataFrame(
    {
        "workclass": rng.choice(["private", "state", "self", "none"], n, p=[0.6, 0.2, 0.15, 0.05]),
        "education": rng.choice(
            ["school", "college", "bachelor", "master", "doctor"], n, p=[0.4, 0.25, 0.2, 0.1, 0.05]
        ),
        "occupation": rng.choice([f"job{i}" for i in range(12)], n),
        "age": rng.uniform(18, 70, n),
        "hours": rng.normal(40, 9, n).clip(5, 90),
        "years_of_work": rng.gamma(2.0, 6.0, n),
    }
)
job_value = dict(zip([f"job{i}" for i in range(12)], rng.normal(0, 1.2, 12)))
logit = (
    -2.9
    + df["education"].map(
        {"school": -1.0, "college": 0.0, "bachelor": 0.8, "master": 1.3, "doctor": 1.8}
    )
    + df["occupation"].map(job_value)
    + 0.05 * (df["hours"] - 40)
    - 0.003 * (df["age"] - 48) ** 2
    + 0.4 * np.sqrt(df["years_of_work"])
)
df["high"] = (rng.random(n) < 1 / (1 + np.exp(-logit))).astype(int)

cat_names = ["workclass", "education", "occupation"]
cont_names = ["age", "hours", "years_of_work"]
cats = np.stack([df[c].astype("category").cat.codes for c in cat_names], axis=1).astype("int64")
cut = int(0.8 * n)
conts = df[cont_names].to_numpy("float32")
conts = (conts - conts[:cut].mean(0)) / conts[:cut].std(0)
emb_szs = [(df[c].nunique(), min(50, (df[c].nunique() + 1) // 2)) for c in cat_names]


class TabularModel(nn.Module):
    def __init__(self, emb_szs, n_cont, layers, emb_drop=0.05, p=0.1):
        super().__init__()
        self.embeds = nn.ModuleList([nn.Embedding(ni, nf) for ni, nf in emb_szs])
        self.emb_drop = nn.Dropout(emb_drop)
        self.bn_cont = nn.BatchNorm1d(n_cont)
        sizes = [sum(nf for _, nf in emb_szs) + n_cont] + layers
        blocks = []
        for a, b in zip(sizes[:-1], sizes[1:]):
            blocks += [nn.Linear(a, b), nn.ReLU(inplace=True), nn.BatchNorm1d(b), nn.Dropout(p)]
        self.layers = nn.Sequential(*blocks, nn.Linear(sizes[-1], 1))

    def forward(self, x_cat, x_cont):
        x = self.emb_drop(torch.cat([e(x_cat[:, i]) for i, e in enumerate(self.embeds)], 1))
        return self.layers(torch.cat([x, self.bn_cont(x_cont)], 1)).squeeze(1)


ds = TensorDataset(
    torch.tensor(cats), torch.tensor(conts), torch.tensor(df["high"].to_numpy("float32"))
)
train_ds, valid_ds = (
    torch.utils.data.Subset(ds, range(cut)),
    torch.utils.data.Subset(ds, range(cut, n)),
)
train_dl = DataLoader(train_ds, batch_size=64, shuffle=True)
valid_dl = DataLoader(valid_ds, batch_size=512)

model = TabularModel(emb_szs, len(cont_names), [64, 32])
epochs = 6
opt = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=1e-3)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, 5e-3, epochs=epochs, steps_per_epoch=len(train_dl))
loss_func = nn.BCEWithLogitsLoss()
print(f"{df['high'].mean():.1%} positive")
for epoch in range(epochs):
    model.train()
    train_loss = 0.0
    for xc, xn, yb in train_dl:
        loss = loss_func(model(xc, xn), yb)
        loss.backward()
        opt.step()
        sched.step()
        opt.zero_grad()
        train_loss += loss.item() * len(yb)
    model.eval()
    with torch.no_grad():
        outs = [(model(xc, xn), yb) for xc, xn, yb in valid_dl]
    preds, targs = torch.cat([o for o, _ in outs]), torch.cat([t for _, t in outs])
    valid_loss = loss_func(preds, targs).item()
    print(
        f"{epoch} train {train_loss / cut:.4f} valid {valid_loss:.4f} auc {roc_auc_score(targs.numpy(), preds.numpy()):.4f}"
    )
