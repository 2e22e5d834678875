"""Each call of `train_on_batch` and `test_on_batch` is a step with the tensors of `fit`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from hook_layer.autopatch.hook_source import HookSource
from hook_layer.errors import TrainingStoppedError
from hook_layer.format.job_file import StopFile
from hook_layer.format.paths import STOP_FILE
from hook_layer.keras import KerasHook, del_hook, modes
from hook_layer.keras.unchanged import watch_unchanged
from hook_layer.run.session_log import NOTES_VARIABLE, SessionLog
from rule_runtime import create_trial
from rule_runtime.embedded.hook_configuration import hook_configuration
from tests.frameworks.keras.keras_training import (
    BATCH,
    EVERY_STEP,
    FEATURES_OF_ROWS,
    LABELS,
    fitted,
    new_model,
    same,
)

STARTS = range(0, len(LABELS), BATCH)


def batches(model: Any, *, epochs: int = 1) -> list[Any]:
    """Train a model by batches, in the order of `fit`, and return what Keras returns."""
    rows = [slice(start, start + BATCH) for _ in range(epochs) for start in STARTS]
    return [model.train_on_batch(FEATURES_OF_ROWS[of], LABELS[of]) for of in rows]


def everything(folder: Path, **options: Any) -> KerasHook:
    return KerasHook(folder, save_config=EVERY_STEP, save_all=True, **options)


def test_a_step_has_the_tensors_of_fit(tmp_path: Path) -> None:
    by_fit = everything(tmp_path / "fit")
    fitted(new_model(), by_fit, 1)
    by_fit.close()
    model, hook = new_model(), everything(tmp_path / "batches")
    hook.register_model(model)
    batches(model)
    hook.close()
    assert not hook.report().errors
    expected, trial = create_trial(str(tmp_path / "fit")), create_trial(str(tmp_path / "batches"))
    assert trial.steps(mode=modes.TRAIN) == expected.steps(mode=modes.TRAIN)
    for step in trial.steps():
        assert trial.tensor_names(step=step) == expected.tensor_names(step=step)
    for name in ("hidden/outputs", "labels", "head/weights/head/kernel:0"):
        theirs, ours = (each.tensor(name).value(0) for each in (expected, trial))
        assert np.allclose(ours, theirs, rtol=1e-5)


def test_results_are_unchanged(tmp_path: Path) -> None:
    plain = new_model()
    results = batches(plain, epochs=2)
    watched = new_model()
    hook = everything(tmp_path)
    hook.register_model(watched)
    assert batches(watched, epochs=2) == results
    hook.close()
    assert same(watched.get_weights(), plain.get_weights())
    assert "train_on_batch" not in vars(watched)


def test_validation_is_of_mode_eval(tmp_path: Path) -> None:
    model, hook = new_model(), everything(tmp_path)
    hook.register_model(model)
    batches(model)
    value = model.test_on_batch(FEATURES_OF_ROWS, LABELS, return_dict=True)
    hook.close()
    trial = create_trial(str(tmp_path))
    assert trial.steps(mode=modes.EVAL) == [0]
    assert trial.tensor("loss").value(0, mode=modes.EVAL) == pytest.approx(value["loss"])
    assert "gradients/head/kernelGrad" not in trial.tensor_names(step=0, mode=modes.EVAL)


def test_a_stop_request_ends_the_loop(tmp_path: Path) -> None:
    model, hook = new_model(), everything(tmp_path, stop_poll_s=0.01)
    hook.register_model(model)
    batches(model)
    assert hook.flush(30)
    request = StopFile("enough", "2026-01-01T00:00:00Z")
    (tmp_path / STOP_FILE).write_bytes(request.encode())
    with pytest.raises(TrainingStoppedError, match="enough"):
        batches(model, epochs=10_000)


def test_fit_after_it_has_steps_of_its_own(tmp_path: Path) -> None:
    model, hook = new_model(), everything(tmp_path)
    hook.register_model(model)
    batches(model)
    fitted(model, hook, 1)
    hook.close()
    assert hook.mode_steps[modes.TRAIN] == 2 * len(STARTS) - 1
    assert not hook.report().errors
    keras.backend.clear_session(free_memory=False)


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unpatched: None) -> Path:
    """The folder of a session in which scripts without a hook are watched."""
    del unpatched
    SessionLog.make(tmp_path / "notes", (), root=f"file://{tmp_path}/session/", max_runs=4)
    monkeypatch.setenv(NOTES_VARIABLE, str(tmp_path / "notes"))
    del_hook()
    document = {**hook_configuration("recommended"), "LocalPath": str(tmp_path / "session")}
    (tmp_path / "hook.json").write_text(json.dumps(document))
    watch_unchanged(HookSource(config=str(tmp_path / "hook.json")))
    return tmp_path / "session"


def test_models_that_take_turns_are_a_run_each(session: Path) -> None:
    made, real = np.ones((BATCH, 2), np.float32), FEATURES_OF_ROWS[:BATCH, :1]
    generator = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, name="made")])
    critic = keras.Sequential(
        [keras.Input((1,)), keras.layers.Dense(1, activation="sigmoid", name="judged")]
    )
    critic.compile("sgd", "binary_crossentropy")
    both = keras.Sequential([keras.Input((2,)), generator, critic])
    both.compile("adam", "binary_crossentropy")
    for _ in range(3):
        critic.trainable = True
        critic.train_on_batch(real, np.ones((BATCH, 1)))
        critic.train_on_batch(generator(made), np.zeros((BATCH, 1)))
        critic.trainable = False
        both.train_on_batch(made, np.ones((BATCH, 1)))
    del_hook()
    trials = [create_trial(str(session / name)) for name in ("run-1", "run-2")]
    for trial, last in zip(trials, (5, 2), strict=True):
        trial.wait_for_steps([last])  # an abandoned hook writes on
    assert [len(trial.steps(mode=modes.TRAIN)) for trial in trials] == [6, 3]
    of_critic, of_both = (set(trial.tensor_names(step=0)) for trial in trials)
    assert {"loss", "judged/outputs", "BinaryCrossentropyLoss_input_1"} <= of_critic & of_both
    assert "made/outputs" in of_both - of_critic
    of_gradients = [{n for n in each if "kernelGrad" in n} for each in (of_critic, of_both)]
    assert of_gradients == [{"gradients/judged/kernelGrad"}, {"gradients/made/kernelGrad"}]
