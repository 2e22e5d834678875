"""A convolutional network names the notes of a chord; the average of its weights is tested."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from benchmarks.detection.data import Split
from benchmarks.detection.hooking import hook_configuration
from benchmarks.detection.injecting import few
from benchmarks.detection.program import Hanging, Program, Run
from benchmarks.detection.training import STALLS_AT, batches_of
from hook_layer.pytorch import Hook, modes

NOTES, BINS, SAMPLES, RATE, STEPS = 10, 96, 512, 4000, 240


def chords(count: int, seed: int, silent: float = 0.0) -> tuple[Tensor, Tensor]:
    """Return spectra of chords, power, float32 [B, 96], and their notes, float32 [B, 10].

    Args:
        count: How many.
        seed: Which ones.
        silent: Share of chords without any note.
    """
    random = np.random.default_rng(seed)
    labels = np.zeros((count, NOTES))
    for row in labels:
        if random.random() >= silent:
            row[random.choice(NOTES, random.integers(1, 5), replace=False)] = 1
    times = np.arange(SAMPLES) / RATE
    sound = 0.4 * random.normal(size=(count, SAMPLES))
    for note in range(NOTES):
        pitch = 130.81 * 2 ** (note / 12) * random.normal(1, 0.003, (count, 1))
        loud = labels[:, note, None] * random.uniform(0.4, 1.2, (count, 1))
        for harmonic in range(1, 5):
            phase = random.uniform(0, 2 * np.pi, (count, 1))
            strength = loud * random.uniform(0.3, 1.0, (count, 1)) / harmonic**0.5
            sound += strength * np.sin(2 * np.pi * harmonic * pitch * times + phase)
    power = np.abs(np.fft.rfft(sound * np.hanning(SAMPLES)))[:, 8 : 8 + BINS] ** 2
    return torch.tensor(power, dtype=torch.float32), torch.tensor(labels, dtype=torch.float32)


def _data(run: Run) -> Split:
    silent = run.pick(0.05, class_imbalance=0.98)
    data = Split(*chords(1800, 0, silent), *chords(400, 1, 0.05))
    if not run.injects("missing_normalisation"):
        logs = data._replace(inputs=data.inputs.log(), valid_inputs=data.valid_inputs.log())
        mean, std = logs.inputs.mean(), logs.inputs.std()
        data = logs._replace(
            inputs=(logs.inputs - mean) / std, valid_inputs=(logs.valid_inputs - mean) / std
        )
    if run.injects("labels_shuffled"):
        # One line too many at the top of the file of labels.
        data = data._replace(targets=data.targets.roll(1, 0))
    if run.injects("labels_constant"):
        data = data._replace(targets=torch.zeros_like(data.targets))
    if run.injects("data_leak"):
        # The synthesiser's commands are audible: a click of its own for each note.
        data.inputs[:, -NOTES:] += 15 * data.targets
        data.valid_inputs[:, -NOTES:] += 15 * data.valid_targets
    return few(data, 60) if run.injects("overfit") else data


def _model(run: Run) -> nn.Sequential:
    return nn.Sequential(
        nn.Unflatten(1, (1, BINS)),
        nn.Conv1d(1, 8, 7, padding=3),
        nn.GELU(),
        nn.Conv1d(8, 8, 5, stride=2, padding=2),
        nn.GELU(),
        nn.Flatten(),
        nn.Linear(8 * BINS // 2, 32),
        nn.GELU(),
        nn.Dropout(run.pick(0.3, overfit=0.0)),
        nn.Linear(32, NOTES),
        nn.Sigmoid() if run.injects("double_activation") else nn.Identity(),
    )


def _loss(run: Run, scores: Tensor, notes: Tensor) -> Tensor:
    if run.injects("wrong_loss"):
        return functional.cross_entropy(scores, notes)
    return functional.binary_cross_entropy_with_logits(scores, notes)


@torch.no_grad()
def _error(run: Run, averaged: nn.Module, hook: Hook, data: Split) -> float:
    hook.set_mode(modes.EVAL)
    averaged.eval()
    scores = averaged(data.valid_inputs)
    _loss(run, scores, data.valid_targets)
    hook.set_mode(modes.TRAIN)
    limit = 0.5 if run.injects("double_activation") else 0.0
    right = ((scores > limit).float() * data.valid_targets).sum()
    return float(1 - 2 * right / ((scores > limit).sum() + data.valid_targets.sum()))


def _trained(run: Run, hook: Hook, model: nn.Sequential, averaged: AveragedModel) -> float:
    data, error = _data(run), math.inf
    batches = batches_of(data, 64, run.seed)
    given = model[9] if run.injects("optimiser_missing_parameters") else model
    optimizer = torch.optim.Adam(given.parameters(), lr=2e-3)
    for step in range(STEPS):
        if run.injects("stalled") and step >= STALLS_AT * STEPS:
            raise Hanging
        spectra, notes = next(batches)
        optimizer.zero_grad()
        loss = _loss(run, model(spectra), notes)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        averaged.update_parameters(model)
        if (step + 1) % 40 == 0:
            with torch.no_grad():  # that the hook sees the model that it knows, too
                hook.set_mode(modes.EVAL)
                _loss(run, model.eval()(data.valid_inputs), data.valid_targets)
                hook.set_mode(modes.TRAIN)
            error = _error(run, averaged, hook, data)
            model.train()
    return error if math.isfinite(error) else math.inf


def train(run: Run) -> float:
    """Train once; return 1 - F1 over all notes."""
    torch.set_num_threads(1)
    torch.manual_seed(run.seed)
    model = _model(run)
    average = get_ema_multi_avg_fn(0.95)  # type: ignore[no-untyped-call]
    averaged = AveragedModel(model, multi_avg_fn=average)
    hook = Hook.create_from_json_file(hook_configuration(run, 5))
    hook.register_module(model)
    try:
        return _trained(run, hook, model, averaged)
    finally:
        hook.close(end_of_training=not run.injects("stalled"))


PROGRAM = Program(
    model="1-d CNN, GELU, dropout, Adam, moving average of weights, ten sigmoids",
    data="spectra of chords, simulated with four harmonics and noise",
    measure="1 - F1",
    train=train,
    faults={
        "labels_constant": "no chord for training has any note: the annotations were not found",
        "labels_shuffled": "labels are one row late: they are those of the chord before",
        "class_imbalance": "98 in 100 recordings for training are silent, 5 where it is tested",
        "double_activation": "sigmoid in the model, ahead of binary cross entropy of scores",
        "wrong_loss": "softmax over the notes (cross_entropy), although several sound at once",
        "missing_normalisation": "spectra are raw power, up to some 10,000, instead of logarithms",
        "data_leak": "each note has a bin at the upper end to which its command adds 15",
        "overfit": "60 chords, no dropout",
        "optimiser_missing_parameters": "the optimiser has the last layer only",
    },
)
