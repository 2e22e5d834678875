"""The callback for Hugging Face's Trainer: steps, names, losses, metrics, and how training ends."""

from __future__ import annotations

import copy
import hashlib
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

import stepwatch
from hook_layer.autopatch.hook_source import HookSource
from hook_layer.format.job_file import StopFile
from hook_layer.format.paths import STOP_FILE
from hook_layer.huggingface import StepwatchCallback, watch_unchanged
from hook_layer.pytorch import SaveConfig, del_hook, get_hook
from hook_layer.testing.written_trial import WrittenTrial
from tests.frameworks.tutorials import example

logging.getLogger("transformers").setLevel(logging.ERROR)
EVERY_STEP = SaveConfig(save_interval=1)
MODEL = "BertForSequenceClassification"
TINY = BertConfig(
    vocab_size=30,
    hidden_size=8,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=8,
    max_position_embeddings=8,
)


class OwnLoss(Trainer):
    """Computes another loss than the model does."""

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
        outputs = model(**inputs)
        loss = torch.nn.functional.cross_entropy(outputs.logits * 2, inputs["labels"])
        return (loss, outputs) if return_outputs else loss


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "output"


def watching(trial: WrittenTrial, **arguments: Any) -> StepwatchCallback:
    return StepwatchCallback(trial.uri, **{"save_config": EVERY_STEP, **arguments})


def examples(num: int) -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        {
            "input_ids": torch.randint(0, 30, (6,), generator=generator),
            "labels": torch.tensor(i % 2),
        }
        for i in range(num)
    ]


def masked_text(num_hidden: int) -> dict[str, torch.Tensor]:
    words = torch.randint(0, 30, (6,), generator=torch.Generator().manual_seed(num_hidden))
    labels = words.clone()
    labels[:num_hidden] = -100
    return {"input_ids": words, "labels": labels}


def trainer(
    folder: Path,
    *callbacks: Any,
    kind: Any = Trainer,
    model: Any = None,
    train_dataset: Any = None,
    **arguments: Any,
) -> Any:
    torch.manual_seed(0)
    return kind(
        model or BertForSequenceClassification(TINY),
        TrainingArguments(
            str(folder),
            **{
                "max_steps": 3,
                "per_device_train_batch_size": 4,
                "per_device_eval_batch_size": 4,
                "learning_rate": 0.01,
                "report_to": [],
                "save_strategy": "no",
                "logging_strategy": "no",
                "disable_tqdm": True,
                "use_cpu": True,
                **arguments,
            },
        ),
        train_dataset=train_dataset or examples(16),
        eval_dataset=examples(8),
        callbacks=list(callbacks),
    )


def modes_of(trial: WrittenTrial) -> list[tuple[str, int]]:
    return [(index.mode.name, index.mode_step) for _, index in sorted(trial.indexes().items())]


def digest(model: Any) -> str:
    state = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    return hashlib.sha256(state).hexdigest()


def test_modes_of_train_evaluate_and_predict(trial: WrittenTrial, folder: Path) -> None:
    callback = watching(trial)
    runner = trainer(folder, callback, max_steps=2, eval_strategy="steps", eval_steps=1)
    runner.train()
    runner.evaluate()
    runner.predict(examples(4))
    with torch.no_grad():
        runner.model(**{key: value[None] for key, value in examples(1)[0].items()})  # no step
    callback.close()
    evaluation = [("EVAL", 0), ("EVAL", 1)]
    expected = [("TRAIN", 0), *evaluation, ("TRAIN", 1), ("EVAL", 2), ("EVAL", 3)]
    assert modes_of(trial) == [*expected, ("EVAL", 4), ("EVAL", 5), ("PREDICT", 0)]
    assert trial.end_marker() is not None
    assert not callback.hook.report().errors
    assert "scalar/eval_loss" in trial.names(2)
    assert "scalar/eval_loss" not in trial.names(1)


def test_evaluation_without_a_training(trial: WrittenTrial, folder: Path) -> None:
    callback = watching(trial)
    trainer(folder, callback).evaluate()
    callback.close()
    assert modes_of(trial) == [("EVAL", 0), ("EVAL", 1)]
    assert f"{MODEL}_loss_output_0" in trial.names(0)


def test_names_of_a_step(trial: WrittenTrial, folder: Path) -> None:
    callback = watching(trial, save_all=True, include_collections=["optimizer_variables"])
    runner = trainer(folder, callback, logging_strategy="steps", logging_steps=1)
    runner.train()
    callback.close()
    names = trial.names(1)
    assert names >= {
        f"{MODEL}_classifier.weight",
        f"gradient/{MODEL}_classifier.weight",
        "classifier_output_0",
        "Loss_output_0",
        f"{MODEL}_loss_output_0",
        "scalar/learning_rate",
        "scalar/loss",
        f"optimizer_variables/{MODEL}_classifier.weight/exp_avg",
    }
    rates = [float(trial.values(step)["scalar/learning_rate"]) for step in range(3)]
    assert rates == pytest.approx([0.01, 0.01 * 2 / 3, 0.01 / 3])
    logged = [float(trial.values(step)["scalar/loss"]) for step in range(3)]
    losses = [float(trial.values(step)["Loss_output_0"]) for step in range(3)]
    assert logged == pytest.approx(losses, abs=1e-4)


@pytest.mark.parametrize("arguments", [{}, {"bf16": True}, {"gradient_checkpointing": True}])
def test_the_results_are_the_same_without(
    trial: WrittenTrial, folder: Path, arguments: dict[str, Any]
) -> None:
    digests = []
    callback = watching(trial, save_all=True)
    for callbacks in ((), (callback,)):
        runner = trainer(folder, *callbacks, gradient_accumulation_steps=2, **arguments)
        runner.train()
        digests.append(digest(runner.model))
    callback.close()
    assert digests[0] == digests[1]
    assert modes_of(trial) == [("TRAIN", 0), ("TRAIN", 1), ("TRAIN", 2)]


def test_accumulated_gradients_are_one_step(trial: WrittenTrial, folder: Path) -> None:
    callback = watching(trial, include_collections=["gradients"])
    seen: list[float] = []

    class Norms(TrainerCallback):
        def on_pre_optimizer_step(self, *_: Any, model: Any = None, **__: Any) -> None:
            seen.append(float(model.classifier.weight.grad.abs().sum()))

    runner = trainer(
        folder, callback, Norms(), gradient_accumulation_steps=2, max_grad_norm=1e9, max_steps=2
    )
    runner.train()
    callback.close()
    assert modes_of(trial) == [("TRAIN", 0), ("TRAIN", 1)]
    for step in range(2):
        values = trial.values(step)
        gradient = values[f"gradient/{MODEL}_classifier.weight"]
        assert float(abs(gradient).sum()) == pytest.approx(seen[step], rel=1e-5)
        assert {"Loss_output_0", "Loss_output_1"} <= values.keys()


class KeepsBatches(Trainer):
    """Keeps what the model is called with."""

    batches: list[dict[str, Any]]

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        self.batches.append({name: tensor.clone() for name, tensor in inputs.items()})
        return super().compute_loss(model, inputs, *args, **kwargs)


@pytest.mark.parametrize("compiles", [False, True])
def test_shares_of_an_accumulated_batch_are_saved_as_means(
    trial: WrittenTrial, folder: Path, compiles: bool
) -> None:
    callback = watching(trial)
    torch.manual_seed(0)
    size = {"n_embd": 8, "n_layer": 1, "n_head": 1, "bos_token_id": 0, "eos_token_id": 0}
    without = dict.fromkeys(["resid_pdrop", "embd_pdrop", "attn_pdrop"], 0.0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=30, n_positions=6, **size, **without))
    untrained = copy.deepcopy(model)
    runner = trainer(
        folder,
        callback,
        kind=KeepsBatches,
        model=model,
        train_dataset=[masked_text(num_hidden) for num_hidden in (0, 1, 2, 3, 4, 0, 1, 5)],
        gradient_accumulation_steps=2,
        max_steps=1,
        torch_compile_backend="aot_eager" if compiles else None,
    )
    runner.batches = []
    runner.train()
    callback.close()
    means = [untrained(**batch).loss.item() for batch in runner.batches]
    values = trial.values(0)
    saved = [float(values[f"GPT2LMHeadModel_loss_output_{i}"]) for i in range(2)]
    assert saved == pytest.approx(means, rel=1e-5)
    shares = [float(values[f"Loss_output_{i}"]) for i in range(2)]
    assert all(share < 0.8 * mean for share, mean in zip(shares, means, strict=True))


def test_a_loss_of_the_scripts_own(trial: WrittenTrial, folder: Path) -> None:
    callback = watching(trial)
    trainer(folder, callback, kind=OwnLoss).train()
    callback.close()
    values = trial.values(0)
    assert values["Loss_output_0"] != values[f"{MODEL}_loss_output_0"]


class Rule(TrainerCallback):
    """Asks to stop behind the second step."""

    def __init__(self, callback: StepwatchCallback, trial: WrittenTrial) -> None:
        self.hook, self.trial = callback.hook, trial

    def on_step_end(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
        if state.global_step == 2:
            self.hook.flush()
            request = StopFile("the loss grows", "2026-01-01T00:00:00Z", self.trial.job().run_id)
            self.trial.store.put(STOP_FILE, request.encode())
            session: Any = self.hook.session.trial
            session.stop_signal.check()


def test_a_stop_request_ends_in_the_trainers_way(
    trial: WrittenTrial, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    callback = watching(trial, stop_poll_s=600.0)
    runner = trainer(folder, Rule(callback, trial), callback, max_steps=50)
    result = runner.train()
    assert result.global_step == 2
    assert "training ends after step 1, as requested: the loss grows" in caplog.messages
    callback.close()
    assert trial.end_marker() is not None


def test_a_training_is_resumed(
    tmp_path: Path, folder: Path, trial: WrittenTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "checkpointconfig.json"
    config.write_text(f'{{"LocalPath": "{folder}"}}')
    folder.mkdir()
    monkeypatch.setenv("CHECKPOINT_CONFIG_FILE_PATH", str(config))

    class Interrupted(TrainerCallback):
        def on_step_begin(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
            if state.global_step == 3:
                raise KeyboardInterrupt

    saving = {"save_strategy": "steps", "save_steps": 2, "max_steps": 6}
    callback = watching(trial)
    with pytest.raises(KeyboardInterrupt):
        trainer(folder, Interrupted(), callback, **saving).train()
    callback.hook.close(end_of_training=False)
    run_id = trial.job().run_id
    assert sorted(trial.indexes()) == [0, 1, 2]

    callback = watching(trial)
    result = trainer(folder, callback, **saving).train(resume_from_checkpoint=True)
    callback.close()
    assert trial.job().run_id == run_id
    assert sorted(trial.indexes()) == list(range(6))
    assert result.global_step == 6


def test_a_script_without_a_callback_gets_one(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Trainer, "train", Trainer.train)  # put back at the end
    del_hook()
    watch_unchanged(HookSource(out_dir=str(tmp_path / "run")))
    trainer(folder, kind=OwnLoss).train()
    hook = get_hook()
    assert hook is not None
    assert hook.step == 2
    trainer(folder).train()  # only the first is watched
    assert hook.step == 2
    hook.close()
    assert "Loss_output_0" in WrittenTrial(str(tmp_path / "run")).names(0)


def test_the_examples_in_the_documentation(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number in range(2):
        given = {
            "Trainer": Trainer,
            "StepwatchCallback": stepwatch.huggingface.StepwatchCallback,
            "model": BertForSequenceClassification(TINY),
            "arguments": TrainingArguments(str(folder), max_steps=1, report_to=[], use_cpu=True),
            "data": examples(8),
        }
        exec(example("huggingface", number), given)
        hook = get_hook()
        assert hook is not None
        hook.close()
        del_hook()
    assert "Loss_output_0" in WrittenTrial("runs/bert-1").names(0)
    recorded = {"Task_input_0", "Task_input_1", "Task_output_0"}
    assert recorded <= WrittenTrial("runs/bert-2").names(0)
