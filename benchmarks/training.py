"""What hooks add to a training step, beside a twin without any.

Twins with the same weights and batches train in one process, in turns of some steps. The model is a
6-layer encoder, d = 384, of 11.4 M parameters, with batches of 4 x 32 tokens: small on purpose, so
that what is added shows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import torch
from torch import Tensor, nn

from benchmarks.hooks import Attachment, Kind, ours, peers
from benchmarks.measuring import Contender, Scale, added_per_step, in_turns, seconds, touch_memory
from benchmarks.result import Measured, Result

__all__ = ["losses", "raw", "statistics"]

Batches: TypeAlias = "list[tuple[Tensor, Tensor]]"
VOCABULARY = 1000


class Encoder(nn.Module):
    """A small transformer that classifies every token.

    Args:
        width: Size of a token's vector; 384 makes 11.4 M parameters.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        layer = nn.TransformerEncoderLayer(width, 6, 4 * width, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits [batch, length, VOCABULARY] of tokens [batch, length]."""
        logits: Tensor = self.head(self.encoder(self.embedding(tokens)))
        return logits


def statistics(scale: Scale) -> list[Result]:
    """Statistics of all weights, gradients and biases, every step."""
    tensors = _tensors(scale)
    limit = _best_of(lambda: [tensor.sum() for tensor in tensors])
    rows = _rows("statistics", scale, steps=3, rounds=2)
    return [replace(row, must=36, aim=18, limit=limit) for row in rows]


def raw(scale: Scale) -> list[Result]:
    """The tensors themselves, every step."""
    tensors = _tensors(scale)
    copies = [tensor.clone() for tensor in tensors]
    limit = _best_of(lambda: [c.copy_(t) for c, t in zip(copies, tensors, strict=True)])
    touch_memory(scale.folder, scale.of(3 << 30))
    wall, cpu = _rows("raw", scale, steps=6, rounds=1)
    # Goals are those of the training loop; threads behind it write 91 MB a step.
    return [replace(wall, must=76, aim=40, limit=limit), replace(cpu, limit=limit)]


def losses(scale: Scale) -> list[Result]:
    """Losses only, every step.

    What hooks add depends on the number of modules, not on their size, but how much a step's time
    varies does: an eighth of the width makes a step short enough to see a tenth of a millisecond.
    """
    narrow = replace(scale, size=scale.size / 8)
    rows = _rows("losses", narrow, steps=20, rounds=4)
    return [replace(row, must=0.5, aim=0.2, limit=0.0) for row in rows]


def _rows(kind: Kind, scale: Scale, *, steps: int, rounds: int) -> list[Result]:
    """Return the rows for added wall and CPU time.

    Args:
        kind: What is saved.
        scale: How much is measured.
        steps: Length of a block of steps.
        rounds: How many times as many blocks as of other benchmarks.
    """
    torch.set_num_threads(1)
    attachments = {"ours": ours(kind, scale.folder / "ours")}
    if scale.peers:
        attachments |= peers(kind, scale.folder)
    torch.manual_seed(1)
    batches = [(_tokens(scale), _tokens(scale)) for _ in range(4)]
    plain = _twin(Attachment(), scale, batches)
    twins = {name: _twin(one, scale, batches) for name, one in attachments.items()}
    added = added_per_step(plain, twins, rounds=scale.rounds * rounds, steps=steps)
    for attachment in attachments.values():
        attachment.close()
    wall = {name: pair[0] for name, pair in added.items()}
    cpu = {name: pair[1] for name, pair in added.items()}
    return [
        Result(f"{kind}: added wall time", "ms/step", wall.pop("ours"), peers=wall),
        Result(f"{kind}: added CPU time", "ms/step", cpu.pop("ours"), peers=cpu),
    ]


def _tokens(scale: Scale) -> Tensor:
    return torch.randint(VOCABULARY, (4, scale.of(32)))


def _width(scale: Scale) -> int:
    return 6 * scale.of(64)


def _tensors(scale: Scale) -> list[Tensor]:
    """Return tensors like the model's parameters and their gradients."""
    torch.set_num_threads(1)
    parameters = [parameter.detach() for parameter in Encoder(_width(scale)).parameters()]
    return parameters + [torch.randn_like(parameter) for parameter in parameters]


def _best_of(work: Callable[[], object]) -> float:
    """Return the time that something takes, ms."""
    return 1e3 * Measured.of(in_turns({"": lambda: seconds(work)}, 7)[""]).median


def _twin(attachment: Attachment, scale: Scale, batches: Batches) -> Contender:
    torch.manual_seed(0)
    model, criterion = Encoder(_width(scale)), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    attachment.attach(model, criterion)
    position = 0

    def step() -> None:
        nonlocal position
        tokens, labels = batches[position % len(batches)]
        position += 1
        optimizer.zero_grad()
        loss = criterion(model(tokens).view(-1, VOCABULARY), labels.view(-1))
        loss.backward()
        attachment.before_update(model, loss)
        optimizer.step()

    return Contender(step, attachment.settle, attachment.tidy, attachment.every)
