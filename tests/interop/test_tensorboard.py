"""TensorBoard shows of our files what it shows of the original client's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.interop.environment import OUR_PYTHON, SMDEBUG_PYTHON, run_scripts

event_accumulator = pytest.importorskip(
    "tensorboard.backend.event_processing.event_accumulator", exc_type=ImportError
)

pytestmark = pytest.mark.other_environment

OWN_SCALAR = "scalar/learning_rate"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """What the script writes with the original's hook, and with ours."""
    theirs, ours = (tmp_path_factory.mktemp(name) / "trial" for name in ("original", "ours"))
    run_scripts(
        (SMDEBUG_PYTHON, "tensorboard_script.py", "smdebug.pytorch", theirs),
        (OUR_PYTHON, "tensorboard_script.py", "hook_layer.pytorch", ours),
    )
    return theirs / "tensorboard", ours / "tensorboard"


def shown(folder: Path) -> dict[str, list[Any]]:
    everything = {"scalars": 0, "histograms": 0}
    accumulator = event_accumulator.EventAccumulator(str(folder), size_guidance=everything).Reload()
    tags = accumulator.Tags()
    found: dict[str, list[Any]] = {
        tag: [(event.step, event.value) for event in accumulator.Scalars(tag)]
        for tag in tags["scalars"]
    }
    for tag in tags["histograms"]:
        found[tag] = [histogram_of(event) for event in accumulator.Histograms(tag)]
    return found


def histogram_of(event: Any) -> tuple[Any, ...]:
    histogram = event.histogram_value
    buckets = zip(histogram.bucket_limit, histogram.bucket, strict=True)
    exact = (event.step, histogram.min, histogram.max, histogram.num)
    filled = [(limit, count) for limit, count in buckets if count]
    return *exact, filled, histogram.sum, histogram.sum_squares


@pytest.mark.parametrize("mode", ["TRAIN", "EVAL"])
def test_losses_and_histograms_are_the_same(folders: tuple[Path, Path], mode: str) -> None:
    theirs, ours = (shown(folder / mode) for folder in folders)
    assert ours.keys() == theirs.keys()
    assert "flags/relu_output_0" in ours
    assert not any(tag.startswith("biases/") for tag in ours)
    for tag in ours.keys() - {OWN_SCALAR}:
        for own, other in zip(ours[tag], theirs[tag], strict=True):
            *exact, total, squares = own
            assert exact == list(other[:-2]), tag
            assert (total, squares) == pytest.approx(other[-2:], rel=1e-6, abs=1e-6), tag


def test_own_scalars_are_shown_in_the_mode_and_step_that_they_belong_to(
    folders: tuple[Path, Path],
) -> None:
    # The original shows those of a mode's last step in the next mode, with its step.
    ours = {mode: shown(folders[1] / mode)[OWN_SCALAR] for mode in ("TRAIN", "EVAL")}
    assert ours == {
        "TRAIN": [(step, pytest.approx(0.1 / (step + 1))) for step in (0, 1, 2, 4)],
        "EVAL": [(3, pytest.approx(0.1 / 4))],
    }
    theirs = {mode: shown(folders[0] / mode)[OWN_SCALAR] for mode in ("TRAIN", "EVAL")}
    values = [sorted(v for shown in of.values() for _, v in shown) for of in (ours, theirs)]
    assert values[0] == values[1]
