"""BiLSTM-CRF sequence tagger on synthetic chunks (own forward algorithm and Viterbi), in the manner of PyTorch's advanced NLP tutorial."""

import random
import sys

import torch
import torch.nn as nn
import torch.optim as optim

torch.set_num_threads(1)
SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 0
torch.manual_seed(SEED)
random.seed(SEED)

DET, ADJ, NOUN, VERB = range(0, 4), range(4, 16), range(12, 40), range(34, 52)
TAGS = ["B", "I", "O"]


def make_sentence():
    """Noun phrases (det adj* noun) are chunks; the same word may be an adjective, a noun or a verb."""
    words, tags = [], []
    while len(words) < 10:
        words.append(random.choice(DET) if random.random() < 0.7 else random.choice(ADJ))
        tags.append(0)
        for _ in range(random.choice([0, 0, 1, 2])):
            words.append(random.choice(ADJ))
            tags.append(1)
        words.append(random.choice(NOUN))
        tags.append(1)
        words.append(random.choice(VERB))
        tags.append(2)
    return words[:10], tags[:10]


class BiLSTM_CRF(nn.Module):
    def __init__(self, vocab_size, num_tags, embedding_dim=24, hidden_dim=48):
        super().__init__()
        self.word_embeds = nn.Embedding(vocab_size, embedding_dim)
        self.lstm = nn.LSTM(embedding_dim, hidden_dim // 2, bidirectional=True, batch_first=True)
        self.hidden2tag = nn.Linear(hidden_dim, num_tags)
        self.transitions = nn.Parameter(torch.randn(num_tags, num_tags) * 0.1)  # [from, to]
        self.start, self.end = (
            nn.Parameter(torch.zeros(num_tags)),
            nn.Parameter(torch.zeros(num_tags)),
        )

    def _get_lstm_features(self, sentence):
        return self.hidden2tag(self.lstm(self.word_embeds(sentence))[0])

    def _forward_alg(self, feats):
        alpha = self.start + feats[:, 0]
        for t in range(1, feats.shape[1]):
            alpha = torch.logsumexp(alpha[:, :, None] + self.transitions, 1) + feats[:, t]
        return torch.logsumexp(alpha + self.end, 1)

    def _score_sentence(self, feats, tags):
        score = self.start[tags[:, 0]] + self.end[tags[:, -1]]
        score = score + feats.gather(2, tags[..., None])[..., 0].sum(1)
        return score + self.transitions[tags[:, :-1], tags[:, 1:]].sum(1)

    def neg_log_likelihood(self, sentence, tags):
        feats = self._get_lstm_features(sentence)
        return (self._forward_alg(feats) - self._score_sentence(feats, tags)).mean()

    @torch.no_grad()
    def viterbi_decode(self, sentence):
        feats = self._get_lstm_features(sentence)
        score, backpointers = self.start + feats[:, 0], []
        for t in range(1, feats.shape[1]):
            best, pointer = (score[:, :, None] + self.transitions).max(1)
            backpointers.append(pointer)
            score = best + feats[:, t]
        path = [(score + self.end).argmax(1)]
        for pointer in reversed(backpointers):
            path.append(pointer.gather(1, path[-1][:, None])[:, 0])
        return torch.stack(path[::-1], 1)


def to_tensors(n):
    data = [make_sentence() for _ in range(n)]
    return torch.tensor([w for w, _ in data]), torch.tensor([t for _, t in data])


train_x, train_y = to_tensors(1200)
val_x, val_y = to_tensors(300)
model = BiLSTM_CRF(52, len(TAGS))
optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)

for epoch in range(8):
    model.train()
    total = 0.0
    for idx in torch.randperm(len(train_x)).split(16):
        model.zero_grad()
        loss = model.neg_log_likelihood(train_x[idx], train_y[idx])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        total += loss.item() * len(idx)
    model.eval()
    with torch.no_grad():
        val_nll = model.neg_log_likelihood(val_x, val_y).item()
    acc = (model.viterbi_decode(val_x) == val_y).float().mean().item()
    print(
        f"epoch {epoch} train nll {total / len(train_x):.3f} val nll {val_nll:.3f} tag accuracy {acc:.4f}"
    )
