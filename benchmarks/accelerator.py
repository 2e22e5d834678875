"""What hooks add to a training step on a CUDA device, where the host must not wait for it.

A GPT of 124 M parameters trains on 16 x 512 tokens in bfloat16, as one trains such models. The
host queues a step's work in a fraction of the time that the device needs for it: who reads a number
of the device in every step makes one wait for the other.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import torch
from torch import Tensor, nn

from benchmarks.hooks import Attachment, Kind, of_hook, ours, peers
from benchmarks.measuring import Contender, Scale, added_per_step
from benchmarks.result import Measured, Result
from hook_layer.pytorch import Hook
from rule_runtime.configuration.packs import find_pack

__all__ = ["accelerator"]

_VOCABULARY: Final = 50_304
_PACKAGES: Final = {"TensorBoard": "tensorboard", "wandb": "wandb", "smdebug": "smdebug"}
_STEPS: Final = {"statistics": 5}  # in a block; TensorBoard needs seconds for one


class Block(nn.Module):
    """A layer of the model."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ahead = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.between = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return what follows from x [batch, length, width]."""
        split = self.qkv(self.ahead(x)).unflatten(-1, (3, self.heads, -1))
        query, key, value = split.permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.projection(seen.transpose(1, 2).flatten(2))
        result: Tensor = x + self.mlp(self.between(x))
        return result


class Gpt(nn.Module):
    """A language model like the smallest GPT-2."""

    def __init__(self, width: int = 768, length: int = 512) -> None:
        super().__init__()
        self.tokens = nn.Embedding(_VOCABULARY, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, width // 64) for _ in range(12)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, _VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight
        self.apply(_initialise)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits [batch, length, vocabulary] of tokens [batch, length]."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.positions(positions)
        logits: Tensor = self.head(self.norm(self.blocks(x)))
        return logits


def accelerator(scale: Scale) -> list[Result]:
    """Losses every step, the recommended pack, and statistics every step."""
    if not torch.cuda.is_available():
        print("accelerator: not measured, for torch sees no CUDA device")
        return []
    rows = []
    for kind in ("losses", "statistics"):
        rows += _rows(kind, ours(kind, scale.folder / kind), scale, _peers(kind, scale))
    rows += _rows("recommended pack", _pack(scale.folder / "pack"), scale, {})
    return rows


def _rows(
    what: str, attachment: Attachment, scale: Scale, others: dict[str, Attachment]
) -> list[Result]:
    """Return the row for added wall time, and one for the step of the twin."""
    attachments = {"ours": attachment, **others}
    plain = _twin(Attachment())
    durations: list[float] = []
    twins = {name: _twin(one) for name, one in attachments.items()}
    added = added_per_step(
        plain, twins, rounds=scale.rounds, steps=_STEPS.get(what, 20), durations=durations
    )
    for one in attachments.values():
        one.close()
    wall = {name: pair[0] for name, pair in added.items()}
    del plain, twins
    torch.cuda.empty_cache()
    return [
        Result(f"CUDA, {what}: added wall time", "ms/step", wall.pop("ours"), peers=wall),
        Result(f"CUDA, {what}: step without", "ms/step", Measured.of(durations)),
    ]


def _peers(kind: Kind, scale: Scale) -> dict[str, Attachment]:
    if not scale.peers:
        return {}
    known = peers(kind, scale.folder / kind, only=[n for n, p in _PACKAGES.items() if find_spec(p)])
    return known | ({"loss.item()": _read_loss()} if kind == "losses" else {})


def _read_loss() -> Attachment:
    """Read the loss in every step, as training loops do that print it."""
    return Attachment(before_update=lambda _, loss: loss.item())


def _pack(folder: Path) -> Attachment:
    """Return a hook that saves the collections of the recommended pack in every tenth step."""
    pack = replace(find_pack("recommended"), begins_densely=False)
    document = {
        "LocalPath": str(folder),
        "HookParameters": {"save_interval": "10"},
        "CollectionConfigurations": [config.to_json() for config in pack.collections()],
    }
    path = folder.with_suffix(".json")
    path.write_text(json.dumps(document))
    hook = Hook.create_from_json_file(str(path))
    return of_hook(hook, hook.flush, folder, every=1)


def _twin(attachment: Attachment) -> Contender:
    torch.manual_seed(0)
    model, criterion = Gpt().cuda(), nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    attachment.attach(model, criterion)
    tokens = torch.randint(_VOCABULARY, (4, 16, 513), device="cuda")
    position = 0

    def step() -> None:
        nonlocal position
        batch = tokens[position % len(tokens)]
        position += 1
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(batch[:, :-1])
            loss = criterion(logits.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        attachment.before_update(model, loss)
        optimizer.step()

    wait: Callable[[], None] = torch.cuda.synchronize
    return Contender(step, attachment.settle, attachment.tidy, attachment.every, wait)


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
