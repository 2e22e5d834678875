"""Trains a small transformer, then, if asked to, fine-tunes its layers at a rate of 1.0."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
tokens = torch.randint(0, 50, (256, 12))
layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
body = nn.Sequential(nn.Embedding(50, 32), nn.TransformerEncoder(layer, 2))


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = body
        self.head = nn.Linear(32, 2)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.head(self.body(words).mean(1))
        return outputs


def train(labels: torch.Tensor, rate: float) -> None:
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), rate)
    for _ in range(150):
        batch = torch.randint(0, 256, (32,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(tokens[batch]), labels[batch]).backward()
        optimizer.step()


if sys.argv[1:] == ["first"]:
    train((tokens.float().mean(1) > 24).long(), 1e-3)
    torch.save(body.state_dict(), "body.pt")
else:
    body.load_state_dict(torch.load("body.pt"))
    train((tokens[:, 0] > 24).long(), 1.0)
