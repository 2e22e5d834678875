"""Which runs are found below a folder, and what the list says of them."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from hook_layer.format.session_file import SessionFile, SessionRun
from hook_layer.storage.base import open_store
from rule_runtime.embedded.result_writer import ResultWriter
from rule_runtime.engine.registry import create_rule
from rule_runtime.live_page.catalogue import Catalogue
from rule_runtime.live_page.differences import differing_arguments
from rule_runtime.live_page.opened_run import OpenedRun
from rule_runtime.live_page.run_data import Range, details, system
from tests.rule_runtime.ui.test_server import write_run, write_run_in
from tests.tables import table


def scanned(root: Path) -> Catalogue:
    catalogue = Catalogue(str(root))
    while not catalogue.scan():
        pass
    return catalogue


def write_session(folder: Path, *arguments: str, end: str | None = "Completed") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    at = "2026-11-21T10:00:{}Z"
    ended = at.format(30) if end else None
    run = SessionRun("run-1", "", "run-1", at.format("05"), 1, 1, ended, end)
    session = SessionFile(("python", "train.py", *arguments), "/x", at.format("00"), (run,))
    (folder / "session.json").write_bytes(session.encode())


@table(
    "command, shown, arguments",
    {
        "a module": (
            "python -m pkg.train --lr 0.1 --config conf.py",
            "pkg.train --lr 0.1 --config conf.py",
            {"launcher": "python -m", "script": "pkg.train", "--lr": "0.1", "--config": "conf.py"},
        ),
        "a launcher that is a module": (
            "python -m torch.distributed.run /x/train.py -m 3",
            "train.py -m 3",
            {"launcher": "python -m torch.distributed.run", "script": "/x/train.py", "-m": "3"},
        ),
        "a module of a launcher": (
            "torchrun -m pkg.train a.py",
            "pkg.train a.py",
            {"launcher": "torchrun -m", "script": "pkg.train", "argument 1": "a.py"},
        ),
        "names of settings": (
            "train.py script=eval.txt host=a lr=1",
            "train.py script=eval.txt host=a lr=1",
            {
                "script": "train.py",
                "argument script": "eval.txt",
                "argument host": "a",
                "lr": "1",
            },
        ),
        "a program": ("train foo", "train foo", {"script": "train", "argument 1": "foo"}),
        "no text": ("", "", {}),
    },
)
def test_a_row_has_the_command_from_its_script_on(
    tmp_path: Path, command: str, shown: str, arguments: dict[str, str]
) -> None:
    write_run(tmp_path / "a", [1.0])
    environment = {"Command": command.split(" ")}
    (tmp_path / "a" / "environment.json").write_text(json.dumps(environment))
    row = scanned(tmp_path).rows["a"]
    assert (row["problem"], row["command"], row["arguments"]) == ("", shown, arguments)


def test_a_row_says_what_a_run_was(tmp_path: Path) -> None:
    write_session(tmp_path / "a", "--lr", "0.1")
    builder = write_run(tmp_path / "a" / "run-1", [3.0, 1.0, np.nan])
    state = builder.evaluate(create_rule("NonFinite", {}))
    ResultWriter(builder.store, lambda: 0.0).write("run-1", {}, {"NonFinite": state})
    git = {"Commit": "0123456789", "IsDirty": True}
    (tmp_path / "a" / "environment.json").write_text(json.dumps({"Git": git, "Cpus": 2}))
    row = scanned(tmp_path).rows["a/run-1"]
    expected: dict[str, Any] = {
        "command": "train.py --lr 0.1",
        "arguments": {"launcher": "python", "script": "train.py", "--lr": "0.1"},
        "seconds": 25.0,
        "steps": 3,
        "last_loss": None,
        "is_last_bad": True,
        "best_loss": 1.0,
        "commit": "0123456789",
        "is_dirty": True,
        "findings": ["NonFinite"],
        "state": "completed",
        "problem": "",
    }
    assert {name: row[name] for name in expected} == expected
    assert "step 2" in row["diagnosis"]


@pytest.mark.parametrize(("num_validation", "is_sampled"), [(20, False), (80, True)])
def test_the_last_loss_is_read_although_a_validation_pass_follows(
    tmp_path: Path, num_validation: int, is_sampled: bool
) -> None:
    builder = write_run(tmp_path / "a", [float(1000 - step) for step in range(350)])
    for step in range(350, 350 + num_validation):
        loss = {"Loss_output_0": np.float32(7)}
        builder.step(step, loss, mode=ModeKeys.EVAL, save_values=False)
    row = scanned(tmp_path).rows["a"]
    assert row["is_last_sampled"] == is_sampled
    assert abs(row["last_loss"] - 651) <= (430 / 200 if is_sampled else 0)


def test_a_row_of_the_list_has_few_bytes(tmp_path: Path) -> None:
    for number in range(30):
        write_run(tmp_path / f"run-{number}", [1.0])
    rows = differing_arguments(list(scanned(tmp_path).rows.values()))
    assert len(json.dumps(rows)) < 30 * 600, "thousands of runs are listed at once"


def test_only_changed_runs_are_read_again(tmp_path: Path) -> None:
    builders = [write_run(tmp_path / name, [1.0, 2.0]) for name in "abc"]
    catalogue = scanned(tmp_path)
    version, rows = catalogue.version, dict(catalogue.rows)
    assert catalogue.scan()
    assert catalogue.version == version
    builders[1].step(2, {"Loss_output_0": np.float32(0.5)})
    assert catalogue.scan()
    assert catalogue.rows["b"]["last_loss"] == 0.5
    assert all(catalogue.rows[name] is rows[name] for name in "ac")
    shutil.rmtree(tmp_path / "c")
    catalogue.scan()
    assert set(catalogue.rows) == {"a", "b"}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("session.json", b"{"),
        ("session.json", b'{"SchemaVersion": 99}'),
        ("job.json", b"\xff" * 100),
        ("environment.json", b'{"Command": {"a": NaN}, "Git": 7, "Packages": [1]}'),
        (
            "environment.json",
            b'{"Git": {"Commit": [1e999]}, "Host": ' + b"[" * 500 + b"]" * 501 + b"}",
        ),
        ("system_metrics.jsonl", b'{"Time": "x"}\n[]\n{"Time": 1e999, "Gpus": {"a": 1}}\n{'),
        ("training_job_end.ts", b"?"),
    ],
)
def test_a_damaged_file_hides_no_other_run(tmp_path: Path, name: str, content: bytes) -> None:
    for each in "ab":
        write_run(tmp_path / each, [1.0])
    (tmp_path / "a" / name).write_bytes(content)
    catalogue = scanned(tmp_path)
    assert set(catalogue.rows) == {"a", "b"}
    assert all(row["is_read"] for row in catalogue.rows.values())
    json.dumps(list(catalogue.rows.values()), allow_nan=False)
    assert bool(catalogue.rows["a"]["problem"]) == (name == "session.json")
    run = OpenedRun(open_store(tmp_path / "b"), lambda _: [])
    place = replace(catalogue.places["b"], session=str(tmp_path / "a"))
    json.dumps(details(run, place), allow_nan=False)
    json.dumps(system(run, place, Range(0, 1, 1)), allow_nan=False)


def test_a_bucket_has_the_runs_of_one_session() -> None:
    builder = write_run_in(open_store("memory://ui-session/run-1/"), "run", [2.0])
    run = SessionRun("run-1", builder.store.uri, "run-1", "2026-11-21T10:00:00Z", 1)
    session = SessionFile(("train.py",), "/x", "2026-11-21T10:00:00Z", (run,))
    open_store("memory://ui-session").put("session.json", session.encode())
    catalogue = Catalogue("memory://ui-session")
    assert catalogue.scan(10)
    assert catalogue.rows["run-1"]["last_loss"] == 2.0
    assert catalogue.rows["run-1"]["command"] == "train.py"


def test_folders_that_are_no_runs_are_ignored(tmp_path: Path) -> None:
    for folder in ("checkpoints/1", ".git/objects", "index.html", "a/b/c/d/e/f/index"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "notes.txt").write_text("index/")
    write_run(tmp_path / "deep" / "er" / "run", [1.0])
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "half" / "index").mkdir(parents=True)
    write_session(tmp_path / "empty", end=None)
    catalogue = scanned(tmp_path)
    assert set(catalogue.rows) == {"deep/er/run", "half", "empty"}
    assert catalogue.rows["half"]["steps"] == 0
    assert catalogue.rows["empty"]["is_empty"]
    assert not catalogue.problem


def test_a_folder_without_rights_is_named_and_the_rest_is_listed(tmp_path: Path) -> None:
    write_run(tmp_path / "open", [1.0])
    write_run(tmp_path / "shut" / "run", [1.0])
    for folder in (*tmp_path.parents, tmp_path):
        if folder.stat().st_uid == os.geteuid() and folder != Path("/"):
            folder.chmod(0o755)
    (tmp_path / "shut").chmod(0)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)  # root may read everything
    try:
        catalogue = scanned(tmp_path)
    finally:
        if is_root:
            os.seteuid(0)
        (tmp_path / "shut").chmod(0o755)
    assert set(catalogue.rows) == {"open"}
    assert "1 folders cannot be read, such as" in catalogue.problem
    assert "shut: Permission denied" in catalogue.problem


def test_arguments_differ_among_runs_of_the_same_script() -> None:
    rows = [
        {"id": name, "arguments": {"script": script, "lr": rate, "n": "2"}}
        for name, script, rate in (("a", "x.py", "1"), ("b", "x.py", "2"), ("c", "y.py", "1"))
    ]
    assert [row["differs"] for row in differing_arguments([*rows, {"id": "d"}])] == [
        *({"lr": "1"}, {"lr": "2"}, {}, {})
    ]
