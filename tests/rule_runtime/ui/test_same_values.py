"""The page over all runs, `stepwatch runs` and `stepwatch compare` agree on the same folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from hook_layer.storage.base import open_store
from rule_runtime.live_page.differences import differences, differing_arguments
from rule_runtime.live_page.opened_run import OpenedRun
from rule_runtime.testing import TrialBuilder
from tests.rule_runtime.cli.invoking import invoke, invoke_json
from tests.rule_runtime.ui.test_catalogue import scanned, write_session
from tests.rule_runtime.ui.test_server import write_run
from tests.tables import table

TRAIN, EVAL = ModeKeys.TRAIN, ModeKeys.EVAL
LOSS = "Loss_output_0"
MEGABYTES = "x" * (2 << 20)


def write_steps(builder: TrialBuilder, steps: list[tuple[ModeKeys, dict[str, Any]]]) -> None:
    for step, (mode, losses) in enumerate(steps):
        saved = {name: np.float32(loss) for name, loss in losses.items()}
        builder.step(step, saved, mode=mode, save_values=False)


@table(
    "steps, last, best",
    {
        "validation comes last": (
            [(TRAIN, {LOSS: 3}), (TRAIN, {LOSS: 2}), (EVAL, {LOSS: 9})],
            2,
            2,
        ),
        "validation alone": ([(EVAL, {LOSS: 9})], None, None),
        "a long validation": ([(TRAIN, {LOSS: 2}), *[(EVAL, {LOSS: 9})] * 60], 2, 2),
        "several losses": ([(TRAIN, {"Loss_output_1": 5, LOSS: 4})] * 2, 5, 5),
        "NaN comes last": ([(TRAIN, {LOSS: 3}), (TRAIN, {LOSS: np.nan})], "nan", 3),
        "infinity comes last": ([(TRAIN, {LOSS: 3}), (TRAIN, {LOSS: -np.inf})], "nan", 3),
        "other tensors come last": ([(TRAIN, {LOSS: 3}), (TRAIN, {"a": 7})], 3, 3),
        "no loss": ([(TRAIN, {"a": 7})], None, None),
        "no step": ([], None, None),
    },
)
def test_losses_and_verdicts_are_the_same(
    tmp_path: Path,
    steps: list[tuple[ModeKeys, dict[str, Any]]],
    last: float | str | None,
    best: float | None,
) -> None:
    write_session(tmp_path / "a")
    write_steps(write_run(tmp_path / "a" / "run-1", []), steps)
    row = scanned(tmp_path).rows["a/run-1"]
    _, (listed,) = invoke_json("runs", tmp_path)
    finite = last if isinstance(last, int) else None
    assert (listed["LastLoss"], row["last_loss"], row["best_loss"]) == (finite, finite, best)
    assert row["is_last_bad"] == (last == "nan")
    assert ("not finite" in invoke("runs", tmp_path)[1]) == (last == "nan")
    assert (listed["Findings"], listed["IsJudged"]) == (row["findings"], row["is_judged"])


@pytest.mark.parametrize("missing", ["job.json", "end of an index file"])
def test_an_interrupted_run_has_the_same_losses(tmp_path: Path, missing: str) -> None:
    write_session(tmp_path / "a", end=None)
    run = tmp_path / "a" / "run-1"
    write_run(run, [3.0, 2.0])
    if missing == "job.json":
        (run / "job.json").unlink()
    else:
        newest = max((run / "index").rglob("*.json"))
        newest.write_bytes(newest.read_bytes()[:-9])
    row = scanned(tmp_path).rows["a/run-1"]
    _, (listed,) = invoke_json("runs", tmp_path)
    expected = 2.0 if missing == "job.json" else 3.0
    assert (listed["LastLoss"], row["last_loss"], row["problem"]) == (expected, expected, "")
    assert "EndedAt" not in listed
    assert row["state"] == "running"


@table(
    "one, other, expected",
    {
        "--flag=value and --flag value": ("t.py --lr=1", "t.py --lr 2", {"--lr": ("1", "2")}),
        "a flag alone": ("t.py --amp", "t.py", {"--amp": ("given", None)}),
        "repeated flags": ("t.py --x 1 --x 2", "t.py --x 2", {"--x": ("1 2", "2")}),
        "several values": ("t.py --sizes 1 2", "t.py --sizes 1 3", {"--sizes": ("1 2", "1 3")}),
        "negative numbers": ("t.py --n -3 -.5", "t.py --n -1e3", {"--n": ("-3 -.5", "-1e3")}),
        "name=value": ("t.py lr=1 model.n=2", "t.py lr=3 model.n=2", {"lr": ("1", "3")}),
        "positional": ("t.py data 7", "t.py data 8", {"argument 2": ("7", "8")}),
        "a launcher": (
            *("torchrun --nproc 2 t.py 1", "torchrun --nproc 4 t.py 1"),
            {"launcher": ("torchrun --nproc 2", "torchrun --nproc 4")},
        ),
        "no script": ("./train --lr 1", "./train --lr 2", {"--lr": ("1", "2")}),
        "megabytes": (f"t.py {MEGABYTES} 1", f"t.py {MEGABYTES} 2", {"argument 2": ("1", "2")}),
    },
)
def test_arguments_are_the_same(
    tmp_path: Path, one: str, other: str, expected: dict[str, tuple[str | None, str | None]]
) -> None:
    for name, command in (("one", one), ("other", other)):
        write_run(tmp_path / name, [1.0])
        environment = {"Command": command.split(), "WorldSize": len(name), "Cpus": 2}
        (tmp_path / name / "environment.json").write_text(json.dumps(environment))
    _, compared = invoke_json("compare", tmp_path / "one", tmp_path / "other")
    settings = {each["setting"]: (each["first"], each["second"]) for each in compared["settings"]}
    assert settings == {**expected, "ranks": ("3", "5")}
    catalogue = scanned(tmp_path)
    places = [catalogue.places[name] for name in ("one", "other")]
    runs = [OpenedRun(open_store(place.path), lambda _: []) for place in places]
    facts = differences(list(zip(runs, places, strict=True)))["facts"]
    assert {each["name"]: tuple(each["values"]) for each in facts} == settings
    listed = differing_arguments([catalogue.rows[name] for name in ("one", "other")])
    shown = {name: tuple(row["differs"].get(name) for row in listed) for name in expected}
    assert shown == expected
