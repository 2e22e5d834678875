"""The examples' notebooks, executed from their first cell to the last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = {
    file.stem: file
    for file in sorted((ROOT / "examples").rglob("*.ipynb"))
    if ".ipynb_checkpoints" not in file.parts
}
TIMEOUT_S = 400


@pytest.fixture(autouse=True)
def _jupyter_without_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing of the user's decide how notebooks run, and leave nothing behind."""
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        folder = tmp_path / name.lower()
        folder.mkdir()
        monkeypatch.setenv(name, str(folder))
    monkeypatch.delenv("JUPYTER_PATH", raising=False)
    monkeypatch.setenv("JUPYTER_NO_CONFIG", "1")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    # The inline backend is the kernel's, and what pytest's process has asked for is not.
    monkeypatch.delenv("MPLBACKEND", raising=False)


class Executed:
    """A notebook that ran: what its cells show.

    Attributes:
        text: All that they print, and their results as text.
        num_pictures: How many pictures they show.
        num_tables: How many tables they show.
    """

    def __init__(self, name: str, folder: Path) -> None:
        notebook = nbformat.read(NOTEBOOKS[name], as_version=4)
        # The folder is an empty one: a notebook needs nothing of where it is opened.
        client = NotebookClient(
            notebook,
            timeout=TIMEOUT_S,
            kernel_name="python3",
            resources={"metadata": {"path": str(folder)}},
        )
        client.execute()
        self._outputs: list[Any] = [
            output for cell in notebook.cells for output in cell.get("outputs", ())
        ]
        self.text = "".join(
            output.get("text", "") + output.get("data", {}).get("text/plain", "") + "\n"
            for output in self._outputs
        )
        self.num_pictures = self._count("image/png")
        self.num_tables = self._count("text/html")

    def _count(self, kind: str) -> int:
        return sum(kind in output.get("data", {}) for output in self._outputs)


@pytest.fixture
def executed(tmp_path: Path, request: pytest.FixtureRequest) -> Executed:
    folder = tmp_path / "anywhere"
    folder.mkdir()
    return Executed(request.param, folder)


def notebook(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("executed", [name], indirect=True, ids=[name])


@notebook("realtime_analysis")
def test_activations_are_shown_while_the_network_trains(executed: Executed) -> None:
    assert "exit status: 0" in executed.text
    assert " pictures, of steps [0, 20, 40, 60, 80, 100, 120" in executed.text
    assert executed.num_pictures == 3
    assert "Net_conv0.weight" in executed.text


@notebook("react_to_rules")
def test_a_job_is_stopped_and_its_owner_told(executed: Executed) -> None:
    assert "EventBridge: stepwatch.debugger: VanishingGradient IssuesFound at step" in executed.text
    assert "the training job is Stopped" in executed.text
    assert "console.aws.amazon.com" in executed.text
    assert "RuleEvaluationConditionMet" in executed.text
    assert executed.num_pictures == 2
    assert executed.num_tables == 2


@notebook("configuration_tour")
def test_the_tour_goes_as_it_must(executed: Executed) -> None:
    assert executed.text.endswith("[]\n")  # nothing is wrong
    assert "did you mean 'save_interval'?" in executed.text
    assert executed.num_tables == 6 + 3 + 1  # stops, their rules, and a file with its colours


@notebook("spot_training")
def test_an_interrupted_training_is_one_run(executed: Executed) -> None:
    assert "machine 0: exit status -15" in executed.text
    assert "training from step 175 on" in executed.text
    assert "60 saved steps, each of them once: True" in executed.text
    assert "60 steps evaluated" in executed.text
    assert executed.num_pictures == 2


@notebook("xgboost_abalone")
def test_boosted_trees_are_judged_and_drawn(executed: Executed) -> None:
    assert "LossNotDecreasing: IssuesFound" in executed.text
    assert "LossNotDecreasing: NoIssuesFound" in executed.text
    assert executed.num_pictures == 8
    assert executed.num_tables == 1


def test_every_scenario_has_a_notebook_without_outputs() -> None:
    scenarios = {file.parent.name for file in ROOT.glob("examples/*/__main__.py")} - {"demo"}
    assert set(NOTEBOOKS) == scenarios
    for file in NOTEBOOKS.values():
        cells = [cell for cell in nbformat.read(file, as_version=4).cells if "outputs" in cell]
        assert cells
        stored = [cell.id for cell in cells if cell.outputs or cell.execution_count is not None]
        assert stored == [], f"{file.name}: clear the outputs before the notebook is stored"
