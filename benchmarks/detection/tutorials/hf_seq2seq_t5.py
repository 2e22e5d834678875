"""A tiny T5 learns to write numbers' digits in sorted order with Seq2SeqTrainer and generation at evaluation, in the manner of the Hugging Face translation example."""

import os
import random
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
from transformers import (
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    T5Config,
    T5ForConditionalGeneration,
    set_seed,
)

torch.set_num_threads(1)
seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
set_seed(seed)

# 0 padding, 1 end of sentence, 2 to 11 the digits
max_source_length = max_target_length = 6


def preprocess_function(count, rng):
    rows = []
    for _ in range(count):
        digits = [rng.randint(2, 11) for _ in range(rng.randint(3, 5))]
        rows.append({"input_ids": digits + [1], "labels": sorted(digits) + [1]})
    return rows


def data_collator(features):
    pad = lambda row, value: row + [value] * (6 - len(row))
    return {
        "input_ids": torch.tensor([pad(f["input_ids"], 0) for f in features]),
        "attention_mask": torch.tensor([pad([1] * len(f["input_ids"]), 0) for f in features]),
        "labels": torch.tensor([pad(f["labels"], -100) for f in features]),
    }


def compute_metrics(eval_preds):
    preds, labels = eval_preds
    preds = preds[:, 1:]  # without the start token
    width = max(preds.shape[1], labels.shape[1])
    preds = np.pad(preds, ((0, 0), (0, width - preds.shape[1])))
    labels = np.pad(labels, ((0, 0), (0, width - labels.shape[1])), constant_values=-100)
    preds, labels = np.where(preds < 0, 0, preds), np.where(labels == -100, 0, labels)
    return {
        "exact_match": (preds == labels).all(1).mean(),
        "token_acc": (preds == labels)[labels > 0].mean(),
    }


rng = random.Random(seed)
train_dataset, eval_dataset = preprocess_function(4000, rng), preprocess_function(200, rng)
model = T5ForConditionalGeneration(
    T5Config(
        vocab_size=12,
        d_model=64,
        d_kv=16,
        d_ff=128,
        num_layers=2,
        num_heads=4,
        dropout_rate=0.05,
        decoder_start_token_id=0,
        pad_token_id=0,
        eos_token_id=1,
    )
)

with tempfile.TemporaryDirectory() as output_dir:
    training_args = Seq2SeqTrainingArguments(
        output_dir=output_dir,
        eval_strategy="epoch",
        save_strategy="no",
        learning_rate=2e-3,
        per_device_train_batch_size=64,
        per_device_eval_batch_size=200,
        weight_decay=0.01,
        num_train_epochs=6,
        warmup_steps=30,
        predict_with_generate=True,
        generation_max_length=8,
        logging_steps=60,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        seed=seed,
    )
    trainer = Seq2SeqTrainer(
        model=model,
        args=training_args,
        train_dataset=train_dataset,
        eval_dataset=eval_dataset,
        data_collator=data_collator,
        compute_metrics=compute_metrics,
    )
    trainer.train()
    metrics = trainer.evaluate()
    print({k: round(v, 4) for k, v in metrics.items()})
