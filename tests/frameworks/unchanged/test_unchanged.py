"""The same small task in every framework: an untouched script, plainly and with a hook in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hook_layer.format.collections_file import parse_collections
from hook_layer.format.paths import collections_key
from rule_runtime import create_trial
from tests.frameworks.unchanged import __main__ as table
from tests.frameworks.unchanged.tasks import (
    NUM_BATCHES,
    SAVED_EVERY,
    SCRIPTS,
    TASKS,
    Task,
    configuration,
    run,
)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_script_computes_the_same_and_its_tensors_are_saved(task: Task, tmp_path: Path) -> None:
    plain = run(task)
    watched = run(task, config=configuration(task, tmp_path))
    assert plain.status == 0, plain.errors
    assert watched.status == 0, watched.errors
    assert watched.output == plain.output
    assert plain.output.startswith("final loss 0.")
    assert "stepwatch" not in plain.errors
    assert "Traceback" not in watched.errors
    trial = create_trial(str(tmp_path / "tensors"))
    assert task.tensors <= set(trial.tensor_names())
    last = [2 * NUM_BATCHES - 1] if task.logs_at_end else []
    assert trial.steps() == [*range(0, 2 * NUM_BATCHES, SAVED_EVERY), *last]
    assert trial.loaded_all_steps
    assert_lines(task, tmp_path / "tensors")


def assert_lines(task: Task, tensors: Path) -> None:
    """Each layer, loss and optimizer has its line of the script."""
    data = (tensors / collections_key("worker_0")).read_bytes()
    known = parse_collections(data, file="collections").script_lines
    source = (SCRIPTS / task.script).read_text().splitlines()
    assert known.keys() == task.lines.keys()
    for kind, lines in known.items():
        for line in lines.values():
            file, _, number = line.rpartition(":")
            assert Path(file).name == task.script
            assert task.lines[kind] in source[int(number) - 1]


def test_scripts_that_fail_have_rows_in_the_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = [Task(name, f"no_{name}.py", (), frozenset()) for name in ("one", "other")]
    monkeypatch.setattr(table, "TASKS", missing)
    assert table.main(["--pairs", "1"]) == 1
    shown = capsys.readouterr()
    assert shown.out.splitlines()[-2:] == ["| one | FAILED | | | |", "| other | FAILED | | | |"]
    assert "no_one.py" in shown.err
    assert "no_other.py" in shown.err
