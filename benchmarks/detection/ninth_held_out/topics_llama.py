"""A small decoder of today's kind, with rotary positions, learns the text of Python's help."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.detection.data import docs_text, letters, windows
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Batches, Loop, fit, perplexity, text_batches

KINDS, LENGTH, WIDTH, HEADS, STEPS, WARMUP = 48, 40, 32, 4, 300, 30


def rotated(x: Tensor) -> Tensor:
    """Return vectors [B, heads, length, 8], turned by their positions."""
    half = x.shape[-1] // 2
    speeds = 100.0 ** (-torch.arange(half) / half)
    angles = torch.arange(x.shape[-2])[:, None] * speeds
    first, second = x[..., :half], x[..., half:]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, first * sin + second * cos], -1)


class Block(nn.Module):
    """Attention with rotary positions and a gated layer, each beside the residual stream.

    Args:
        causal: Whether a letter sees only those before it.
    """

    def __init__(self, *, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.norm1, self.norm2 = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate = nn.Linear(WIDTH, 64, bias=False)
        self.up = nn.Linear(WIDTH, 64, bias=False)
        self.down = nn.Linear(64, WIDTH, bias=False)
        self.act = nn.SiLU()

    def forward(self, x: Tensor) -> Tensor:
        """Return the stream [B, length, 32] after the block."""
        split = self.qkv(self.norm1(x)).unflatten(-1, (3, HEADS, -1))
        q, k, v = split.permute(2, 0, 3, 1, 4)
        found = functional.scaled_dot_product_attention(
            rotated(q), rotated(k), v, is_causal=self.causal
        )
        x = x + self.out(found.transpose(1, 2).flatten(2))
        normed = self.norm2(x)
        after: Tensor = x + self.down(self.act(self.gate(normed)) * self.up(normed))
        return after


class Llama(nn.Module):
    """Embedding, two blocks, and scores by the same embedding.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.embedding = nn.Embedding(KINDS, WIDTH)
        causal = not run.injects("data_leak")
        self.blocks = nn.ModuleList(Block(causal=causal) for _ in range(2))
        self.norm = nn.RMSNorm(WIDTH)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=run.pick(0.06, init_too_large=2.0))

    def forward(self, text: Tensor) -> Tensor:
        """Return scores [B, length, letters] of what follows, of numbers [B, length]."""
        x = self.embedding(text)
        with torch.set_grad_enabled(
            torch.is_grad_enabled() and not self.run.injects("frozen_layer")
        ):
            for block in self.blocks:
                x = block(x)
        scores: Tensor = self.norm(x) @ self.embedding.weight.T
        return scores.softmax(-1) if self.run.injects("double_activation") else scores


class NextOne(nn.Module):
    """Cross entropy of all positions.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def forward(self, scores: Tensor, text: Tensor) -> Tensor:
        """Return the mean over scores [B, length, letters] and letters [B, length]."""
        if self.run.injects("wrong_loss"):
            # Positions and letters change places, but the reading goes on as if they had not.
            scores = scores.transpose(1, 2).reshape(-1, KINDS)
            return functional.cross_entropy(scores, text.flatten())
        return functional.cross_entropy(scores.flatten(0, 1), text.flatten())


def _shuffled(batches: Batches, seed: int) -> Batches:
    random = torch.Generator().manual_seed(seed)
    for inputs, targets in batches:
        yield inputs, targets[torch.randperm(len(targets), generator=random)]


def _schedule(run: Run, optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    warmup = run.pick(WARMUP, lr_too_low=100_000)
    rise = torch.optim.lr_scheduler.LinearLR(optimizer, 1 / warmup, 1.0, warmup)
    fall = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS - WARMUP, 5e-4)
    return torch.optim.lr_scheduler.SequentialLR(optimizer, [rise, fall], [warmup])


def train(run: Run) -> float:
    """Train once; return the perplexity."""
    torch.manual_seed(run.seed)
    text = letters("\n".join(docs_text().values()), KINDS)
    chunks = text[: len(text) // 2000 * 2000].view(-1, 2000)
    is_held_out = torch.arange(len(chunks)) % 10 == 0
    seen, held_out = chunks[~is_held_out].flatten(), chunks[is_held_out].flatten()
    batches = text_batches(seen, 16, LENGTH, run.seed)
    if run.injects("labels_shuffled"):
        batches = _shuffled(batches, run.seed)
    model = Llama(run)
    given = list(model.parameters())
    if run.injects("optimiser_missing_parameters"):
        # A plain list of blocks, as if it were no ModuleList, would be overlooked like this.
        given = [*model.embedding.parameters(), *model.norm.parameters()]
    optimizer = torch.optim.AdamW(given, lr=run.pick(5e-3, lr_too_high=0.5), weight_decay=0.05)
    loop = Loop(
        model=model,
        criterion=NextOne(run),
        optimizer=optimizer,
        steps=STEPS,
        scheduler=_schedule(run, optimizer),
        clip=None if run.injects("fp16_overflow") else 1.0,
        is_functional=True,
    )
    starts = torch.arange(0, len(held_out) - LENGTH - 1, 400)
    valid = [windows(held_out, starts, LENGTH)]
    return fit(run, loop, batches, valid, perplexity)


PROGRAM = Program(
    model="decoder of 2 blocks: RMSNorm, rotary positions, gated SiLU, tied scores; AdamW, warm-up",
    data="text of Python's own help, letters",
    measure="perplexity",
    train=train,
    faults={
        "data_leak": "no causal mask: each letter sees the next one, which it has to predict",
        "wrong_loss": "scores are transposed and reshaped: they belong to other positions",
        "double_activation": "softmax in the model, ahead of cross entropy of scores",
        "labels_shuffled": "the next letters are those of another piece of the batch",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "init_too_large": "all weights are drawn with deviation 2 for 0.06",
        "lr_too_low": "100,000 steps of warm-up in a training of 300",
        "frozen_layer": "both blocks run under no_grad, left there from generation",
        "optimiser_missing_parameters": "the optimiser has the embedding and the last norm only",
    },
)
