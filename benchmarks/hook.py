"""What the hook adds to a training step, beside an un-hooked twin.

    python benchmarks/hook.py [--rounds 8] [--steps 5] [--store memory|folder]

Twins with the same weights and batches train in one process, in turns of `--steps` steps, on one
torch thread; added wall time and added CPU time of the whole process (so that work on another
thread is seen) are medians over the rounds. The model is a 6-layer encoder, d = 384, of 11.4 M
parameters, batch 4 x 32: small on purpose, so that what is added shows.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from hook_layer.pytorch import Hook, ReductionConfig, SaveConfig
from hook_layer.storage.memory import MemoryStore

TENSORS = ["weights", "gradients", "biases"]


class Encoder(nn.Module):
    """A small transformer that classifies every token; 11.4 M parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1000, 384)
        layer = nn.TransformerEncoderLayer(384, 6, 1536, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
        self.head = nn.Linear(384, 1000)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits [batch, length, 1000] of tokens [batch, length]."""
        logits: torch.Tensor = self.head(self.encoder(self.embedding(tokens)))
        return logits


class DiscardingStore(MemoryStore):
    """Keeps nothing, so that the time of a disk or network does not count."""

    def put(self, key: str, data: Any) -> None:
        """Forget the object."""


@dataclass
class Twin:
    """A model in training."""

    step: Callable[[], None]
    hook: Hook | None = None


def make_twin(hook: Hook | None, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> Twin:
    torch.manual_seed(0)
    model = Encoder()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    if hook is not None:
        hook.register_module(model)
        hook.register_loss(criterion)
    position = 0

    def step() -> None:
        nonlocal position
        tokens, labels = batches[position % len(batches)]
        position += 1
        optimizer.zero_grad()
        logits = model(tokens)
        loss = criterion(logits.view(-1, 1000), labels.view(-1))
        loss.backward()
        optimizer.step()

    return Twin(step, hook)


def timed(twin: Twin, steps: int) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(steps):
        twin.step()
    wall = time.perf_counter() - wall
    if twin.hook is not None:
        twin.hook.flush()
    cpu = time.process_time() - cpu
    return wall / steps * 1e3, cpu / steps * 1e3


def measure(name: str, make_hook: Callable[[], Hook], rounds: int, steps: int) -> None:
    torch.manual_seed(1)
    batches = [(torch.randint(1000, (4, 32)), torch.randint(1000, (4, 32))) for _ in range(4)]
    plain, hooked = make_twin(None, batches), make_twin(make_hook(), batches)
    timed(plain, 3)
    timed(hooked, 3)
    base, wall, cpu = [], [], []
    for _ in range(rounds):
        one, two = timed(plain, steps), timed(hooked, steps)
        base.append(one[0])
        wall.append(two[0] - one[0])
        cpu.append(two[1] - one[1])
    assert hooked.hook is not None
    report = hooked.hook.report()
    hooked.hook.close()
    print(
        f"{name:<12} base {statistics.median(base):6.1f} ms  added wall "
        f"{statistics.median(wall):6.2f} [{min(wall):.2f} .. {max(wall):.2f}] ms  added CPU "
        f"{statistics.median(cpu):6.2f} ms   {report}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--store", choices=("discard", "folder"), default="folder")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    every_step = SaveConfig(save_interval=1)
    variants: dict[str, dict[str, Any]] = {
        "losses": {},
        "statistics": {
            "include_collections": TENSORS,
            "reduction_config": ReductionConfig(save_raw_tensor=False),
        },
        "raw": {"include_collections": TENSORS},
    }
    for name, options in variants.items():
        with tempfile.TemporaryDirectory() as folder:

            def make_hook(options: dict[str, Any] = options, folder: str = folder) -> Hook:
                hook = Hook(folder, save_config=every_step, **options)
                if arguments.store == "discard":
                    hook._store = DiscardingStore()  # noqa: SLF001 - measures all but the storing
                return hook

            measure(name, make_hook, arguments.rounds, arguments.steps)


if __name__ == "__main__":
    main()
