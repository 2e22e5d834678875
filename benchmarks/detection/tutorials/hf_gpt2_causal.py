"""Tiny GPT-2 from a config, character level, on Python's help pages with `Trainer`, in the manner of the Hugging Face causal language modelling guide."""

import math
import pydoc_data.topics
import sys
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainingArguments,
    default_data_collator,
    set_seed,
)

torch.set_num_threads(1)
seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
set_seed(seed)

BLOCK = 64
text = "\n".join(page for _, page in sorted(pydoc_data.topics.topics.items())).lower()[:170_000]
alphabet = "abcdefghijklmnopqrstuvwxyz0123456789 .,:;()[]'\"_-=*\n"
char_to_id = {c: i + 1 for i, c in enumerate(alphabet)}  # 0 is for all other characters
ids = torch.tensor([char_to_id.get(c, 0) for c in text])


class BlockDataset(Dataset):
    def __init__(self, ids):
        self.blocks = ids[: len(ids) // BLOCK * BLOCK].view(-1, BLOCK)

    def __len__(self):
        return len(self.blocks)

    def __getitem__(self, i):
        return {"input_ids": self.blocks[i], "labels": self.blocks[i]}


cut = int(0.9 * len(ids))
train_dataset, eval_dataset = BlockDataset(ids[:cut]), BlockDataset(ids[cut:])
config = GPT2Config(
    vocab_size=len(alphabet) + 1,
    n_positions=BLOCK,
    n_embd=64,
    n_layer=2,
    n_head=4,
    bos_token_id=0,
    eos_token_id=0,
)
model = GPT2LMHeadModel(config)
print(f"{model.num_parameters():,} parameters, {len(train_dataset)} blocks")

with tempfile.TemporaryDirectory() as folder:
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=folder,
            num_train_epochs=3,
            per_device_train_batch_size=16,
            per_device_eval_batch_size=64,
            learning_rate=3e-3,
            lr_scheduler_type="cosine",
            warmup_steps=30,
            weight_decay=0.01,
            eval_strategy="epoch",
            save_strategy="no",
            logging_steps=50,
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
            seed=seed,
        ),
        train_dataset=train_dataset,
        eval_dataset=eval_dataset,
        data_collator=default_data_collator,
    )
    trainer.train()
    loss = trainer.evaluate()["eval_loss"]
print(f"eval loss {loss:.4f}, perplexity by character {math.exp(loss):.2f}")
