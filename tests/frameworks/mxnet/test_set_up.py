"""How a hook is made: arguments, files, the current hook, and what it needs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import hook_layer.mxnet as smd
from hook_layer.errors import HookConfigurationError
from hook_layer.install_hint import install_hint
from hook_layer.mxnet.capturing import MxnetWorkers
from hook_layer.testing.written_trial import WrittenTrial
from tests.frameworks.mxnet.gluon_training import LOSS, Training, every_step
from tests.frameworks.tutorials import example

ROOT = Path(__file__).parents[3]


def configuration(folder: Path) -> Path:
    path = folder / "hook.json"
    collections = [
        {"CollectionName": "gradients", "CollectionParameters": {"save_interval": "2"}},
        {"CollectionName": "relu_output"},
    ]
    parameters = {"save_interval": "1"}
    content = {"LocalPath": str(folder / "trial"), "HookParameters": parameters}
    path.write_text(json.dumps({**content, "CollectionConfigurations": collections}))
    return path


def test_a_file_says_it_all(tmp_path: Path) -> None:
    hook = smd.Hook.create_from_json_file(configuration(tmp_path))
    training = Training(hook)
    for _ in range(2):
        training.step()
    hook.close()
    trial = WrittenTrial(str(tmp_path / "trial"))
    assert trial.names(1) == {LOSS, "conv0_relu_output_0"}
    assert trial.names(0) == {LOSS, "conv0_relu_output_0", *training.gradients()}


def test_the_current_hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert smd.get_hook(create_if_not_exists=False) is None
    monkeypatch.setenv("SMDEBUG_CONFIG_FILE_PATH", str(configuration(tmp_path)))
    made = smd.get_hook()  # as the original, which makes one
    assert made is not None
    assert smd.get_hook() is made
    other = smd.Hook(str(tmp_path / "other"))
    assert smd.get_hook() is other
    smd.set_hook(made)
    assert smd.get_hook() is made
    smd.del_hook()
    assert smd.get_hook(create_if_not_exists=False) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"include_workers": "two"}, "include_workers='two'"),
        ({"save_config": 3}, "save_config"),
    ],
)
def test_mistakes_are_reported_when_the_hook_is_made(
    trial: WrittenTrial, options: dict[str, object], message: str
) -> None:
    with pytest.raises(HookConfigurationError, match=message):
        smd.Hook(trial.uri, **options)


def test_without_mxnet_the_error_says_what_to_install() -> None:
    code = "import sys; sys.modules['mxnet'] = None; import hook_layer.mxnet"
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert install_hint("mxnet") in process.stderr


def test_the_first_worker_alone_writes(
    trial: WrittenTrial, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = every_step(trial, include_workers="all")
    monkeypatch.setattr(MxnetWorkers, "rank_and_size", lambda _: (1, 2))
    training = Training(hook)
    training.step()
    hook.close()
    assert "only rank 0 writes" in caplog.text
    assert list(trial.store.list()) == []


def test_gradients_of_a_scaled_loss_are_unscaled(trial: WrittenTrial) -> None:
    net = nn.Dense(1, in_units=3, prefix="dense0_")
    net.initialize(mx.init.One())
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    # What mxnet.contrib.amp adds to a Trainer; its `init` would change MXNet for all tests.
    trainer._amp_original_scale = trainer._scale
    scale = 1024.0
    hook = every_step(trial, include_collections=["gradients"])
    hook.register_block(net)
    for _ in range(2):
        trainer._scale = trainer._amp_original_scale / scale
        with autograd.record():
            loss = net(mx.nd.ones((2, 3))).sum()
            scaled = loss * scale
        scaled.backward()
        trainer.step(1)
    hook.close()
    np.testing.assert_allclose(trial.values(1)["gradient/dense0_weight"], 2 * np.ones((1, 3)))


def test_the_example_of_the_documentation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(example("mxnet"), {})
    trial = WrittenTrial(str(tmp_path / "runs" / "mnist-1"))
    assert sorted(trial.indexes()) == [*range(11), 12, 14, 16, 18]
    assert {"conv0_weight", "gradient/conv0_weight", "conv0_relu_output_0"} < trial.names(10)
