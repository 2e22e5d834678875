"""A convolutional autoencoder takes noise out of patches of a photograph."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, patches
from benchmarks.detection.injecting import shifted_
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained


class Net(nn.Module):
    """Encoder and decoder.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.encoder = nn.Sequential(
            nn.Conv2d(3, 12, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(12, 16, 3, padding=1),
            nn.ReLU(),
        )
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(16, 12, 2, stride=2),
            nn.ReLU(),
            nn.Conv2d(12, 3, 3, padding=1),
            run.pick(nn.Identity(), double_activation=nn.ReLU()),
            nn.Sigmoid(),
        )
        if run.injects("dead_relu"):
            shifted_([self.encoder[2]], -10.0)
        if run.injects("saturated_activation"):
            shifted_([self.decoder[2]], -40.0)

    def forward(self, images: Tensor) -> Tensor:
        """Return images [B, 3, 12, 12] from 0 to 1 of noisy ones."""
        code = self.encoder(images)
        return self.decoder(code.detach() if self.run.injects("frozen_layer") else code)


def _data() -> Split:
    clean = patches("china.jpg", 12, 1600, seed=1)
    noise = 0.15 * torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))
    noisy = clean + noise
    return Split(noisy[400:], clean[400:], noisy[:400], clean[:400])


def train(run: Run) -> float:
    """Train once; return the share of variance that is not reproduced."""
    torch.manual_seed(run.seed)
    data = _data()
    model = Net(run)
    part = run.pick(model, optimiser_missing_parameters=model.encoder)
    optimizer = torch.optim.AdamW(
        part.parameters(), lr=run.pick(5e-3, lr_too_low=3e-6), weight_decay=1e-4
    )
    steps = 240
    loop = Loop(
        model=model,
        criterion=nn.MSELoss(),
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.OneCycleLR(
            optimizer, run.pick(1e-2, lr_too_low=3e-6), total_steps=steps
        ),
        steps=steps,
        save_interval=4,
        eval_every=60,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 32, run.seed), valid, unexplained)


PROGRAM = Program(
    model="convolutional autoencoder, ReLU, sigmoid, AdamW, one cycle",
    data="patches of scikit-learn's china.jpg",
    measure="1 - R2",
    train=train,
    faults={
        "lr_too_low": "3e-6 in place of 1e-2",
        "dead_relu": "biases of the second convolution are 10 lower",
        "double_activation": "ReLU ahead of the last sigmoid",
        "saturated_activation": "biases ahead of the last sigmoid are 40 lower",
        "frozen_layer": "the code is detached",
        "optimiser_missing_parameters": "the optimiser has the encoder only",
    },
)
