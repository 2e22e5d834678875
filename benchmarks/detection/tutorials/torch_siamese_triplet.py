"""Digit embeddings with a triplet loss, checked by the nearest neighbour, in the manner of face verification tutorials."""

import sys

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(int(sys.argv[1]) if len(sys.argv) > 1 else 0)


class TripletDigits(Dataset):
    """Anchor, another image of the same digit, an image of some other digit."""

    def __init__(self, x, y):
        self.x, self.y = x, y
        self.members = [torch.where(y == d)[0] for d in range(10)]

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        label = int(self.y[i])
        other = (label + int(torch.randint(1, 10, (1,)))) % 10
        same, different = self.members[label], self.members[other]
        positive = same[torch.randint(len(same), (1,))].item()
        negative = different[torch.randint(len(different), (1,))].item()
        return self.x[i], self.x[positive], self.x[negative]


class EmbeddingNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.convnet = nn.Sequential(
            nn.Conv2d(1, 16, 3),
            nn.PReLU(),
            nn.Conv2d(16, 32, 3),
            nn.PReLU(),
            nn.MaxPool2d(2, stride=2),
        )
        self.fc = nn.Sequential(nn.Linear(32 * 4, 64), nn.PReLU(), nn.Linear(64, 8))

    def forward(self, x):
        return F.normalize(self.fc(self.convnet(x).flatten(1)), dim=1)


class TripletNet(nn.Module):
    def __init__(self, embedding_net):
        super().__init__()
        self.embedding_net = embedding_net

    def forward(self, a, p, n):
        return self.embedding_net(a), self.embedding_net(p), self.embedding_net(n)


digits = load_digits()
x = (torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16 - 0.3) / 0.38
y = torch.tensor(digits.target)
order = torch.randperm(len(x))
x, y = x[order], y[order]
train_x, train_y, test_x, test_y = x[:1400], y[:1400], x[1400:], y[1400:]
loader = DataLoader(TripletDigits(train_x, train_y), batch_size=64, shuffle=True)
test_loader = DataLoader(TripletDigits(test_x, test_y), batch_size=64)

model = TripletNet(EmbeddingNet())
criterion = nn.TripletMarginLoss(margin=0.8)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(12):
    model.train()
    total = 0.0
    for triplet in loader:
        loss = criterion(*model(*triplet))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    model.eval()
    with torch.no_grad():
        valid = sum(criterion(*model(*triplet)).item() for triplet in test_loader) / len(
            test_loader
        )
        nearest = torch.cdist(model.embedding_net(test_x), model.embedding_net(train_x)).argmin(1)
        acc = (train_y[nearest] == test_y).float().mean().item()
    print(
        f"Epoch {epoch + 1}: train {total / len(loader):.4f} valid {valid:.4f} nearest neighbour accuracy {acc:.4f}"
    )
