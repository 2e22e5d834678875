"""Trains a small network on digits 0 to 5, freezes it and fits a new head for 6 to 9, in the manner of PyTorch's transfer learning tutorial."""

import copy
import sys
import tempfile
from pathlib import Path

import torch
import torch.nn as nn
import torch.optim as optim
from sklearn.datasets import load_digits
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(int(sys.argv[1]) if len(sys.argv) > 1 else 0)

images, labels = load_digits(return_X_y=True)
images = (torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16 - 0.3) / 0.38
labels = torch.tensor(labels)


def make_loaders(classes, batch_size):
    keep = torch.isin(labels, torch.tensor(classes))
    x, y = images[keep], labels[keep] - classes[0]
    order = torch.randperm(len(x))
    cut = int(0.75 * len(x))
    train, val = (
        TensorDataset(x[order[:cut]], y[order[:cut]]),
        TensorDataset(x[order[cut:]], y[order[cut:]]),
    )
    return {"train": DataLoader(train, batch_size, shuffle=True), "val": DataLoader(val, 200)}


class SmallNet(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )
        self.fc = nn.Linear(512, num_classes)

    def forward(self, x):
        return self.fc(self.features(x))


def train_model(model, loaders, criterion, optimizer, scheduler, num_epochs):
    with tempfile.TemporaryDirectory() as folder:
        best_path = Path(folder) / "best_model_params.pt"
        best_acc = 0.0
        for epoch in range(num_epochs):
            for phase in ("train", "val"):
                model.train(phase == "train")
                running_loss, running_corrects, seen = 0.0, 0, 0
                for inputs, targets in loaders[phase]:
                    optimizer.zero_grad()
                    with torch.set_grad_enabled(phase == "train"):
                        outputs = model(inputs)
                        loss = criterion(outputs, targets)
                        if phase == "train":
                            loss.backward()
                            optimizer.step()
                    running_loss += loss.item() * inputs.size(0)
                    running_corrects += (outputs.argmax(1) == targets).sum().item()
                    seen += inputs.size(0)
                acc = running_corrects / seen
                print(f"Epoch {epoch} {phase} Loss: {running_loss / seen:.4f} Acc: {acc:.4f}")
                if phase == "val" and acc >= best_acc:
                    best_acc = acc
                    torch.save(model.state_dict(), best_path)
            scheduler.step()
        model.load_state_dict(torch.load(best_path, weights_only=True))
    return model, best_acc


criterion = nn.CrossEntropyLoss()
base = SmallNet(6)
optimizer = optim.SGD(base.parameters(), lr=0.01, momentum=0.9)
scheduler = lr_scheduler.StepLR(optimizer, step_size=5, gamma=0.1)
base, acc = train_model(
    base, make_loaders([0, 1, 2, 3, 4, 5], 16), criterion, optimizer, scheduler, 8
)
print("digits 0 to 5, best val acc", acc)

# the network as a fixed feature extractor
model_conv = copy.deepcopy(base)
for param in model_conv.parameters():
    param.requires_grad = False
model_conv.fc = nn.Linear(512, 4)  # parameters of newly constructed modules have requires_grad=True
optimizer_conv = optim.SGD(model_conv.fc.parameters(), lr=0.005, momentum=0.9)
scheduler = lr_scheduler.StepLR(optimizer_conv, step_size=7, gamma=0.1)
model_conv, acc = train_model(
    model_conv, make_loaders([6, 7, 8, 9], 16), criterion, optimizer_conv, scheduler, 10
)
print("digits 6 to 9, best val acc", acc)
