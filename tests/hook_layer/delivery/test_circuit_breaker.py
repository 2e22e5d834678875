from __future__ import annotations

from hook_layer.delivery.circuit_breaker import CircuitBreaker
from tests.hook_layer.doubles import Clock


def test_it_opens_after_some_failures_in_a_row_and_tries_again_after_a_pause() -> None:
    clock = Clock()
    breaker = CircuitBreaker(first_pause_s=5, clock=clock)
    for _ in range(2):
        breaker.failed()
    assert breaker.allows()
    breaker.failed()
    assert not breaker.allows()
    clock.now += 4.9
    assert not breaker.allows()
    clock.now += 0.1
    assert breaker.allows()
    breaker.succeeded()
    assert not breaker.has_opened
    for _ in range(2):
        breaker.failed()
    assert breaker.allows()


def test_the_pause_grows_to_a_bound_and_begins_anew_after_a_success() -> None:
    clock = Clock()
    breaker = CircuitBreaker(max_failures=1, first_pause_s=5, longest_pause_s=12, clock=clock)
    pauses = []
    for _ in range(4):
        breaker.failed()
        pauses.append(breaker.wait_s())
        clock.now += breaker.wait_s()
        assert breaker.allows()
    assert pauses == [5, 10, 12, 12]
    breaker.succeeded()
    breaker.failed()
    assert breaker.wait_s() == 5


def test_a_success_in_between_keeps_it_closed() -> None:
    breaker = CircuitBreaker(clock=Clock())
    for _ in range(5):
        breaker.failed()
        breaker.failed()
        breaker.succeeded()
    assert breaker.allows()
