"""How many bytes the values of a step and of a run take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hook_layer.autopatch.hook_source import HookSource
from hook_layer.configuration.collections import Collection, CollectionKeys
from hook_layer.configuration.configuration_file import ConfigurationFile
from hook_layer.configuration.hook_json import parse_hook_configuration
from hook_layer.configuration.hook_options import HookOptions
from hook_layer.errors import HookConfigurationError
from hook_layer.format.index import parse_index
from hook_layer.format.paths import index_key
from hook_layer.testing.written_trial import WrittenTrial
from tests.hook_layer.tiny_hook import TinyHook, make_hook

KIB = 1024
LABELS = np.arange(512)
LOGITS = np.random.default_rng(0).normal(size=(512, 256)).astype("f4")  # 512 KiB
SMALL = np.ones((100, 10), "f4")
BATCH = {"w_logits": LOGITS, "w_labels": LABELS, "w_small": SMALL, "w_loss": np.float32(5)}


def event_bytes(trial: WrittenTrial, step: int) -> int:
    return len(trial.store.get(trial.indexes()[step].event_file_name or ""))


def trained(trial: WrittenTrial, steps: int = 3, **options: Any) -> TinyHook:
    hook = make_hook(trial, **options)
    for _ in range(steps):
        hook.train(BATCH)
    hook.close()
    return hook


def test_without_a_limit_everything_is_stored(trial: WrittenTrial) -> None:
    hook = trained(trial)
    assert trial.values(2)["w_logits"].shape == LOGITS.shape
    assert not trial.indexes()[2].first_rows
    assert not hook.report().cut
    assert "cut" not in str(hook.report())


def test_of_large_values_the_first_rows_are_stored(trial: WrittenTrial) -> None:
    hook = trained(trial, max_step_bytes=64 * KIB)
    for step in range(3):
        assert event_bytes(trial, step) <= 64 * KIB
        values = trial.values(step)
        rows = len(values["w_logits"])
        assert 0 < rows < len(LOGITS)
        np.testing.assert_array_equal(values["w_logits"], LOGITS[:rows])
        np.testing.assert_array_equal(values["w_labels"], LABELS[:rows])  # they belong together
        np.testing.assert_array_equal(values["w_small"], SMALL)
        assert values["w_loss"] == 5
        assert trial.indexes()[step].first_rows == {"w_logits": rows, "w_labels": rows}
    assert len(trial.values(2)["w_logits"]) >= 48  # the budget is used: 48 of 64 KiB
    (logits,) = (cut for cut in hook.report().cut if cut.name == "w_logits")
    assert (logits.rows, logits.of_rows, logits.steps) == (rows, 512, 3)
    assert f"w_logits: {rows} of 512 rows at 3 steps" in str(hook.report())


def test_statistics_and_shapes_are_those_of_the_whole(trial: WrittenTrial) -> None:
    trained(trial, max_step_bytes=64 * KIB)
    row = trial.statistics(2)["w_logits"]
    assert row["size"] == LOGITS.size
    assert row["l2"] == pytest.approx(np.linalg.norm(LOGITS), rel=1e-5)
    assert row["max"] == LOGITS.max()
    block = trial.indexes()[2].statistics
    assert block is not None
    assert dict(zip(block.tensors, block.shapes, strict=True))["w_logits"] == (512, 256)


def test_many_values_of_one_step_share_the_budget_equally(trial: WrittenTrial) -> None:
    hook = make_hook(trial, max_step_bytes=256 * KIB)
    micro = {f"w_{kind}_{i}": BATCH[f"w_{kind}"] for i in range(8) for kind in ("logits", "labels")}
    for _ in range(2):
        hook.train({})
        for name, value in micro.items():
            hook.recorder.capture({name: (value, hook.collector.plan(name))})  # type: ignore[dict-item]
        hook.recorder.step_is_captured()
    hook.close()
    assert {len(trial.values(1)[name]) for name in micro} == {26}
    assert all(0 < event_bytes(trial, step) <= 256 * KIB for step in range(2))
    assert len({len(trial.values(0)[name]) for name in micro}) == 1


def test_values_of_another_shape_stay_within_the_budget(trial: WrittenTrial) -> None:
    hook = make_hook(trial, max_step_bytes=64 * KIB)
    for step in range(12):
        rows = 512 if step % 3 else 77
        hook.train({**BATCH, "w_logits": LOGITS[:rows], "w_labels": LABELS[:rows]})
    hook.close()
    for step in range(12):
        assert event_bytes(trial, step) <= 64 * KIB
        assert len(trial.values(step)["w_logits"]) == len(trial.values(step)["w_labels"]) > 0


def test_parameters_are_no_rows_of_a_batch(trial: WrittenTrial) -> None:
    weights = Collection(CollectionKeys.WEIGHTS, ["weight"])
    hook = make_hook(trial, weights, max_step_bytes=64 * KIB)
    hook.train({**BATCH, "w_weight": np.ones(512, "f4")})
    hook.close()
    assert len(trial.values(0)["w_weight"]) == 512 > len(trial.values(0)["w_labels"])


def test_a_row_that_is_too_large_is_not_stored(trial: WrittenTrial) -> None:
    hook = make_hook(trial, max_step_bytes=KIB)
    hook.train({"w_long": np.ones((2, 5000)), "w_loss": np.float32(1)})
    hook.close()
    assert trial.values(0).keys() == {"w_loss"}
    assert trial.indexes()[0].first_rows == {"w_long": 0}
    assert trial.statistics(0)["w_long"]["size"] == 10_000


def test_a_run_never_stores_more_than_its_budget_and_always_something(trial: WrittenTrial) -> None:
    hook = make_hook(trial, max_run_bytes=2048 * KIB)
    for _ in range(300):
        hook.train(BATCH)
    hook.close()
    sizes = [event_bytes(trial, step) for step in range(300)]
    assert sum(sizes) <= 2048 * KIB
    assert all(trial.values(step)["w_loss"] == 5 for step in range(300))
    assert trial.values(299)["w_labels"].size > 0
    assert sizes[0] > sizes[299]


@pytest.mark.parametrize("dtype", ["f2", "i8", "c8", "?"])
def test_of_whatever_type(trial: WrittenTrial, dtype: str) -> None:
    hook = make_hook(trial, max_step_bytes=16 * KIB)
    hook.train({"w": LOGITS.astype(dtype)})
    hook.train({"w": LOGITS.astype(dtype)})
    hook.close()
    assert 8 * KIB < event_bytes(trial, 1) <= 16 * KIB


def test_a_file_says_the_limits() -> None:
    content = {"HookParameters": {"max_step_bytes": "1000", "max_run_bytes": "9000"}}
    options = parse_hook_configuration(ConfigurationFile(content, "hook.json")).options
    assert (options.max_step_bytes, options.max_run_bytes) == (1000, 9000)


def test_a_limit_that_makes_no_sense_is_refused() -> None:
    for wrong in (0, -1, True, "16"):
        with pytest.raises(HookConfigurationError, match="max_step_bytes"):
            HookOptions(max_step_bytes=wrong)


def test_a_hook_that_a_script_does_not_make_has_limits(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from hook_layer.pytorch import Hook

    hook = HookSource(out_dir=str(tmp_path)).make(Hook)
    assert hook is not None
    budget = hook.tensor_capture.budget
    assert (budget._max_step_bytes, budget._max_run_bytes) == (16 << 20, 1 << 30)
    hook.close()
    assert Hook(str(tmp_path)).tensor_capture.budget._max_step_bytes is None


def test_an_index_file_with_wrong_rows_is_refused(trial: WrittenTrial) -> None:
    trained(trial, 1, max_step_bytes=64 * KIB)
    data = trial.store.get(index_key(0, "worker_0"))
    assert parse_index(data, file="index").first_rows
    with pytest.raises(ValueError, match="first_rows"):
        parse_index(data.replace(b'"first_rows": {', b'"first_rows": {"x": -1, '), file="index")
