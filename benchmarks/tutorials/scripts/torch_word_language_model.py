"""Word-level LSTM language model on Python's help pages, tied weights and clipped SGD, in the manner of PyTorch's word_language_model example."""

import math
import pydoc_data.topics
import re
import sys
import time
from collections import Counter

import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(int(sys.argv[1]) if len(sys.argv) > 1 else 0)

BPTT = 25
EMSIZE = 96
EPOCHS = 5
CLIP = 0.25
BATCH_SIZE = 20
VOCAB = 1500


class Corpus:
    def __init__(self):
        pages = sorted(pydoc_data.topics.topics.items())
        train, valid = [], []
        for i, (_, text) in enumerate(pages):
            words = re.findall(r"[a-z]+|[0-9]+|[^\sa-z0-9]", text.lower())
            words = [w for w in words if w not in "*=-~+|\\`"]
            (valid if i % 8 == 0 else train).extend(words + ["<eos>"])
        train, valid = train[:80_000], valid[:9_000]
        self.idx2word = ["<unk>"] + [w for w, _ in Counter(train).most_common(VOCAB - 1)]
        self.word2idx = {w: i for i, w in enumerate(self.idx2word)}
        self.train = torch.tensor([self.word2idx.get(w, 0) for w in train])
        self.valid = torch.tensor([self.word2idx.get(w, 0) for w in valid])


class RNNModel(nn.Module):
    """Container module with an encoder, a recurrent module, and a decoder."""

    def __init__(self, ntoken, ninp, nhid, nlayers, dropout=0.2):
        super().__init__()
        self.ntoken = ntoken
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnn = nn.LSTM(ninp, nhid, nlayers, dropout=dropout)
        self.decoder = nn.Linear(nhid, ntoken)
        self.decoder.weight = self.encoder.weight
        self.nhid, self.nlayers = nhid, nlayers
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)

    def forward(self, input, hidden):
        emb = self.drop(self.encoder(input))
        output, hidden = self.rnn(emb, hidden)
        decoded = self.decoder(self.drop(output)).view(-1, self.ntoken)
        return nn.functional.log_softmax(decoded, dim=1), hidden

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        return (
            weight.new_zeros(self.nlayers, bsz, self.nhid),
            weight.new_zeros(self.nlayers, bsz, self.nhid),
        )


def batchify(data, bsz):
    nbatch = data.size(0) // bsz
    return data[: nbatch * bsz].view(bsz, -1).t().contiguous()


def repackage_hidden(h):
    """Wraps hidden states in new Tensors, to detach them from their history."""
    return tuple(v.detach() for v in h)


def get_batch(source, i):
    seq_len = min(BPTT, len(source) - 1 - i)
    return source[i : i + seq_len], source[i + 1 : i + 1 + seq_len].view(-1)


corpus = Corpus()
train_data = batchify(corpus.train, BATCH_SIZE)
val_data = batchify(corpus.valid, 10)
model = RNNModel(len(corpus.idx2word), EMSIZE, EMSIZE, 1)
criterion = nn.NLLLoss()


def evaluate(data_source):
    model.eval()
    total_loss = 0.0
    hidden = model.init_hidden(10)
    with torch.no_grad():
        for i in range(0, data_source.size(0) - 1, BPTT):
            data, targets = get_batch(data_source, i)
            output, hidden = model(data, hidden)
            total_loss += len(data) * criterion(output, targets).item()
    return total_loss / (len(data_source) - 1)


def train(lr):
    model.train()
    total_loss, batches = 0.0, 0
    hidden = model.init_hidden(BATCH_SIZE)
    for i in range(0, train_data.size(0) - 1, BPTT):
        data, targets = get_batch(train_data, i)
        model.zero_grad()
        hidden = repackage_hidden(hidden)
        output, hidden = model(data, hidden)
        loss = criterion(output, targets)
        loss.backward()
        # `clip_grad_norm` helps prevent the exploding gradient problem in RNNs / LSTMs.
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-lr)
        total_loss += loss.item()
        batches += 1
    return total_loss / batches


lr = 20.0
best_val_loss = None
for epoch in range(1, EPOCHS + 1):
    start = time.time()
    train_loss = train(lr)
    val_loss = evaluate(val_data)
    print(
        f"| end of epoch {epoch} | time {time.time() - start:.1f}s | lr {lr:.2f} | train {train_loss:.2f} "
        f"| valid loss {val_loss:.2f} | valid ppl {math.exp(val_loss):.2f}"
    )
    if not best_val_loss or val_loss < best_val_loss:
        best_val_loss = val_loss
    else:
        # Anneal the learning rate if no improvement has been seen in the validation dataset.
        lr /= 4.0
