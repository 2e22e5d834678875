"""How often a quiet run is woken, and what counts as silence."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lambdas.shared.observability import Telemetry
from lambdas.shared.registration import Heartbeat
from lambdas.shared.wake import Wake, WakeReason
from lambdas.sweep.service import SweepService, silence_of

RULE = "ExplodingTensor"


class World:
    """One active evaluation, whose files were last taken in at time 0."""

    def __init__(self, max_silence_s: float = math.inf, announced: int = 1) -> None:
        self.now = 0.0
        self.announced = announced
        self.rules = {RULE}
        self.queues: set[str] = set()
        self.wakes: list[tuple[float, Wake]] = []
        self.service = SweepService(
            max_silence_s=max_silence_s,
            items=self,
            registrations=self,
            queue=self,
            telemetry=Telemetry("sweep"),
            clock=lambda: self.now,
        )

    def active(self, _: str) -> Iterator[dict[str, Any]]:
        yield {
            "run": {"S": "s3://tensors/mnist-7/#run"},
            "rule": {"S": RULE},
            "transition": {"N": "1"},
            "announced_transition": {"N": str(self.announced)},
            "ended": {"BOOL": False},
            "updated_at": {"N": "0"},
        }

    def heartbeat(self, _: str) -> None:
        return None

    def send_all(self, rule: str, wakes: list[Wake]) -> None:
        assert rule in self.rules
        self.queues.add(rule)
        self.wakes += [(self.now, wake) for wake in wakes]

    def sweep_until(self, end_s: float, delays: list[float] | None = None) -> None:
        minute = 0
        while self.now < end_s:
            minute += 1
            self.now = 60.0 * minute + (delays or [0.0])[minute % len(delays or [0.0])]
            self.service.sweep(lambda: math.inf)


def test_the_first_ten_minutes_each_sweep_wakes() -> None:
    world = World()
    world.sweep_until(600)
    assert [now for now, _ in world.wakes] == [60.0 * minute for minute in range(1, 11)]


def test_a_long_silence_costs_less_than_a_message_a_minute() -> None:
    world = World()
    world.sweep_until(24 * 3600)
    assert len(world.wakes) < 150, "a tenth of the sweeps"


def test_a_status_that_was_not_announced_is_tried_each_time() -> None:
    world = World(announced=0)
    world.sweep_until(3600)
    assert len(world.wakes) == 60
    assert {wake.silent_s for _, wake in world.wakes} == {0.0}


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(0, 5), min_size=1, max_size=20))
def test_it_is_asked_again_before_it_has_grown_by_a_fifth(delays: list[float]) -> None:
    world = World()
    world.sweep_until(12 * 3600, delays)
    last = 0.0
    for now, wake in world.wakes:
        root, reason = "s3://tensors/mnist-7/", WakeReason.SWEEP
        assert wake == Wake(root, "run", reason, silent_s=now, rule=RULE)
        assert now <= max(last * 1.2, last + 120) + 10
        last = now
    assert last >= 12 * 3600 * 0.8


@pytest.mark.parametrize(
    ("rules", "queues"),
    [
        ({RULE, "#job-rules", "#custom-rules"}, {RULE}),
        ({"Other", "#job-rules", "#custom-rules"}, {"#job-rules", "#custom-rules"}),
        ({"Other", "#job-rules"}, {"#job-rules"}),
        ({"Other"}, set()),
    ],
)
def test_a_rule_without_a_queue_is_woken_through_those_of_jobs_rules(
    rules: set[str], queues: set[str]
) -> None:
    world = World()
    world.rules = rules
    world.sweep_until(300)
    assert world.queues == queues
    assert {wake.rule for _, wake in world.wakes} == ({RULE} if queues else set())


def test_a_run_is_told_to_end_at_once_and_until_it_has() -> None:
    world = World(max_silence_s=7 * 3600)
    world.sweep_until(8 * 3600)
    times = [now for now, wake in world.wakes if wake.reason is WakeReason.SILENT]
    # The time in the index may be half a minute too early.
    assert times[:10] == [7 * 3600 + 60 * minute for minute in range(1, 11)]
    assert times[-1] > 7.8 * 3600


@pytest.mark.parametrize(
    ("updated_at", "sign", "silence"),
    [
        (1000, None, 9000),
        (11_000, None, 0),
        (1000, Heartbeat(4000, is_interrupted=False), 6000),
        (5000, Heartbeat(4000, is_interrupted=False), 5000),
        (1000, Heartbeat(4000, is_interrupted=True), 0),
        (4500, Heartbeat(4000, is_interrupted=True), 0),
        (4700, Heartbeat(4000, is_interrupted=True), 5300),
    ],
)
def test_silence(updated_at: float, sign: Heartbeat | None, silence: float) -> None:
    assert silence_of(updated_at, sign, now=10_000) == silence
