"""The callback for Lightning: steps, names, losses, metrics, and how training ends."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import ModelCheckpoint

from hook_layer.autopatch.hook_source import HookSource
from hook_layer.errors import HookConfigurationError
from hook_layer.format.modes import ModeKeys
from hook_layer.lightning import StepwatchCallback, watch_unchanged
from hook_layer.pytorch import Hook, SaveConfig, del_hook, get_hook
from hook_layer.testing.written_trial import WrittenTrial
from tests.frameworks.trainers.lightning_training import (
    Functional,
    Lit,
    Manual,
    ask_to_stop,
    batches,
    digest,
    trainer,
)
from tests.frameworks.tutorials import example

EVERY_STEP = SaveConfig(save_interval=1)


def watching(trial: WrittenTrial, **arguments: Any) -> StepwatchCallback:
    return StepwatchCallback(trial.uri, **{"save_config": EVERY_STEP, **arguments})


def modes_of(trial: WrittenTrial) -> list[tuple[str, int]]:
    return [(index.mode.name, index.mode_step) for _, index in sorted(trial.indexes().items())]


def test_modes_of_fit_validate_test_and_predict(trial: WrittenTrial) -> None:
    callback = watching(trial)
    runner, model = trainer(callback, max_epochs=2, num_sanity_val_steps=2), Lit()
    runner.fit(model, batches(2), batches(1))
    runner.validate(model, batches(1), verbose=False)
    runner.test(model, batches(1), verbose=False)
    callback.hook.get_collection("weights").save_config = EVERY_STEP
    callback.hook.collection_manager.include.add("weights")
    runner.predict(model, batches(1))
    callback.close()
    epoch = [("TRAIN", 0), ("TRAIN", 1), ("EVAL", 0), ("TRAIN", 2), ("TRAIN", 3), ("EVAL", 1)]
    assert modes_of(trial) == [*epoch, ("EVAL", 2), ("EVAL", 3), ("PREDICT", 0)]
    assert trial.end_marker() is not None
    assert not callback.hook.report().errors


def test_names_of_a_step(trial: WrittenTrial) -> None:
    callback = watching(trial, save_all=True, include_collections=["optimizer_variables"])
    trainer(callback).fit(Lit(), batches(3))
    callback.close()
    names = trial.names(1)
    assert names >= {
        "Lit_net.0.weight",
        "gradient/Lit_net.2.bias",
        "net.1_output_0",
        "CrossEntropyLoss_output_0",
        "Loss_output_0",
        "scalar/train_loss_step",
        "optimizer_variables/Lit_net.0.weight/exp_avg",
    }
    # Lightning computes a step within optimizer.step(): the state is that of before.
    key = "optimizer_variables/Lit_net.0.weight/step"
    assert [trial.values(step).get(key) for step in (1, 2)] == [1.0, 2.0]


@pytest.mark.parametrize("kind", [Lit, Functional, Manual])
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_the_results_are_the_same_without(trial: WrittenTrial, kind: Any, precision: Any) -> None:
    digests = []
    for callbacks in ((), (watching(trial, save_all=True),)):
        torch.manual_seed(0)
        model = kind()
        trainer(*callbacks, precision=precision).fit(model, batches(4))
        digests.append(digest(model))
    assert digests[0] == digests[1]


def test_a_model_that_calls_itself_makes_no_more_steps(trial: WrittenTrial) -> None:
    callback = watching(trial, include_regex="Functional_output")
    runner, model = trainer(callback), Functional()
    runner.fit(model, batches(3))
    with torch.no_grad():
        model(torch.zeros(1, 4))  # no step of the trainer
    callback.close()
    assert modes_of(trial) == [("TRAIN", 0), ("TRAIN", 1), ("TRAIN", 2)]
    assert trial.names(1) >= {"Loss_output_0", "Functional_output_0"}


def test_a_loss_that_is_a_function_is_known_in_training_and_validation(trial: WrittenTrial) -> None:
    callback = watching(trial, include_regex="Loss_input")
    trainer(callback, accumulate_grad_batches=2).fit(Functional(), batches(4), batches(2))
    callback.close()
    assert modes_of(trial) == [("TRAIN", 0), ("TRAIN", 1), ("EVAL", 0), ("EVAL", 1)]
    for step in (1, 3):
        values = trial.values(step)
        name = "CrossEntropyLoss"
        assert {f"{name}_input_0", f"{name}_input_1"} <= values.keys()
        own, reported = values[f"{name}_output_0"], values["Loss_output_0"]
        assert float(own) == pytest.approx(float(reported), rel=1e-6)


def test_accumulated_gradients_are_one_step(trial: WrittenTrial) -> None:
    torch.manual_seed(0)
    callback = watching(trial, include_collections=["gradients", "optimizer_variables"])
    model = Lit()
    seen: list[float] = []

    class Losses(Callback):
        def on_before_optimizer_step(self, _: Any, module: Any, __: Any) -> None:
            seen.append(float(module.net[0].weight.grad.abs().sum()))

    trainer(callback, Losses(), accumulate_grad_batches=3, gradient_clip_val=1e-6).fit(
        model, batches(7)
    )
    callback.close()
    assert modes_of(trial) == [("TRAIN", 0), ("TRAIN", 1), ("TRAIN", 2)]
    for step in range(3):
        gradient = trial.values(step)["gradient/Lit_net.0.weight"]
        assert float(abs(gradient).sum()) == pytest.approx(seen[step], rel=1e-5)  # not clipped
    values = trial.values(1)
    for i in range(3):
        expected = values[f"CrossEntropyLoss_output_{i}"]
        assert values[f"Loss_output_{i}"] == pytest.approx(expected, rel=1e-6)
    assert values["optimizer_variables/Lit_net.0.weight/step"] == 1.0
    assert "Loss_output_1" not in trial.names(2)  # the last batch is alone


def test_manual_optimisation_of_several_optimisers(trial: WrittenTrial) -> None:
    callback = watching(trial, include_collections=["gradients"])
    trainer(callback).fit(Manual(), batches(3))
    callback.close()
    assert modes_of(trial) == [("TRAIN", 0), ("TRAIN", 1), ("TRAIN", 2)]
    names = {"Loss_output_0", "Loss_output_1", "gradient/Manual_first.bias"}
    assert trial.names(2) >= {*names, "gradient/Manual_second.bias"}


def test_metrics_come_with_their_steps(trial: WrittenTrial) -> None:
    callback = watching(trial)
    trainer(callback, max_epochs=2).fit(Lit(), batches(2), batches(1))
    callback.close()
    found = {
        step: sorted(n.removeprefix("scalar/") for n in trial.names(step) if "scalar" in n)
        for step in trial.indexes()
    }
    of_a_step = ["train_loss", "train_loss_step"]
    of_an_epoch = [*of_a_step[:1], "train_loss_epoch", *of_a_step[1:]]
    expected = [of_a_step, of_a_step, ["val_loss"], of_an_epoch, of_a_step, ["val_loss"]]
    assert list(found.values()) == expected
    metrics = trial.collections().collections["metrics"].tensor_names
    assert set(metrics) == {f"scalar/{name}" for name in (*of_an_epoch, "val_loss")}


def test_what_is_logged_in_other_steps_waits(trial: WrittenTrial) -> None:
    callback = watching(trial, save_config=SaveConfig(save_interval=3))
    trainer(callback, max_epochs=2).fit(Lit(), batches(2), batches(2))
    callback.close()
    assert modes_of(trial) == [("TRAIN", 0), ("EVAL", 0), ("TRAIN", 3), ("EVAL", 3)]
    late = {"scalar/val_loss", "scalar/train_loss_epoch"}
    saved = [trial.names(step) & late for step in sorted(trial.indexes())]
    # Of the first epoch with the next saved step; of the second evaluation with its own last one.
    assert saved == [set(), set(), late, {"scalar/val_loss"}]


class Rule(Callback):
    """Asks to stop behind a step."""

    def __init__(self, callback: StepwatchCallback, trial: WrittenTrial, step: int) -> None:
        self.callback, self.trial, self.step = callback, trial, step

    def on_train_batch_end(self, *_: Any) -> None:
        if self.callback.hook.step == self.step:
            ask_to_stop(self.callback.hook, self.trial)


def test_a_stop_request_ends_in_lightnings_way(
    trial: WrittenTrial, caplog: pytest.LogCaptureFixture
) -> None:
    callback = watching(trial, stop_poll_s=600.0)
    ended: list[str] = []

    class Ends(Callback):
        def on_train_end(self, *_: Any) -> None:
            ended.append("train")

        def teardown(self, *_: Any, **__: Any) -> None:
            ended.append("teardown")

    runner = trainer(Rule(callback, trial, 3), callback, Ends(), max_epochs=5)
    runner.fit(Lit(), batches(10))
    assert runner.should_stop
    assert runner.global_step == 4
    assert ended == ["train", "teardown"]
    assert "training ends after step 3, as requested: the loss grows" in caplog.messages
    callback.close()
    assert trial.end_marker() is not None


def test_two_fits_with_one_callback(trial: WrittenTrial) -> None:
    callback = watching(trial, include_collections=["weights"])
    first, second = Lit(), Functional()
    runner = trainer(callback)
    runner.fit(first, batches(2))
    trainer(callback).fit(second, batches(2))
    assert not first._forward_pre_hooks
    callback.close()
    assert modes_of(trial) == [("TRAIN", i) for i in range(4)]
    assert "Lit_net.0.weight" in trial.names(1)
    assert "Functional_net.0.weight" in trial.names(2)
    assert "Lit_net.0.weight" not in trial.names(2)


def test_a_training_is_resumed(
    tmp_path: Path, trial: WrittenTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    config = tmp_path / "checkpointconfig.json"
    config.write_text(f'{{"LocalPath": "{folder}"}}')
    monkeypatch.setenv("CHECKPOINT_CONFIG_FILE_PATH", str(config))

    class Interrupted(Callback):
        def on_train_batch_start(self, _: Any, __: Any, ___: Any, i: int) -> None:
            if i == 5:
                raise KeyboardInterrupt

    saving = ModelCheckpoint(folder, every_n_train_steps=2, save_top_k=-1)
    callback = watching(trial, include_collections=["weights"])
    with pytest.raises(SystemExit):
        trainer(Interrupted(), callback, saving, enable_checkpointing=True).fit(Lit(), batches(8))
    callback.hook.close(end_of_training=False)
    run_id = trial.job().run_id
    assert sorted(trial.indexes()) == [0, 1, 2, 3, 4]

    callback = watching(trial, include_collections=["weights"])
    runner = trainer(callback, enable_checkpointing=False)
    runner.fit(Lit(), batches(8), ckpt_path=str(next(folder.glob("*step=4.ckpt"))))
    callback.close()
    assert trial.job().run_id == run_id
    assert sorted(trial.indexes()) == list(range(8))
    assert runner.global_step == 8


def test_a_copy_in_another_process_makes_its_own_hook(trial: WrittenTrial) -> None:
    callback = watching(trial)
    copied = pickle.loads(pickle.dumps(callback))
    assert isinstance(copied.hook, Hook)
    assert copied.hook is not callback.hook
    assert copied.hook.out_dir == callback.hook.out_dir


def test_arguments(trial: WrittenTrial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hook = Hook(trial.uri)
    assert StepwatchCallback(hook=hook).hook is hook
    with pytest.raises(HookConfigurationError, match="not both"):
        StepwatchCallback(trial.uri, hook=hook)
    with pytest.raises(HookConfigurationError, match="out_dir"):
        StepwatchCallback()
    path = tmp_path / "stepwatch.json"
    path.write_text(f'{{"LocalPath": "{tmp_path / "run"}"}}')
    monkeypatch.setenv("SMDEBUG_CONFIG_FILE_PATH", str(path))
    assert StepwatchCallback().hook.out_dir == str(tmp_path / "run")


def test_a_script_without_a_callback_gets_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lightning.pytorch import Trainer

    monkeypatch.setattr(Trainer, "fit", Trainer.fit)  # put back at the end
    del_hook()
    watch_unchanged(HookSource(out_dir=str(tmp_path / "run")))
    trainer().fit(Lit(), batches(2))
    hook = get_hook()
    assert hook is not None
    assert hook.step == 1
    trainer().fit(Lit(), batches(2))  # only the first is watched
    assert hook.step == 1
    hook.close()
    written = WrittenTrial(str(tmp_path / "run"))
    assert "Loss_output_0" in written.names(0)
    assert written.indexes()[0].mode is ModeKeys.TRAIN


def test_the_example_in_the_documentation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(example("lightning"), names)
    names["watching"].close()
    written = WrittenTrial("runs/line-1")
    assert sorted(written.indexes()) == [*range(11), *range(12, 40, 2)]
    assert written.names(10) >= {
        "Loss_output_0",
        "gradient/Line_model.weight",
        "scalar/train_loss",
    }
