"""Token classification (names and places) with a tiny DistilBERT and the HF Trainer, in the manner of the Hugging Face course's NER chapter."""

import os
import random
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import (
    DistilBertConfig,
    DistilBertForTokenClassification,
    Trainer,
    TrainingArguments,
    set_seed,
)

torch.set_num_threads(1)
seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
set_seed(seed)

label_names = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
FIRST = "anna peter maria john lena omar jane carlos ivan yuki paris jordan".split()
LAST = "smith miller rossi tanaka novak silva king berg stone rivers".split()
CITY = "london paris tokyo rome cairo lima oslo jordan berlin quito".split()
SECOND = "city valley rivers bay hills".split()
VERBS = "visited left described painted knows likes".split()
FILL = "yesterday often the old a long way with friends in summer and then quickly again".split()
VOCAB = [
    "[PAD]",
    *dict.fromkeys(FIRST + LAST + CITY + SECOND + VERBS + FILL + ["near", "from", "."]),
]
INDEX = {w: i for i, w in enumerate(VOCAB)}


def person(rng):
    if rng.random() < 0.5:
        return [(rng.choice(FIRST), 1), (rng.choice(LAST), 2)]
    return [(rng.choice(FIRST), 1)]


def place(rng):
    if rng.random() < 0.3:
        return [(rng.choice(CITY), 3), (rng.choice(SECOND), 4)]
    return [(rng.choice(CITY), 3)]


def fill(rng):
    return [(rng.choice(FILL), 0) for _ in range(rng.randint(0, 3))]


def sentence(rng):
    parts = fill(rng) + person(rng) + [(rng.choice(VERBS), 0)]
    parts += person(rng) + [("from", 0)] + place(rng) if rng.random() < 0.4 else place(rng)
    parts += fill(rng)
    if rng.random() < 0.4:
        parts += [("near", 0)] + place(rng)
    return parts + [(".", 0)]


class NerDataset(Dataset):
    def __init__(self, count, seed):
        rng = random.Random(seed)
        self.rows = [sentence(rng) for _ in range(count)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return {
            "input_ids": [INDEX[w] for w, _ in self.rows[i]],
            "labels": [t for _, t in self.rows[i]],
        }


def data_collator(features):
    longest = max(len(f["input_ids"]) for f in features)
    pad = lambda row, value: row + [value] * (longest - len(row))
    return {
        "input_ids": torch.tensor([pad(f["input_ids"], 0) for f in features]),
        "attention_mask": torch.tensor([pad([1] * len(f["input_ids"]), 0) for f in features]),
        "labels": torch.tensor([pad(f["labels"], -100) for f in features]),
    }


def compute_metrics(eval_preds):
    logits, labels = eval_preds
    predictions = np.argmax(logits, axis=-1)
    mask = labels != -100
    entity = mask & (labels > 0)
    found = mask & (predictions > 0)
    right = entity & (predictions == labels)
    precision, recall = right.sum() / max(found.sum(), 1), right.sum() / entity.sum()
    return {
        "precision": precision,
        "recall": recall,
        "f1": 2 * precision * recall / max(precision + recall, 1e-9),
        "accuracy": (predictions == labels)[mask].mean(),
    }


model = DistilBertForTokenClassification(
    DistilBertConfig(
        vocab_size=len(VOCAB),
        dim=64,
        n_layers=2,
        n_heads=4,
        hidden_dim=128,
        max_position_embeddings=40,
        id2label=dict(enumerate(label_names)),
        label2id={l: i for i, l in enumerate(label_names)},
    )
)
with tempfile.TemporaryDirectory() as folder:
    args = TrainingArguments(
        folder,
        eval_strategy="epoch",
        save_strategy="no",
        logging_steps=50,
        learning_rate=5e-4,
        num_train_epochs=4,
        weight_decay=0.01,
        per_device_train_batch_size=16,
        per_device_eval_batch_size=100,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        seed=seed,
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=NerDataset(1600, seed),
        eval_dataset=NerDataset(300, seed + 1000),
        data_collator=data_collator,
        compute_metrics=compute_metrics,
    )
    trainer.train()
    print(trainer.evaluate())
