"""The original's reader, our rules, and scripts without a hook, with what the hook writes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from hook_layer.autopatch.hook_source import HookSource
from hook_layer.errors import HookConfigurationError
from hook_layer.keras import KerasHook, SaveConfig, del_hook, modes
from hook_layer.keras.unchanged import watch_unchanged
from rule_runtime import create_trial
from tests.frameworks.keras.keras_training import (
    EVERY_STEP,
    FEATURES_OF_ROWS,
    LABELS,
    fitted,
    new_model,
)
from tests.interop.comparison import assert_same
from tests.interop.dump_trial import dump
from tests.interop.environment import ROOT, SmdebugReader

BACKEND = keras.backend.backend()


def test_the_original_says_the_same(tmp_path: Path) -> None:
    hook = KerasHook(tmp_path, save_config=SaveConfig(save_interval=2), save_all=True)
    model = new_model()
    fitted(model, hook, validation_data=(FEATURES_OF_ROWS, LABELS))
    model.predict(FEATURES_OF_ROWS, verbose=0, callbacks=[hook])
    hook.close()
    reader = SmdebugReader()
    try:
        found = reader.seen(tmp_path)
    finally:
        reader.close()
    assert found["loaded_all_steps"]
    assert found["steps"]["TRAIN"] == [0, 2, 4, 6]
    assert "gradients/hidden/kernelGrad" in found["names"]
    assert_same(json.loads(json.dumps(dump("rule_runtime", str(tmp_path)))), found)


@pytest.mark.usefixtures("unpatched")
def test_a_script_without_a_hook(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    del_hook()
    watch_unchanged(HookSource(out_dir=str(tmp_path)))
    first, second = new_model(), new_model()
    fitted(first, epochs=1)
    first.evaluate(FEATURES_OF_ROWS, LABELS, 16, verbose=0)
    fitted(second, epochs=1)
    for _ in range(2):
        second.train_on_batch(FEATURES_OF_ROWS, LABELS)
    assert caplog.text.count("only the first training of a process is watched") == 1
    hook = keras_hook()
    hook.close()
    assert [hook.mode_steps[mode] for mode in (modes.TRAIN, modes.EVAL)] == [3, 3]
    trial = create_trial(str(tmp_path))
    assert "loss" in trial.tensor_names()
    del_hook()


@pytest.mark.usefixtures("unpatched")
def test_a_script_keeps_its_hook(tmp_path: Path) -> None:
    watch_unchanged(HookSource(out_dir=str(tmp_path / "other")))
    hook = KerasHook(tmp_path / "own")
    fitted(new_model(), hook, epochs=1)
    hook.close()
    assert not (tmp_path / "other").exists()
    assert create_trial(str(tmp_path / "own")).steps() == [0]


def keras_hook() -> KerasHook:
    from hook_layer.keras import get_hook

    hook = get_hook()
    assert hook is not None
    return hook


def test_what_the_original_has(tmp_path: Path) -> None:
    hook = KerasHook(tmp_path, save_config=EVERY_STEP, include_collections=["gradients", "layers"])
    model = new_model()
    optimizer = keras.optimizers.SGD(0.1)
    assert hook.wrap_optimizer(optimizer) is optimizer
    hook.register_model(model)
    variables = model.trainable_variables
    answers: list[Any] = []

    class Script(keras.callbacks.Callback):  # untyped
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            del batch, logs
            answers.append(hook.should_save_layer("hidden"))
            hook.set_gradients([keras.ops.ones(v.shape) * 7 for v in variables])
            hook.save_tensor("mine", keras.ops.ones((2,)))
            hook.save_scalar("rate", keras.ops.convert_to_tensor(0.5))
            hook.record_tensor_value("own_loss", keras.ops.convert_to_tensor(2.0))

    model.fit(
        FEATURES_OF_ROWS, LABELS, batch_size=32, verbose=0, callbacks=[hook, Script()], epochs=1
    )
    hook.close()
    assert answers == [True, True]
    trial = create_trial(str(tmp_path))
    assert np.array_equal(trial.tensor("mine").value(0), [1, 1])
    assert trial.tensor("scalar/rate").value(0).item() == 0.5
    assert "own_loss" in trial.collections()["losses"].tensor_names
    if BACKEND != "tensorflow":
        with pytest.raises(HookConfigurationError, match="tensorflow"):
            hook.wrap_tape(object())


def test_importing_the_hook_imports_no_other_backend() -> None:
    """Neither does Keras, but for JAX, which it imports where that is installed."""
    others = {"tensorflow", "torch"} - {BACKEND}
    code = (
        "import keras, sys; before = set(sys.modules); import hook_layer.keras; "
        f"assert not {others!r} & (set(sys.modules) - before)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
