"""Training gives the same numbers, bit by bit, with and without a hook that saves everything."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

import hook_layer.pytorch as smd
from hook_layer.testing.written_trial import WrittenTrial

NUM_STEPS = 6


class Cnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2)
        )
        self.dropout = nn.Dropout(0.3)
        self.fc = nn.Linear(4 * 9, 5)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.fc(self.dropout(self.features(images).flatten(1)))
        return result


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.layer(self.embedding(tokens))).flatten(0, 1)
        return result


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Dropout(0.3), nn.Linear(8, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layers(x)
        return result


Inputs = tuple[torch.Tensor, torch.Tensor]


def vectors() -> Inputs:
    return torch.randn(4, 8), torch.randint(5, (4,))


def images() -> Inputs:
    return torch.randn(4, 1, 8, 8), torch.randint(5, (4,))


def tokens() -> Inputs:
    return torch.randint(11, (3, 7)), torch.randint(11, (21,))


@dataclass
class Job:
    """A training: a model, its data, and whether it accumulates and scales."""

    make: Callable[[], nn.Module]
    data: Callable[[], Inputs]
    passes: int = 1
    is_scaled: bool = False


JOBS = {
    "cnn": Job(Cnn, images),
    "transformer": Job(Transformer, tokens),
    "accumulation and amp": Job(Cnn, images, passes=3, is_scaled=True),
}
COMPILED_JOBS = {"mlp": Job(Mlp, vectors), "amp": Job(Mlp, vectors, passes=2, is_scaled=True)}
Result = tuple[list[torch.Tensor], dict[str, torch.Tensor], torch.Tensor]


def train(job: Job, hook: smd.Hook | None, compiled: dict[str, Any] | None = None) -> Result:
    """Return losses, parameters and buffers, and the state of the random numbers."""
    torch.manual_seed(0)
    net, criterion = job.make(), nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    if hook is not None:
        hook.register_module(net)
        if job.passes > 1:
            hook.register_optimizer(optimizer)
        else:
            hook.register_loss(criterion)
    scaler = torch.amp.GradScaler("cpu", enabled=job.is_scaled, init_scale=2.0**10)
    model = net if compiled is None else torch.compile(net, **compiled)
    losses = []
    for step in range(NUM_STEPS):
        optimizer.zero_grad()
        for _ in range(job.passes):
            inputs, labels = job.data()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=job.is_scaled):
                outputs = model(inputs)
                loss_of = F.cross_entropy if job.passes > 1 else criterion
                loss = loss_of(outputs, labels) * (torch.inf if job.is_scaled and step == 2 else 1)
            scaler.scale(loss / job.passes).backward()
            losses.append(loss.detach())
        scaler.step(optimizer)
        scaler.update()
        if hook is not None:
            hook.save_scalar("loss", loss)
    return losses, net.state_dict(), torch.get_rng_state()


def everything(trial: WrittenTrial, *, with_modules: bool = True) -> smd.Hook:
    tensors = ["weights", "biases", "gradients", "optimizer_variables"]
    return smd.Hook(
        trial.uri,
        save_config=smd.SaveConfig(save_interval=1),
        include_collections=tensors,
        reduction_config=smd.ReductionConfig(["mean", "std"], norms=["l2"], save_raw_tensor=True),
        save_all=with_modules,
    )


def assert_equal(result: Result, expected: Result, tolerance: float = 0.0) -> None:
    torch.testing.assert_close(result, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_eager_training_is_bit_identical(trial: WrittenTrial, job: Job) -> None:
    hook = everything(trial)
    result = train(job, hook)
    hook.close()
    assert_equal(result, train(job, None))
    assert hook.report().errors.keys() <= {"reductions"}  # no mean of labels
    assert list(trial.indexes()) == list(range(NUM_STEPS))
    last = trial.names(NUM_STEPS - 1)
    assert any(name.startswith("gradient/") for name in last)
    assert any(name.endswith("/exp_avg_sq") for name in last)
    assert any(name.endswith("_output_0") and "Loss" not in name for name in last)
    if job.is_scaled:
        assert not any(name.startswith("gradient/") for name in trial.names(2))  # was infinite
        assert any(name.endswith("Loss_output_2") for name in last)


@pytest.fixture
def _fresh() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.usefixtures("_fresh")
@pytest.mark.parametrize(
    ("job", "backend", "with_modules"),
    [
        ("mlp", "aot_eager", True),
        ("amp", "aot_eager", True),
        ("mlp", "inductor", True),
        ("amp", "inductor", True),
        ("amp", "inductor", False),
    ],
)
def test_compiled_training_is_as_close_as_two_compilations(
    trial: WrittenTrial, job: str, backend: str, with_modules: bool
) -> None:
    if backend == "inductor" and not (shutil.which("gcc") or shutil.which("c++")):
        pytest.skip("inductor needs a C++ compiler")
    hook = everything(trial, with_modules=with_modules)
    result = train(COMPILED_JOBS[job], hook, {"backend": backend})
    hook.close()
    torch.compiler.reset()
    assert hook.report().errors.keys() <= {"reductions"}
    assert len(trial.indexes()) == NUM_STEPS
    # Who looks at the tensors between two layers keeps inductor from fusing them. Then they are
    # rounded there, too: to bfloat16 with AMP.
    is_rounded = with_modules and (job, backend) == ("amp", "inductor")
    expected = train(COMPILED_JOBS[job], None, {"backend": backend})
    assert_equal(result, expected, 2.0**-8 if is_rounded else 0.0)
