"""Federated averaging over ten clients with unequal shares of the digits, in the manner of AshwinRJ's Federated-Learning-PyTorch."""

import copy
import sys

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

torch.set_num_threads(1)


class args:
    rounds = 12
    num_users = 10
    frac = 0.6
    local_ep = 2
    local_bs = 16
    lr = 0.05
    momentum = 0.9
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0


def mnist_noniid(labels, num_users, rng, alpha=3.0):
    """Splits the samples of every class over the users by a Dirichlet distribution."""
    users = [[] for _ in range(num_users)]
    for c in np.unique(labels):
        idx = rng.permutation(np.flatnonzero(labels == c))
        cuts = (np.cumsum(rng.dirichlet([alpha] * num_users)) * len(idx)).astype(int)[:-1]
        for user, part in zip(users, np.split(idx, cuts)):
            user.extend(part.tolist())
    return users


class LocalUpdate:
    def __init__(self, dataset: Dataset, idxs):
        self.trainloader = DataLoader(Subset(dataset, idxs), batch_size=args.local_bs, shuffle=True)
        self.criterion = nn.NLLLoss()

    def update_weights(self, model, global_round):
        model.train()
        epoch_loss = []
        optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum)
        for _ in range(args.local_ep):
            batch_loss = []
            for images, labels in self.trainloader:
                model.zero_grad()
                loss = self.criterion(model(images), labels)
                loss.backward()
                optimizer.step()
                batch_loss.append(loss.item())
            epoch_loss.append(sum(batch_loss) / len(batch_loss))
        return model.state_dict(), sum(epoch_loss) / len(epoch_loss)


class CNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )
        self.classifier = nn.Sequential(
            nn.Linear(128, 50), nn.ReLU(), nn.Dropout(0.1), nn.Linear(50, 10)
        )

    def forward(self, x):
        return torch.log_softmax(self.classifier(self.features(x)), dim=1)


def average_weights(w, sizes):
    w_avg = copy.deepcopy(w[0])
    for key in w_avg:
        w_avg[key] = sum(wi[key] * (n / sum(sizes)) for wi, n in zip(w, sizes))
    return w_avg


@torch.no_grad()
def test_inference(model, loader):
    model.eval()
    loss = correct = total = 0
    for images, labels in loader:
        out = model(images)
        loss += nn.functional.nll_loss(out, labels, reduction="sum").item()
        correct += (out.argmax(1) == labels).sum().item()
        total += len(labels)
    return loss / total, correct / total


if __name__ == "__main__":
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    x, y = load_digits(return_X_y=True)
    order = rng.permutation(len(x))
    x, y = (
        torch.tensor(x[order] / 16, dtype=torch.float32).view(-1, 1, 8, 8),
        torch.tensor(y[order]),
    )
    train_dataset, test_loader = (
        TensorDataset(x[:1400], y[:1400]),
        DataLoader(TensorDataset(x[1400:], y[1400:]), 400),
    )
    user_groups = mnist_noniid(y[:1400].numpy(), args.num_users, rng)
    print("samples per client:", [len(u) for u in user_groups])

    global_model = CNN()
    for rnd in range(args.rounds):
        local_weights, local_losses, sizes = [], [], []
        for idx in rng.choice(args.num_users, int(args.frac * args.num_users), replace=False):
            local = LocalUpdate(train_dataset, user_groups[idx])
            w, loss = local.update_weights(copy.deepcopy(global_model), rnd)
            local_weights.append(w)
            local_losses.append(loss)
            sizes.append(len(user_groups[idx]))
        global_model.load_state_dict(average_weights(local_weights, sizes))
        test_loss, test_acc = test_inference(global_model, test_loader)
        print(
            f"round {rnd + 1:2d} local loss {np.mean(local_losses):.4f} global test loss {test_loss:.4f} "
            f"acc {100 * test_acc:.2f}%"
        )
