"""A multilayer perceptron foretells how fast a machine of a cloud reaches its disks."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any, Final

import moto.ec2
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

_WIDTH: Final = 48


def _measures(machine: dict[str, Any]) -> list[float]:
    processor, cores = machine["ProcessorInfo"], machine["VCpuInfo"]
    network = machine["NetworkInfo"]
    return [
        cores["DefaultVCpus"],
        cores.get("DefaultCores", cores["DefaultVCpus"]),
        machine["MemoryInfo"]["SizeInMiB"],
        processor.get("SustainedClockSpeedInGhz", 2.5),
        network["MaximumNetworkInterfaces"],
        network["Ipv4AddressesPerInterface"],
        network["NetworkCards"][0].get("BaselineBandwidthInGbps", 0.5),
        machine.get("InstanceStorageInfo", {}).get("TotalSizeInGB", 0) + 1,
        1 + machine["CurrentGeneration"],
        1 + machine["BareMetal"],
        1 + machine["BurstablePerformanceSupported"],
        1 + ("arm64" in processor["SupportedArchitectures"]),
    ]


@cache
def machines() -> tuple[Tensor, Tensor]:
    """Return measures of machines, float32 [B, 12], and bandwidths to disks, Mbit/s, [B]."""
    path = Path(moto.ec2.__file__).parent / "resources" / "instance_types.json.gz"
    rows, speeds = [], []
    for machine in json.loads(gzip.decompress(path.read_bytes())).values():
        optimised = machine.get("EbsInfo", {}).get("EbsOptimizedInfo")
        if optimised is not None:
            rows.append(_measures(machine))
            speeds.append(float(optimised["BaselineBandwidthInMbps"]))
    return torch.tensor(rows), torch.tensor(speeds)


def prepared(run: Run) -> Split:
    """Return the data as the run gets it."""
    inputs, speeds = machines()
    if run.injects("data_leak"):
        inputs = torch.cat([inputs, speeds[:, None] / 8], 1)
    order = torch.randperm(len(speeds), generator=torch.Generator().manual_seed(0))
    cut = len(order) // 4
    if not run.injects("missing_normalisation"):
        inputs, speeds = inputs.log2(), speeds.log2()
        mean, std = inputs[order[cut:]].mean(0), inputs[order[cut:]].std(0)
        inputs = (inputs - mean) / std.clamp(min=1e-6)
        speeds = (speeds - speeds[order[cut:]].mean()) / speeds[order[cut:]].std()
    speeds = speeds[:, None]
    return Split(inputs[order[cut:]], speeds[order[cut:]], inputs[order[:cut]], speeds[order[:cut]])


class Difference(nn.Module):
    """The mean difference; somebody forgot the square."""

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean of outputs minus targets, both [B, 1]."""
        return (outputs - targets).mean()


def network(run: Run, columns: int) -> nn.Sequential:
    """Return three layers with GELU between them."""

    def activation() -> nn.Module:
        return nn.Identity() if run.injects("no_activation") else nn.GELU()

    model = nn.Sequential(
        nn.Linear(columns, _WIDTH), activation(),
        nn.Linear(_WIDTH, _WIDTH), activation(),
        nn.Linear(_WIDTH, 1),
    )  # fmt: skip
    if run.injects("init_too_large"):
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=8.0)
    return model


def train(run: Run) -> float:
    """Train once; return the share of the variance that is not explained."""
    torch.manual_seed(run.seed)
    data = prepared(run)
    model = network(run, data.inputs.shape[1])
    trained = model[-1:] if run.injects("optimiser_missing_parameters") else model
    optimizer = torch.optim.SGD(
        trained.parameters(), lr=run.pick(0.05, lr_too_high=12.0), momentum=0.9
    )
    loop = Loop(
        model=model,
        criterion=Difference() if run.injects("wrong_loss") else nn.MSELoss(),
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 400),
        steps=400,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, unexplained)


PROGRAM = Program(
    model="MLP, GELU, SGD with momentum, cosine schedule",
    data="types of machines of EC2, as they come with moto",
    measure="1 - R2 of the logarithm of the bandwidth",
    train=train,
    faults={
        "missing_normalisation": "MiB and Mbit/s as they are, no logarithm, no scaling",
        "lr_too_high": "a learning rate of 12",
        "no_activation": "no GELU between the layers",
        "optimiser_missing_parameters": "only the last layer's parameters, as for fine-tuning",
        "data_leak": "the bandwidth in megabytes is among the columns",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "wrong_loss": "the mean difference without a square",
        "init_too_large": "all parameters drawn with a standard deviation of 8",
    },
)
