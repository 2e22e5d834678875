"""Domain-adversarial training (gradient reversal) from plain digits to grey, noisy ones without labels, in the manner of fungtion's DANN."""

import sys

import numpy as np
import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from torch.autograd import Function

torch.set_num_threads(1)
torch.manual_seed(int(sys.argv[1]) if len(sys.argv) > 1 else 0)


class ReverseLayerF(Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.neg() * ctx.alpha, None


class CNNModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.feature = nn.Sequential(
            nn.Conv2d(1, 24, 3, padding=1),
            nn.BatchNorm2d(24),
            nn.ReLU(True),
            nn.MaxPool2d(2),
            nn.Conv2d(24, 48, 3, padding=1),
            nn.BatchNorm2d(48),
            nn.ReLU(True),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )
        self.class_classifier = nn.Sequential(
            nn.Linear(192, 64), nn.ReLU(True), nn.Dropout(0.2), nn.Linear(64, 10)
        )
        self.domain_classifier = nn.Sequential(nn.Linear(192, 64), nn.ReLU(True), nn.Linear(64, 2))

    def forward(self, x, alpha):
        feature = self.feature(x)
        return self.class_classifier(feature), self.domain_classifier(
            ReverseLayerF.apply(feature, alpha)
        )


def to_target(x):
    """Low contrast on a grey ground with a slope of brightness and noise."""
    slope = torch.linspace(-0.2, 0.2, 8).view(1, 1, 1, 8)
    return 0.6 * x + 0.3 + slope + 0.1 * torch.randn_like(x)


images, labels = load_digits(return_X_y=True)
images, labels = (
    torch.tensor(images / 16, dtype=torch.float32).view(-1, 1, 8, 8),
    torch.tensor(labels),
)
order = torch.randperm(len(images))
src_x, src_y = images[order[:700]], labels[order[:700]]
tgt_x, tgt_test_y = to_target(images[order[700:1400]]), labels[order[1400:]]
src_test_x, tgt_test_x = images[order[1400:]], to_target(images[order[1400:]])


@torch.no_grad()
def test(model, x, y):
    model.eval()
    acc = (model(x, 0.0)[0].argmax(1) == y).float().mean().item()
    model.train()
    return acc


model = CNNModel()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
loss_class, loss_domain = nn.CrossEntropyLoss(), nn.CrossEntropyLoss()
n_epoch, batch_size = 20, 50
len_dataloader = len(src_x) // batch_size
zeros, ones = torch.zeros(batch_size, dtype=torch.long), torch.ones(batch_size, dtype=torch.long)

for epoch in range(n_epoch):
    src_order, tgt_order = torch.randperm(len(src_x)), torch.randperm(len(tgt_x))
    for i in range(len_dataloader):
        p = float(i + epoch * len_dataloader) / n_epoch / len_dataloader
        alpha = 0.2 * (2.0 / (1.0 + np.exp(-10 * p)) - 1)
        s, t = (
            src_order[i * batch_size : (i + 1) * batch_size],
            tgt_order[i * batch_size : (i + 1) * batch_size],
        )

        model.zero_grad()
        class_output, domain_output = model(src_x[s], alpha)
        err_s_label, err_s_domain = (
            loss_class(class_output, src_y[s]),
            loss_domain(domain_output, zeros),
        )
        _, domain_output = model(tgt_x[t], alpha)
        err_t_domain = loss_domain(domain_output, ones)
        err = err_t_domain + err_s_domain + err_s_label
        err.backward()
        optimizer.step()

    print(
        f"epoch: {epoch}, err_s_label: {err_s_label.item():.4f}, err_s_domain: {err_s_domain.item():.4f}, "
        f"err_t_domain: {err_t_domain.item():.4f}, source acc: {test(model, src_test_x, tgt_test_y):.4f}, "
        f"target acc: {test(model, tgt_test_x, tgt_test_y):.4f}"
    )
