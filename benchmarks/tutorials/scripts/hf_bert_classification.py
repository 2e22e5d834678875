"""Tiny BERT from a config on made-up restaurant reviews with `Trainer` and evaluation per epoch, in the manner of the Hugging Face course."""

import random
import sys
import tempfile

import numpy as np
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
    set_seed,
)

torch.set_num_threads(1)
seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
set_seed(seed)

THINGS = [
    "food",
    "service",
    "soup",
    "bread",
    "wine",
    "room",
    "music",
    "waiter",
    "pasta",
    "coffee",
    "price",
    "view",
]
GOOD = ["great", "tasty", "friendly", "lovely", "perfect", "fresh", "warm", "quick"]
BAD = ["awful", "cold", "slow", "rude", "bland", "noisy", "dirty", "stale"]
FILLER = [
    "we",
    "came",
    "here",
    "on",
    "friday",
    "with",
    "our",
    "friends",
    "and",
    "then",
    "again",
    "yesterday",
]


def make_review(rng):
    label = rng.randint(0, 1)
    words = rng.choices(FILLER, k=rng.randint(2, 6))
    for part in range(3):
        # the last part may disagree with the verdict
        positive = label if part < 2 or rng.random() < 0.6 else 1 - label
        negated = rng.random() < 0.15
        adjective = rng.choice(GOOD if positive != negated else BAD)
        words += ["the", rng.choice(THINGS), "was"] + (["not"] if negated else []) + [adjective]
    return " ".join(words), label


vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "was", "not", *THINGS, *GOOD, *BAD, *FILLER]
ids = {w: i for i, w in enumerate(vocab)}


def tokenize(text, max_length=28):
    tokens = [2] + [ids.get(w, 1) for w in text.split()][: max_length - 2] + [3]
    padding = max_length - len(tokens)
    return {
        "input_ids": tokens + [0] * padding,
        "attention_mask": [1] * len(tokens) + [0] * padding,
    }


class ReviewDataset(torch.utils.data.Dataset):
    def __init__(self, n, rng):
        self.examples = [make_review(rng) for _ in range(n)]

    def __len__(self):
        return len(self.examples)

    def __getitem__(self, i):
        text, label = self.examples[i]
        item = {k: torch.tensor(v) for k, v in tokenize(text).items()}
        item["labels"] = torch.tensor(label)
        return item


def compute_metrics(eval_pred):
    logits, labels = eval_pred
    return {"accuracy": float((np.argmax(logits, axis=-1) == labels).mean())}


rng = random.Random(seed)
train_dataset, eval_dataset = ReviewDataset(2200, rng), ReviewDataset(400, rng)
config = BertConfig(
    vocab_size=len(vocab),
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=128,
    max_position_embeddings=32,
    num_labels=2,
)
model = BertForSequenceClassification(config)

with tempfile.TemporaryDirectory() as folder:
    args = TrainingArguments(
        output_dir=folder,
        eval_strategy="epoch",
        save_strategy="no",
        num_train_epochs=4,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=100,
        learning_rate=1e-3,
        warmup_steps=30,
        weight_decay=0.01,
        logging_steps=25,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        seed=seed,
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=train_dataset,
        eval_dataset=eval_dataset,
        compute_metrics=compute_metrics,
    )
    trainer.train()
    print("accuracy", trainer.evaluate()["eval_accuracy"])
