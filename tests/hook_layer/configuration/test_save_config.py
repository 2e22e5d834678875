from __future__ import annotations

from typing import Any

import pytest

from hook_layer.configuration.save_config import SaveConfig, SaveConfigMode
from hook_layer.format.modes import ModeKeys


@pytest.mark.parametrize(
    ("config", "saved"),
    [
        (SaveConfigMode(), [0, 500, 1000]),
        (SaveConfigMode(save_interval=400), [0, 400, 800]),
        (SaveConfigMode(save_interval=400, start_step=1), [400, 800]),
        (SaveConfigMode(save_interval=400, end_step=800), [0, 400]),
        (SaveConfigMode(save_interval=400, start_step=1, save_steps=[0, 7]), [0, 7, 400, 800]),
        (SaveConfigMode(save_interval="400", end_step="400", save_steps=[999]), [0, 999]),
        (SaveConfigMode(end_step=0), []),
    ],
)
def test_a_step_is_saved_if_listed_or_due_by_interval(
    config: SaveConfigMode, saved: list[int]
) -> None:
    assert [step for step in range(1001) if config.should_save_step(step)] == saved
    for step in range(1001):
        following = [after for after in saved if after > step]
        assert min(config.next_step(step), 1001) == min(following, default=1001)


def test_listed_steps_may_be_changed() -> None:
    config = SaveConfigMode(end_step=0, save_steps=[3])
    assert config.should_save_step(3)
    config.save_steps.append(7)
    assert config.should_save_step(7)
    config.save_steps = [2, 7]
    assert [step for step in range(9) if config.should_save_step(step)] == [2, 7]


def test_many_listed_steps_cost_no_more_than_few() -> None:
    class Counted(int):
        num_compared = 0

        def __gt__(self, other: int) -> bool:
            Counted.num_compared += 1
            return int(self) > other

    config = SaveConfigMode(end_step=0, save_steps=list(range(0, 2000, 2)))
    for step in range(100):
        config.should_save_step(Counted(2 * step + 1))
    assert 100 <= Counted.num_compared < 100 * 20


@pytest.mark.parametrize(("start", "end"), [(5, 5), (6, 5), ("6", "5")])
def test_a_range_without_steps_is_refused(start: Any, end: Any) -> None:
    with pytest.raises(ValueError, match=f"start_step={start} must be below end_step={end}"):
        SaveConfigMode(start_step=start, end_step=end)
    with pytest.raises(ValueError, match="start_step"):
        SaveConfig(start_step=start, end_step=end)


def test_numbers_beside_modes_are_checked() -> None:
    with pytest.raises(ValueError, match="save_interval='garbage'"):
        SaveConfig({ModeKeys.TRAIN: SaveConfigMode()}, save_interval="garbage")


@pytest.mark.parametrize(
    "arguments",
    [
        {"save_interval": 0},
        {"save_interval": -1},
        {"save_interval": "ten"},
        {"save_interval": 1.5},
        {"save_interval": True},
        {"start_step": -1},
        {"end_step": "x"},
        {"save_steps": "1,2"},
        {"save_steps": [1, None, "x"]},
        {"save_steps": 3},
    ],
)
def test_bad_numbers_are_refused_with_their_value(arguments: dict[str, Any]) -> None:
    ((name, value),) = arguments.items()
    with pytest.raises(ValueError, match=name) as caught:
        SaveConfigMode(**arguments)
    if not isinstance(value, list):
        assert repr(value) in str(caught.value)


@pytest.mark.parametrize(
    "obj",
    [
        SaveConfig(save_interval=3),
        SaveConfigMode(save_interval=3),
        dict.fromkeys(ModeKeys, SaveConfigMode(save_interval=3)),
        {mode.name: {"save_interval": 3} for mode in ModeKeys},
    ],
)
def test_parse_accepts_all_forms(obj: object) -> None:
    assert SaveConfig.parse(obj) == SaveConfig(save_interval=3)


def test_parse_names_the_nearest_valid_name() -> None:
    with pytest.raises(ValueError, match="did you mean 'TRAIN'"):
        SaveConfig.parse({"TRIAN": {}})
    with pytest.raises(ValueError, match="did you mean 'save_interval'"):
        SaveConfig.parse({"TRAIN": {"save_intervall": 3}})
    with pytest.raises(ValueError, match="save_config=3"):
        SaveConfig.parse(3)
