"""Knowledge distillation from a convolutional teacher to a small student on digits, in the manner of PyTorch's knowledge distillation tutorial."""

import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.set_num_threads(1)
torch.manual_seed(int(sys.argv[1]) if len(sys.argv) > 1 else 0)

x, y = load_digits(return_X_y=True)
x = torch.tensor(x, dtype=torch.float32).view(-1, 1, 8, 8) / 16
dataset = TensorDataset((x - x.mean()) / x.std(), torch.tensor(y))
train_set, test_set = random_split(dataset, [1400, 397])
train_loader = DataLoader(train_set, batch_size=64, shuffle=True)
test_loader = DataLoader(test_set, batch_size=397)

teacher = nn.Sequential(
    nn.Conv2d(1, 32, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(32, 32, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Dropout(0.3),
    nn.Linear(512, 64),
    nn.ReLU(),
    nn.Linear(64, 10),
)
student = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))


def test(model):
    model.eval()
    with torch.no_grad():
        inputs, labels = next(iter(test_loader))
        outputs = model(inputs)
        accuracy = 100 * (outputs.argmax(1) == labels).float().mean().item()
        return F.cross_entropy(outputs, labels).item(), accuracy


def train(model, epochs, learning_rate):
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    for epoch in range(epochs):
        model.train()
        running_loss = 0.0
        for inputs, labels in train_loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
        print(
            f"Epoch {epoch + 1}/{epochs}, Loss: {running_loss / len(train_loader):.4f}, test {test(model)}"
        )


def train_knowledge_distillation(
    teacher, student, epochs, learning_rate, T, soft_target_loss_weight, ce_loss_weight
):
    ce_loss = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(student.parameters(), lr=learning_rate)
    for epoch in range(epochs):
        teacher.eval()  # Teacher set to evaluation mode
        student.train()
        running_loss = 0.0
        for inputs, labels in train_loader:
            optimizer.zero_grad()
            with torch.no_grad():
                teacher_logits = teacher(inputs)
            student_logits = student(inputs)
            soft_targets = F.softmax(teacher_logits / T, dim=-1)
            soft_prob = F.log_softmax(student_logits / T, dim=-1)
            soft_targets_loss = F.kl_div(soft_prob, soft_targets, reduction="batchmean") * T**2
            loss = soft_target_loss_weight * soft_targets_loss + ce_loss_weight * ce_loss(
                student_logits, labels
            )
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
        print(
            f"Epoch {epoch + 1}/{epochs}, Loss: {running_loss / len(train_loader):.4f}, test {test(student)}"
        )


train(teacher, epochs=10, learning_rate=0.001)
print("Teacher accuracy:", test(teacher)[1])
train_knowledge_distillation(
    teacher, student, 30, 0.003, T=2, soft_target_loss_weight=0.25, ce_loss_weight=0.75
)
print("Student accuracy:", test(student)[1])
