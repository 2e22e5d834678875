"""The tagger's loss stays near chance, although the tag of a word depends on the word alone.

Cause: `view` from (time, batch, tags) to (batch, time, tags) mixes sentences; `transpose` is needed.
"""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
torch.manual_seed(25)

tag_of_word = torch.randint(0, 5, (60,))
sentences = torch.randint(0, 60, (640, 7))
tags = tag_of_word[sentences]


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(60, 16)
        self.rnn = nn.RNN(16, 32)
        self.output = nn.Linear(32, 5)

    def forward(self, words):  # (batch, time)
        states, _ = self.rnn(self.embedding(words.t()))
        scores = self.output(states)
        if FIXED:
            return scores.transpose(0, 1)
        return scores.view(words.size(0), words.size(1), 5)


tagger = Tagger()
optimizer = torch.optim.Adam(tagger.parameters(), lr=0.01)
for epoch in range(8):
    for idx in torch.randperm(640).split(32):
        optimizer.zero_grad()
        scores = tagger(sentences[idx])
        loss = nn.functional.cross_entropy(scores.reshape(-1, 5), tags[idx].reshape(-1))
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
print("accuracy", (tagger(sentences).argmax(2) == tags).float().mean().item())
