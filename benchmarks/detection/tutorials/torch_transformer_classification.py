"""Transformer encoder with a padding mask that tells word order rules apart in made-up sentences; Adam, warm-up and label smoothing, as in text classification tutorials."""

import math
import sys

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

torch.set_num_threads(1)
torch.manual_seed(int(sys.argv[1]) if len(sys.argv) > 1 else 0)

PAD, VOCAB, MAX_LEN, CLASSES = 0, 40, 24, 3


def make_sentences(n):
    """Class by whether word 1 comes before word 2, after it, or (class 2) there is no word 2."""
    x = torch.full((n, MAX_LEN), PAD)
    y = torch.randint(CLASSES, (n,))
    for i in range(n):
        length = int(torch.randint(8, MAX_LEN + 1, (1,)))
        x[i, :length] = torch.randint(3, VOCAB, (length,))
        first, second = torch.randperm(length)[:2].sort().values.tolist()
        if y[i] == 0:
            x[i, first], x[i, second] = 1, 2
        elif y[i] == 1:
            x[i, first], x[i, second] = 2, 1
        else:
            x[i, first] = 1
    return x, y


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, dropout=0.1):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        position = torch.arange(MAX_LEN).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2) * (-math.log(100.0) / d_model))
        pe = torch.zeros(1, MAX_LEN, d_model)
        pe[0, :, 0::2] = torch.sin(position * div_term)
        pe[0, :, 1::2] = torch.cos(position * div_term)
        self.register_buffer("pe", pe)

    def forward(self, x):
        return self.dropout(x + self.pe[:, : x.size(1)])


class TextTransformer(nn.Module):
    def __init__(self, d_model=48, nhead=4, layers=2):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, d_model, padding_idx=PAD)
        self.scale = math.sqrt(d_model)
        self.pos = PositionalEncoding(d_model)
        layer = nn.TransformerEncoderLayer(
            d_model, nhead, 96, dropout=0.1, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(
            layer, layers, nn.LayerNorm(d_model), enable_nested_tensor=False
        )
        self.head = nn.Linear(d_model, CLASSES)
        nn.init.normal_(self.embed.weight, std=d_model**-0.5)

    def forward(self, x):
        mask = x == PAD
        h = self.encoder(self.pos(self.embed(x) * self.scale), src_key_padding_mask=mask)
        keep = (~mask).unsqueeze(-1).float()
        return self.head((h * keep).sum(1) / keep.sum(1))


def main():
    x_train, y_train = make_sentences(3000)
    x_valid, y_valid = make_sentences(600)
    model = TextTransformer()
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    epochs, batch, warmup = 10, 64, 60
    total = epochs * math.ceil(len(x_train) / batch)
    scheduler = LambdaLR(
        optimizer, lambda s: min((s + 1) / warmup, max(0.02, (total - s) / (total - warmup)))
    )
    for epoch in range(epochs):
        model.train()
        running = 0.0
        for idx in torch.randperm(len(x_train)).split(batch):
            loss = criterion(model(x_train[idx]), y_train[idx])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            running += loss.item() * len(idx)
        model.eval()
        with torch.no_grad():
            logits = model(x_valid)
        valid_loss = criterion(logits, y_valid).item()
        acc = (logits.argmax(1) == y_valid).float().mean().item()
        print(
            f"epoch {epoch + 1}: train {running / len(x_train):.4f} valid {valid_loss:.4f} accuracy {acc:.3f}"
        )


if __name__ == "__main__":
    main()
