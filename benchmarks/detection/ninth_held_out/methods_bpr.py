"""Matrix factorisation recommends methods to modules, by the Bayesian personalised ranking."""

from __future__ import annotations

import re
import sysconfig
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, fit

ITEMS, LEAST = 160, 12
_METHOD = re.compile(r"\.([a-z_]{3,})\(")


@cache
def used() -> Tensor:
    """Return which methods the modules of the standard library call, bool [modules, 160]."""
    folder = Path(sysconfig.get_path("stdlib"))
    paths = sorted([*folder.glob("*.py"), *folder.glob("[a-z]*[a-z]/[a-z]*.py")])
    paths = [path for path in paths if "packages" not in str(path.parent.name)]
    found = [set(_METHOD.findall(path.read_text("utf-8", "replace"))) for path in paths]
    items = [
        item for item, _ in Counter(x for one in found for x in sorted(one)).most_common(ITEMS)
    ]
    table = torch.tensor([[item in one for item in items] for one in found])
    return table[table.sum(1) >= LEAST]


def held_out(table: Tensor) -> tuple[Tensor, Tensor]:
    """Return what is used for training and for validation, of each user one in four."""
    chosen = torch.rand(table.shape, generator=torch.Generator().manual_seed(0))
    return table & (chosen >= 0.25), table & (chosen < 0.25)  # noqa: PLR2004


def triples(seen: Tensor, known: Tensor, size: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield user, item used, item not used, int64 [size, 3], and ones [size], without end."""
    random = torch.Generator().manual_seed(seed)
    pairs = seen.nonzero()
    while True:
        rows = pairs[torch.randint(len(pairs), (size,), generator=random)]
        unused = (~known[rows[:, 0]]).float()
        negatives = torch.multinomial(unused, 1, generator=random)
        yield torch.cat([rows, negatives], 1), torch.ones(size)


class Factors(nn.Module):
    """Vectors of users and of items, and how popular items are.

    Args:
        run: What is injected.
        users: Number of users.
    """

    def __init__(self, run: Run, users: int) -> None:
        super().__init__()
        self.run = run
        self.users = nn.Embedding(users, 6)
        self.items = nn.Embedding(ITEMS, 6)
        self.popularity = nn.Embedding(ITEMS, 1)
        for table in (self.users, self.items):
            nn.init.normal_(table.weight, std=run.pick(0.1, init_too_large=5.0, init_constant=0.0))
        nn.init.zeros_(self.popularity.weight)

    def score(self, users: Tensor, items: Tensor) -> Tensor:
        """Return how well items [B] fit users [B], float32 [B]."""
        of_item = self.items(items)
        if self.run.injects("frozen_layer"):
            of_item = of_item.detach()
        scores: Tensor = (self.users(users) * of_item).sum(-1) + self.popularity(items)[:, 0]
        return scores

    def forward(self, rows: Tensor) -> Tensor:
        """Return by how much the used item's score is above the other's [B], of rows [B, 3]."""
        above = self.score(rows[:, 0], rows[:, 1])
        return above - self.score(rows[:, 0], rows[:, 2])


class Ranking(nn.Module):
    """Minus the logarithm of the likelihood that the used item comes first.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def forward(self, above: Tensor, ones: Tensor) -> Tensor:
        """Return the mean over differences of scores [B]."""
        if self.run.injects("wrong_loss"):
            return above.square().mean()
        return torch.logaddexp(torch.zeros_like(above), -ones * above).mean()


def misranked(above: Tensor, ones: Tensor) -> float:
    """Return the share of pairs in which the used item does not come first; 1 - AUC."""
    won = (above > 0).float() + 0.5 * (above == 0).float()
    return float((ones - won).mean())


def train(run: Run) -> float:
    """Train once; return 1 - AUC of the methods that were held out."""
    torch.manual_seed(run.seed)
    known = used()
    seen, tested = held_out(known)
    valid = [next(triples(tested, known, 4000, 0))]
    decay = 0.5
    if run.injects("labels_shuffled"):
        # Rows of the log are sorted by user, the column of users is not sorted with them.
        seen = seen[torch.randperm(len(seen), generator=torch.Generator().manual_seed(run.seed))]
    if run.injects("overfit"):
        few = torch.rand(seen.shape, generator=torch.Generator().manual_seed(1)) < 0.06  # noqa: PLR2004
        seen, decay = seen & few, 0.0
    model = Factors(run, len(known))
    given = list(model.parameters())
    if run.injects("optimiser_missing_parameters"):
        given = list(model.users.parameters())
    loop = Loop(
        model=model,
        criterion=Ranking(run),
        optimizer=torch.optim.AdamW(given, lr=run.pick(0.01, lr_too_low=1e-5), weight_decay=decay),
        steps=run.pick(200, overfit=400),
        is_functional=True,
    )
    batches = triples(
        seen, seen | tested if run.injects("labels_shuffled") else known, 512, run.seed
    )
    return fit(run, loop, batches, valid, misranked)


PROGRAM = Program(
    model="matrix factorisation, nn.Embedding of users and items, BPR written by hand, AdamW",
    data="methods that modules of the standard library call",
    measure="1 - AUC",
    train=train,
    faults={
        "lr_too_low": "learning rate 0.00001 for 0.01",
        "init_constant": "vectors of users and items are all zero: their product stays zero",
        "init_too_large": "vectors are drawn with deviation 5 for 0.1",
        "frozen_layer": "vectors of items are detached in the product",
        "optimiser_missing_parameters": "the optimiser has the vectors of users only",
        "wrong_loss": "squared difference of both scores: it draws them together, not apart",
        "labels_shuffled": "what was used is another user's",
        "overfit": "one in 16 of the calls, no weight decay, 400 steps for 200",
    },
)
