"""The examples, run to their end as their READMEs say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples.running import example


def pictures_in(folder: Path) -> dict[str, bytes]:
    return {file.stem: file.read_bytes() for file in sorted(folder.glob("pictures/*.png"))}


def test_activations_are_drawn_while_the_network_trains(tmp_path: Path) -> None:
    printed = example("realtime_analysis", tmp_path)
    assert "step 0: drawn during the training" in printed
    pictures = pictures_in(tmp_path)
    activations = [data for name, data in pictures.items() if name.startswith("activations-")]
    assert len(activations) > 5
    assert len(set(activations)) == len(activations)  # another picture at every step
    assert {"kernels", "loss"} <= set(pictures)


def test_a_spot_training_is_one_run_wherever_it_went_on(tmp_path: Path) -> None:
    printed = example("spot_training", tmp_path / "spot")
    assert "training from step 100 on" in printed
    assert "training from step 175 on" in printed
    assert "60 saved steps, 0 to 295, each of them once: True" in printed
    assert "NonFinite: NoIssuesFound: 60 steps evaluated" in printed


@pytest.mark.parametrize(("eta", "status"), [("0.2", "IssuesFound"), ("0.05", "NoIssuesFound")])
def test_the_learning_rate_of_boosted_trees(tmp_path: Path, eta: str, status: str) -> None:
    printed = example("xgboost_abalone", "--eta", eta, tmp_path)
    assert f"LossNotDecreasing: {status}\n" in printed
    kinds = {"weight", "gain", "cover", "total_gain", "total_cover"}
    assert set(pictures_in(tmp_path)) == {
        *("metrics", "average-shap", "full-shap"),
        *(f"importance-{kind}" for kind in kinds),
    }
    assert {file.name for file in (tmp_path / "channels").iterdir()} == {"train", "validation"}


def test_abalone_is_read_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "abalone.csv"
    rows = [f"{'MFI'[row % 3]},0.{100 + row},{5 + row % 9}" for row in range(200)]
    file.write_text("\n".join(["Sex,Length,Rings", *rows]))
    assert "LossNotDecreasing: " in example("xgboost_abalone", "--data", file, tmp_path / "run")
