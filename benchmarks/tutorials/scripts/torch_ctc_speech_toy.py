"""CTC recogniser on synthetic 'speech' (each symbol a noisy chirp of random length), CNN + BiGRU, in the manner of AssemblyAI's end-to-end speech tutorial."""

import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)

ALPHABET = "abcdefgh"  # 0 is the blank
N_MELS = 16


class ToySpeech(Dataset):
    def __init__(self, size, seed):
        rng = np.random.default_rng(seed)
        templates = np.random.default_rng(1234).normal(0, 1, (len(ALPHABET) + 1, 2, N_MELS))
        self.items = []
        for _ in range(size):
            text = rng.integers(1, len(ALPHABET) + 1, rng.integers(3, 7))
            frames = [np.zeros((rng.integers(1, 4), N_MELS))]
            for symbol in text:
                n = rng.integers(4, 9)
                ramp = np.linspace(0, 1, n)[:, None]
                frames.append(templates[symbol, 0] * (1 - ramp) + templates[symbol, 1] * ramp)
                frames.append(np.zeros((rng.integers(1, 3), N_MELS)))
            spec = np.concatenate(frames)
            spec = spec + rng.normal(0, 1.2, spec.shape)
            self.items.append((torch.tensor(spec, dtype=torch.float32), torch.tensor(text)))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(batch):
    spectrograms = nn.utils.rnn.pad_sequence([s for s, _ in batch], batch_first=True)
    labels = nn.utils.rnn.pad_sequence([t for _, t in batch], batch_first=True)
    return spectrograms, labels, [(len(s) + 1) // 2 for s, _ in batch], [len(t) for _, t in batch]


class SpeechRecognitionModel(nn.Module):
    def __init__(self, dim=48, dropout=0.1):
        super().__init__()
        self.cnn = nn.Conv1d(N_MELS, dim, 3, stride=2, padding=1)
        self.norm = nn.LayerNorm(dim)
        self.birnn = nn.GRU(dim, dim, batch_first=True, bidirectional=True)
        self.classifier = nn.Sequential(
            nn.Linear(dim * 2, dim),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(dim, len(ALPHABET) + 1),
        )

    def forward(self, x):
        x = self.cnn(x.transpose(1, 2)).transpose(1, 2)
        x, _ = self.birnn(F.gelu(self.norm(x)))
        return self.classifier(x)


def levenshtein(a, b):
    row = list(range(len(b) + 1))
    for i, ca in enumerate(a, 1):
        prev, row[0] = row[0], i
        for j, cb in enumerate(b, 1):
            prev, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, prev + (ca != cb))
    return row[-1]


def greedy_decode(log_probs, length):
    best = torch.unique_consecutive(log_probs[:length].argmax(-1))
    return [i for i in best.tolist() if i != 0]


def train(model, loader, criterion, optimizer, scheduler, epoch):
    model.train()
    for batch_idx, (spectrograms, labels, input_lengths, label_lengths) in enumerate(loader):
        optimizer.zero_grad()
        output = F.log_softmax(model(spectrograms), dim=2).transpose(0, 1)
        loss = criterion(output, labels, input_lengths, label_lengths)
        loss.backward()
        optimizer.step()
        scheduler.step()
        if batch_idx % 25 == 0:
            print(f"Train Epoch: {epoch} [{batch_idx}/{len(loader)}]\tLoss: {loss.item():.6f}")


@torch.no_grad()
def test(model, loader, criterion):
    model.eval()
    test_loss, errors, symbols = 0.0, 0, 0
    for spectrograms, labels, input_lengths, label_lengths in loader:
        output = F.log_softmax(model(spectrograms), dim=2)
        test_loss += criterion(
            output.transpose(0, 1), labels, input_lengths, label_lengths
        ).item() / len(loader)
        for i, row in enumerate(output):
            errors += levenshtein(
                greedy_decode(row, input_lengths[i]), labels[i, : label_lengths[i]].tolist()
            )
            symbols += label_lengths[i]
    print(f"Test set: Average loss: {test_loss:.4f}, CER: {errors / symbols:.4f}")


def main(seed=0, learning_rate=3e-3, batch_size=16, epochs=6):
    torch.manual_seed(seed)
    train_loader = DataLoader(ToySpeech(800, seed), batch_size, shuffle=True, collate_fn=collate)
    test_loader = DataLoader(ToySpeech(200, seed + 1), 100, collate_fn=collate)
    model = SpeechRecognitionModel()
    optimizer = optim.AdamW(model.parameters(), learning_rate)
    criterion = nn.CTCLoss(blank=0)
    scheduler = optim.lr_scheduler.OneCycleLR(
        optimizer,
        max_lr=learning_rate,
        steps_per_epoch=len(train_loader),
        epochs=epochs,
        anneal_strategy="linear",
    )
    for epoch in range(1, epochs + 1):
        train(model, train_loader, criterion, optimizer, scheduler, epoch)
        test(model, test_loader, criterion)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
