"""Which ranks write."""

from __future__ import annotations

import pytest

from hook_layer.run.ranks import writing_ranks


@pytest.mark.parametrize("size", [1, 2, 16])
def test_auto_is_all_of_up_to_16_ranks(size: int) -> None:
    assert writing_ranks("auto", size) == writing_ranks("all", size) == tuple(range(size))


def test_of_many_ranks_auto_is_one_in_16_the_last_one_and_one_of_each_group() -> None:
    assert writing_ranks("auto", 50) == (0, 16, 32, 48, 49)
    assert writing_ranks("auto", 50, [8, 40, 99]) == (0, 8, 16, 32, 40, 48, 49)
    assert len(writing_ranks("all", 50)) == 50


def test_one_is_the_first_rank() -> None:
    assert writing_ranks("one", 50) == (0,)
