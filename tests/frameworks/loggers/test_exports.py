"""What W&B, MLflow and TensorBoard show of a finding, read back from what they stored."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from wandb.proto.wandb_internal_pb2 import Record

from tests.python_path import PYTHON_PATH

SCRIPT = Path(__file__).resolve().parent / "scripts" / "diverging_script.py"
TARGETS = ("wandb", "mlflow", "tensorboard")
LINE = next(
    f"{SCRIPT.name}:{number}"
    for number, line in enumerate(SCRIPT.read_text().splitlines(), start=1)
    if "optim.SGD" in line
)


@pytest.fixture(scope="module")
def logging(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a script that logs to all libraries."""
    return watch(tmp_path_factory.mktemp("logging"), *TARGETS)


@pytest.fixture(scope="module")
def silent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a script that logs nothing."""
    return watch(tmp_path_factory.mktemp("silent"))


def watch(folder: Path, *libraries: str) -> Path:
    variables = {
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "MLFLOW_TRACKING_URI": f"file:{folder}/mlruns",
        "PYTHONPATH": PYTHON_PATH,
        "WANDB_MODE": "offline",
    }
    options = [word for target in TARGETS for word in ("--export", target)]
    command = [sys.executable, "-m", "stepwatch", "run", "--output", "json", "--out-dir", "out"]
    done = subprocess.run(
        [*command, *options, "--", sys.executable, str(SCRIPT), *libraries],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "not exported" not in done.stderr
    (folder / "verdicts.json").write_text(done.stdout)
    return folder


def diagnosis(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "verdicts.json").read_text())[0]["Diagnosis"]
    assert found["Line"].endswith(LINE)
    return found


def test_wandb_has_an_alert_a_tag_and_a_summary_in_the_run_of_the_script(logging: Path) -> None:
    own = json.loads((logging / "own.json").read_text())["wandb"]
    files = sorted((logging / "logs" / "wandb").glob(f"offline-run-*-{own}"))
    assert len(files) == 2  # `wandb sync` adds the second to the run of the first
    assert not (logging / "wandb").exists()
    runs, summary, alerts = content(files[-1])
    assert {(run.run_id, run.project) for run in runs} == {(own, "p")}
    assert_exported(logging, runs, summary, alerts)


def test_wandb_has_a_run_named_like_the_session_without_one_of_the_script(silent: Path) -> None:
    (folder,) = (silent / "wandb").glob("offline-run-*")
    runs, summary, alerts = content(folder)
    assert runs[0].display_name == "out"
    assert_exported(silent, runs, summary, alerts)


def assert_exported(folder: Path, runs: list, summary: dict, alerts: list) -> None:
    assert "stepwatch-issue" in runs[-1].tags
    found = diagnosis(folder)
    assert summary["stepwatch/cause"] == found["Headline"]
    assert found["Change"].rstrip(".") in summary["stepwatch/change"]
    assert LINE in summary["stepwatch/change"]
    assert summary["stepwatch/findings"] >= 1
    assert summary["stepwatch/first_step/NonFinite"] >= 0
    (alert,) = alerts
    assert alert.title.startswith("Stepwatch: ")
    assert alert.level == "ERROR"
    assert found["Headline"] in alert.text
    assert LINE in alert.text


@pytest.mark.parametrize("kind", ["logging", "silent"])
def test_mlflow_has_tags_and_metrics(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    folder = request.getfixturevalue(kind)
    client = mlflow.MlflowClient(f"file:{folder}/mlruns")
    (run,) = client.search_runs(["0"])
    own = json.loads((folder / "own.json").read_text()).get("mlflow")
    assert run.info.run_name == "out" if own is None else run.info.run_id == own
    found = diagnosis(folder)
    assert run.data.tags["stepwatch.cause"] == found["Headline"]
    assert LINE in run.data.tags["stepwatch.change"]
    assert run.data.metrics["stepwatch/findings"] >= 1
    (metric,) = client.get_metric_history(run.info.run_id, "stepwatch/NonFinite")
    assert (metric.value, metric.step) == (1, nonfinite_step(folder))


@pytest.mark.parametrize(("kind", "place"), [("logging", "board/one"), ("silent", "out/*/out")])
def test_tensorboard_has_a_text_and_markers(
    kind: str, place: str, request: pytest.FixtureRequest
) -> None:
    folder = request.getfixturevalue(kind)
    (board,) = folder.glob(place)
    files = EventAccumulator(str(board)).Reload()
    (text,) = files.Tensors("stepwatch/findings/text_summary")
    assert f"Change: {diagnosis(folder)['Change'].rstrip('.')}" in unescaped(
        text.tensor_proto.string_val[0].decode()
    )
    (marker,) = files.Scalars("stepwatch/NonFinite")
    assert (marker.value, marker.step) == (1, nonfinite_step(folder))
    if kind == "logging":
        assert len(files.Scalars("loss")) >= 1


def unescaped(markdown: str) -> str:
    return markdown.replace("\\", "")


def nonfinite_step(folder: Path) -> int:
    verdicts = json.loads((folder / "verdicts.json").read_text())
    (step,) = (
        verdict["Evidence"]["first_step"]
        for verdict in verdicts
        if verdict["RuleConfigurationName"] == "NonFinite"
    )
    return int(step)


def content(folder: Path) -> tuple[list, dict, list]:
    """Return the records of a run, its summary and its alerts, from W&B's file."""
    (file,) = folder.glob("*.wandb")
    runs, summary, alerts = [], {}, []
    for record in records(file.read_bytes()):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            runs.append(record.run)
        elif kind == "summary":
            for item in record.summary.update:
                name = "/".join(item.nested_key) or item.key
                summary[name] = json.loads(item.value_json)
        elif kind == "alert":
            alerts.append(record.alert)
    return runs, summary, alerts


def records(stored: bytes) -> Iterator[Record]:
    """Yield the records of W&B's file, which has the format of LevelDB's log."""
    at, parts = 7, b""
    while at + 7 <= len(stored):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _, length, kind = struct.unpack_from("<IHB", stored, at)
        parts += stored[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in {1, 4}:  # a full record, or the last part of one
            yield Record.FromString(parts)
            parts = b""
