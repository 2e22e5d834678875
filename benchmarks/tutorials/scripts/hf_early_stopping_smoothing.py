"""A tiny RoBERTa classifies Python help sentences by topic group with Trainer, label smoothing, EarlyStoppingCallback and the best model at the end, in the manner of Hugging Face's text classification guide."""

import os
import pydoc_data.topics
import re
import sys
import tempfile
from collections import Counter

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
from transformers import (
    EarlyStoppingCallback,
    RobertaConfig,
    RobertaForSequenceClassification,
    Trainer,
    TrainingArguments,
    set_seed,
)

torch.set_num_threads(1)
seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
set_seed(seed)

# pieces of 20 words of the four longest pages; which page is a piece from?
pages = sorted(pydoc_data.topics.topics.values(), key=len)[-4:]
pieces = []
for label, page in enumerate(pages):
    words = re.findall(r"[a-z_]+", page.lower())[:9000]
    pieces += [(words[i : i + 20], label) for i in range(0, len(words) - 20, 20)]
counts = Counter(w for words, _ in pieces for w in words)
vocab = {w: i + 4 for i, (w, _) in enumerate(counts.most_common(796))}


def encode(words):
    return [0] + [vocab.get(w, 3) for w in words] + [2]


rows = [{"input_ids": encode(words), "labels": label} for words, label in pieces]
order = np.random.default_rng(seed).permutation(len(rows))
train_rows, eval_rows = [rows[i] for i in order[300:]], [rows[i] for i in order[:300]]
print(
    len(train_rows),
    "pieces for training, most frequent class",
    Counter(r["labels"] for r in eval_rows),
)


def collate(features):
    ids = torch.tensor([f["input_ids"] for f in features])
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "labels": torch.tensor([f["labels"] for f in features]),
    }


def compute_metrics(eval_pred):
    logits, labels = eval_pred
    return {"accuracy": float((logits.argmax(-1) == labels).mean())}


config = RobertaConfig(
    vocab_size=800,
    hidden_size=48,
    num_hidden_layers=1,
    num_attention_heads=4,
    intermediate_size=96,
    max_position_embeddings=32,
    num_labels=4,
    hidden_dropout_prob=0.2,
)
model = RobertaForSequenceClassification(config)
with tempfile.TemporaryDirectory() as output_dir:
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir,
            learning_rate=1e-3,
            lr_scheduler_type="cosine",
            warmup_steps=40,
            per_device_train_batch_size=32,
            per_device_eval_batch_size=300,
            num_train_epochs=10,
            weight_decay=0.05,
            label_smoothing_factor=0.1,
            eval_strategy="epoch",
            save_strategy="epoch",
            save_total_limit=1,
            load_best_model_at_end=True,
            metric_for_best_model="eval_loss",
            greater_is_better=False,
            logging_strategy="epoch",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            seed=seed,
        ),
        train_dataset=train_rows,
        eval_dataset=eval_rows,
        data_collator=collate,
        compute_metrics=compute_metrics,
        callbacks=[EarlyStoppingCallback(early_stopping_patience=2)],
    )
    trainer.train()
    print(trainer.evaluate())
