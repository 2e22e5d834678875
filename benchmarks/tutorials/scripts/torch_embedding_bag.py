"""Says which module of Python's library a few lines of code are from, with `nn.EmbeddingBag`, in the manner of PyTorch's text classification tutorial."""

import inspect
import random
import re
import sys
import time
from collections import Counter
from importlib import import_module

import torch
from torch import nn
from torch.utils.data import DataLoader

torch.set_num_threads(1)
seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
random.seed(seed)
torch.manual_seed(seed)

MODULES = ["argparse", "difflib", "logging", "tarfile"]


def load_examples():
    """Pieces of six lines each; neighbours go to the same split so that nothing leaks."""
    train, test = [], []
    for label, name in enumerate(MODULES):
        lines = [
            line for line in inspect.getsource(import_module(name)).splitlines() if line.strip()
        ]
        for block in range(0, len(lines) - 60, 60):
            part = test if (block // 60) % 5 == 4 else train
            for i in range(block, block + 60, 6):
                part.append((label, " ".join(lines[i : i + 6])))
    return train, test


def tokenizer(text):
    return re.findall(r"[a-z]+", text.lower())


train_list, test_list = load_examples()
counts = Counter(token for _, text in train_list for token in tokenizer(text))
vocab = {token: i + 1 for i, (token, n) in enumerate(counts.items()) if n > 2}
vocab = {token: i + 1 for i, token in enumerate(vocab)}


def collate_batch(batch):
    labels, texts, offsets = [], [], [0]
    for label, text in batch:
        ids = [vocab.get(token, 0) for token in tokenizer(text)] or [0]
        labels.append(label)
        texts.extend(ids)
        offsets.append(len(ids))
    return torch.tensor(labels), torch.tensor(texts), torch.tensor(offsets[:-1]).cumsum(dim=0)


class TextClassificationModel(nn.Module):
    def __init__(self, vocab_size, embed_dim, num_class):
        super().__init__()
        self.embedding = nn.EmbeddingBag(vocab_size, embed_dim, sparse=False)
        self.fc = nn.Linear(embed_dim, num_class)
        self.init_weights()

    def init_weights(self):
        initrange = 0.5
        self.embedding.weight.data.uniform_(-initrange, initrange)
        self.fc.weight.data.uniform_(-initrange, initrange)
        self.fc.bias.data.zero_()

    def forward(self, text, offsets):
        return self.fc(self.embedding(text, offsets))


EPOCHS = 15
LR = 3
BATCH_SIZE = 32

model = TextClassificationModel(len(vocab) + 1, 32, len(MODULES))
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=LR)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.3)
train_loader = DataLoader(train_list, batch_size=BATCH_SIZE, shuffle=True, collate_fn=collate_batch)
test_loader = DataLoader(test_list, batch_size=BATCH_SIZE, collate_fn=collate_batch)


def train(dataloader):
    model.train()
    for label, text, offsets in dataloader:
        optimizer.zero_grad()
        loss = criterion(model(text, offsets), label)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
    return loss.item()


def evaluate(dataloader):
    model.eval()
    total_acc, total_count, total_loss = 0, 0, 0.0
    with torch.no_grad():
        for label, text, offsets in dataloader:
            predicted = model(text, offsets)
            total_loss += criterion(predicted, label).item() * label.size(0)
            total_acc += (predicted.argmax(1) == label).sum().item()
            total_count += label.size(0)
    return total_acc / total_count, total_loss / total_count


print(len(train_list), "pieces for training,", len(vocab), "words")
total_accu = None
for epoch in range(1, EPOCHS + 1):
    start = time.time()
    train(train_loader)
    accu_val, loss_val = evaluate(test_loader)
    if total_accu is not None and total_accu > accu_val:
        scheduler.step()
    else:
        total_accu = accu_val
    print(
        f"| epoch {epoch:3d} | time {time.time() - start:.2f}s | valid loss {loss_val:.3f} | valid accuracy {accu_val:.3f}"
    )
