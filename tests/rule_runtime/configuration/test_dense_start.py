"""Packs save the beginning of training densely, unless someone says at which steps is saved."""

from __future__ import annotations

import pytest

from rule_runtime.configuration.dense_start import DENSE_STEPS, add_dense_start

LISTED = ",".join(map(str, DENSE_STEPS))


def test_every_step_up_to_10_and_every_second_one_up_to_50() -> None:
    found = add_dense_start({"save_interval": "10"})
    assert found == {"save_interval": "10", "train.save_steps": LISTED, "global.save_steps": LISTED}
    assert [step for step in range(60) if step in DENSE_STEPS] == [*range(11), *range(12, 52, 2)]


@pytest.mark.parametrize(
    ("parameters", "every", "listed"),
    [
        ({"save_interval": "100"}, 10, "0,1,2,3,4,5,6,7,8,9,10,20,30,40,50"),
        ({"save_interval": "10", "end_step": "5"}, 1, "0,1,2,3,4"),
        ({"save_interval": "10", "start_step": "46"}, 1, "46,48,50"),
        ({"save_interval": "10", "start_step": "100"}, 1, None),
        ({"save_steps": "0"}, 1, None),
        ({"save_interval": "10", "train.save_steps": "3"}, 1, "3"),
        ({"save_interval": "10", "end_step": "3", "save_steps": "55"}, 1, "0,1,2,55"),
        ({"save_interval": "10", "train.end_step": "2"}, 1, "0,1"),
    ],
)
def test_what_a_rule_says_of_steps_counts_before_it(
    parameters: dict[str, str], every: int, listed: str | None
) -> None:
    assert add_dense_start(parameters, every).get("train.save_steps") == listed
