"""Translates numbers into English words, "4 7 2" to "four hundred seventy two", with a GRU encoder and attention decoder, in the manner of PyTorch's seq2seq tutorial."""

import random
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
random.seed(seed)
torch.manual_seed(seed)

PAD, SOS, EOS = 0, 1, 2
ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()


def spell(n):
    if n < 20:
        return [ONES[n]]
    if n < 100:
        return [TENS[n // 10 - 2]] + (spell(n % 10) if n % 10 else [])
    if n < 1000:
        return [ONES[n // 100], "hundred"] + (spell(n % 100) if n % 100 else [])
    return spell(n // 1000) + ["thousand"] + (spell(n % 1000) if n % 1000 else [])


WORDS = ["<pad>", "<sos>", "<eos>", *ONES, *TENS, "hundred", "thousand"]
INDEX = {w: i for i, w in enumerate(WORDS)}
MAX_IN, MAX_OUT = 5, 10


def encode(n):
    src = [int(d) + 3 for d in str(n)] + [EOS]
    tgt = [INDEX[w] for w in spell(n)] + [EOS]
    return src + [PAD] * (MAX_IN - len(src)), tgt + [PAD] * (MAX_OUT - len(tgt))


numbers = random.sample(range(10000), 3400)
pairs = [encode(n) for n in numbers]
src = torch.tensor([p[0] for p in pairs])
tgt = torch.tensor([p[1] for p in pairs])
train_src, train_tgt, valid_src, valid_tgt = src[:3000], tgt[:3000], src[3000:], tgt[3000:]


class EncoderRNN(nn.Module):
    def __init__(self, input_size, hidden_size, dropout_p=0.1):
        super().__init__()
        self.embedding = nn.Embedding(input_size, hidden_size, padding_idx=PAD)
        self.gru = nn.GRU(hidden_size, hidden_size, batch_first=True)
        self.dropout = nn.Dropout(dropout_p)

    def forward(self, input):
        return self.gru(self.dropout(self.embedding(input)))


class BahdanauAttention(nn.Module):
    def __init__(self, hidden_size):
        super().__init__()
        self.Wa = nn.Linear(hidden_size, hidden_size)
        self.Ua = nn.Linear(hidden_size, hidden_size)
        self.Va = nn.Linear(hidden_size, 1)

    def forward(self, query, keys, mask):
        scores = self.Va(torch.tanh(self.Wa(query) + self.Ua(keys))).squeeze(2)
        weights = F.softmax(scores.masked_fill(mask, float("-inf")), dim=-1).unsqueeze(1)
        return torch.bmm(weights, keys)


class AttnDecoderRNN(nn.Module):
    def __init__(self, hidden_size, output_size, dropout_p=0.1):
        super().__init__()
        self.embedding = nn.Embedding(output_size, hidden_size, padding_idx=PAD)
        self.attention = BahdanauAttention(hidden_size)
        self.gru = nn.GRU(2 * hidden_size, hidden_size, batch_first=True)
        self.out = nn.Linear(hidden_size, output_size)
        self.dropout = nn.Dropout(dropout_p)

    def forward(self, encoder_outputs, hidden, mask, target=None):
        word = torch.full((encoder_outputs.size(0), 1), SOS)
        outputs = []
        for i in range(MAX_OUT):
            embedded = self.dropout(self.embedding(word))
            context = self.attention(hidden.permute(1, 0, 2), encoder_outputs, mask)
            output, hidden = self.gru(torch.cat((embedded, context), dim=2), hidden)
            outputs.append(self.out(output))
            if target is not None:
                word = target[:, i].unsqueeze(1)  # Teacher forcing
            else:
                word = outputs[-1].argmax(-1).detach()
        return torch.cat(outputs, dim=1)


encoder = EncoderRNN(13, 64)
decoder = AttnDecoderRNN(64, len(WORDS))
encoder_optimizer = torch.optim.Adam(encoder.parameters(), lr=2e-3)
decoder_optimizer = torch.optim.Adam(decoder.parameters(), lr=2e-3)
schedulers = [
    torch.optim.lr_scheduler.ExponentialLR(o, 0.85) for o in (encoder_optimizer, decoder_optimizer)
]
criterion = nn.CrossEntropyLoss(ignore_index=PAD)

for epoch in range(1, 11):
    encoder.train()
    decoder.train()
    total = 0
    for idx in torch.randperm(len(train_src)).split(64):
        encoder_optimizer.zero_grad()
        decoder_optimizer.zero_grad()
        enc, hidden = encoder(train_src[idx])
        logits = decoder(enc, hidden, train_src[idx] == PAD, train_tgt[idx])
        loss = criterion(logits.view(-1, len(WORDS)), train_tgt[idx].view(-1))
        loss.backward()
        encoder_optimizer.step()
        decoder_optimizer.step()
        total += loss.item() * len(idx)

    for scheduler in schedulers:
        scheduler.step()
    encoder.eval()
    decoder.eval()
    with torch.no_grad():
        enc, hidden = encoder(valid_src)
        forced = decoder(enc, hidden, valid_src == PAD, valid_tgt)
        valid_loss = criterion(forced.view(-1, len(WORDS)), valid_tgt.view(-1)).item()
        words = decoder(enc, hidden, valid_src == PAD).argmax(-1)
        exact = ((words == valid_tgt) | (valid_tgt == PAD)).all(dim=1).float().mean().item()
    print(
        f"epoch {epoch} train loss {total / len(train_src):.4f} valid loss {valid_loss:.4f} exactly right {exact:.3f}"
    )
