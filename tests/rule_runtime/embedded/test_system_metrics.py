from __future__ import annotations

import json

import pytest

from hook_layer.storage.base import open_store
from rule_runtime.embedded.system_metrics import (
    SYSTEM_METRICS_FILE,
    SystemMetrics,
    gpu_samples,
)


def test_a_long_session_keeps_a_bounded_number_of_samples() -> None:
    store = open_store("memory://system-metrics")
    metrics = SystemMetrics(store)
    for _ in range(2500):
        metrics.sample()
    lines = store.get(SYSTEM_METRICS_FILE).splitlines()
    assert 500 <= len(lines) < 1000
    times = [json.loads(line)["Time"] for line in lines]
    assert times == sorted(times)


def test_the_answer_of_nvidia_smi() -> None:
    answer = "97, 70000, 143771\n0, 4, 143771\n"
    assert gpu_samples(answer) == [
        {"Percent": 97.0, "MemoryBytes": 70000 * 2**20, "MemoryPercent": 48.7},
        {"Percent": 0.0, "MemoryBytes": 4 * 2**20, "MemoryPercent": 0.0},
    ]
    (part,) = gpu_samples("[N/A], 4, 0\n")
    assert part == {"Percent": None, "MemoryBytes": 4 * 2**20, "MemoryPercent": None}
    with pytest.raises(ValueError, match="unpack"):
        gpu_samples("no devices were found\n")
