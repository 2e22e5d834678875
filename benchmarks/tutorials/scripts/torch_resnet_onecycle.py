"""Small residual network on handwritten digits, SGD with momentum, one-cycle schedule and shifted images, in the manner of CIFAR-10 fast training posts."""

import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

torch.set_num_threads(1)
seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
torch.manual_seed(seed)


def load_data():
    d = load_digits()
    x = torch.tensor(d.images, dtype=torch.float32).unsqueeze(1) / 16
    y = torch.tensor(d.target)
    order = torch.randperm(len(x))
    x, y = x[order], y[order]
    mean, std = x[:1440].mean(), x[:1440].std()
    x = (x - mean) / std
    return x[:1440], y[:1440], x[1440:], y[1440:]


class BasicBlock(nn.Module):
    def __init__(self, in_planes, planes, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(in_planes, planes, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.shortcut = nn.Sequential()
        if stride != 1 or in_planes != planes:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_planes, planes, 1, stride=stride, bias=False), nn.BatchNorm2d(planes)
            )

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return F.relu(out + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, num_blocks=(1, 1, 1), width=16, num_classes=10):
        super().__init__()
        self.in_planes = width
        self.conv1 = nn.Conv2d(1, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.layer1 = self._make_layer(width, num_blocks[0], 1)
        self.layer2 = self._make_layer(2 * width, num_blocks[1], 2)
        self.layer3 = self._make_layer(4 * width, num_blocks[2], 2)
        self.linear = nn.Linear(4 * width, num_classes)

    def _make_layer(self, planes, blocks, stride):
        layers = []
        for s in [stride] + [1] * (blocks - 1):
            layers.append(BasicBlock(self.in_planes, planes, s))
            self.in_planes = planes
        return nn.Sequential(*layers)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.linear(F.adaptive_avg_pool2d(x, 1).flatten(1))


def augment(x):
    """Random shift by up to one pixel."""
    padded = F.pad(x, (1, 1, 1, 1), mode="replicate")
    i, j = torch.randint(3, (2,)).tolist()
    return padded[:, :, i : i + 8, j : j + 8]


x_train, y_train, x_test, y_test = load_data()
net = ResNet()
epochs, batch_size = 12, 48
steps = len(x_train) // batch_size
optimizer = torch.optim.SGD(
    net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True
)
scheduler = torch.optim.lr_scheduler.OneCycleLR(
    optimizer, max_lr=0.1, epochs=epochs, steps_per_epoch=steps
)

for epoch in range(epochs):
    net.train()
    running = correct = 0
    for idx in torch.randperm(len(x_train)).view(-1, batch_size):
        optimizer.zero_grad()
        logits = net(augment(x_train[idx]))
        loss = F.cross_entropy(logits, y_train[idx], label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        scheduler.step()
        running += loss.item() * batch_size
        correct += (logits.argmax(1) == y_train[idx]).sum().item()
    net.eval()
    with torch.inference_mode():
        logits = net(x_test)
        test_loss = F.cross_entropy(logits, y_test).item()
        acc = (logits.argmax(1) == y_test).float().mean().item()
    lr = scheduler.get_last_lr()[0]
    print(
        f"epoch {epoch + 1:2d} lr {lr:.4f} train loss {running / len(x_train):.3f} acc {correct / len(x_train):.3f} "
        f"test loss {test_loss:.3f} acc {acc:.4f}"
    )
