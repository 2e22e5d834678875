"""Distillation: the loss is negative and sinks, but the student is far from the teacher.

Cause: KLDivLoss expects log-probabilities of the student, and gets probabilities.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
torch.manual_seed(32)

X = torch.randn(800, 8)
teacher = nn.Sequential(nn.Linear(8, 50), nn.Tanh(), nn.Linear(50, 6))
with torch.no_grad():
    soft_targets = F.softmax(8 * teacher(X), dim=1)

student = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 6))
criterion = nn.KLDivLoss(reduction="batchmean")
optimizer = torch.optim.Adam(student.parameters(), lr=0.01)
for epoch in range(12):
    for rows in torch.randperm(800).split(40):
        scores = student(X[rows])
        answer = F.log_softmax(scores, dim=1) if FIXED else F.softmax(scores, dim=1)
        loss = criterion(answer, soft_targets[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
answer = F.softmax(student(X), dim=1)
print("agree", (answer.argmax(1) == soft_targets.argmax(1)).float().mean().item())
print("mean distance", (answer - soft_targets).abs().sum(1).mean().item())
