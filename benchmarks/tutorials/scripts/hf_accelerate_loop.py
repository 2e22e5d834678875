"""Fine-tunes a tiny BERT with a plain Accelerate loop (gradient accumulation, linear warm-up) on sentences about two topics, in the manner of Accelerate's nlp_example.py."""

import argparse
import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import random

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.optim import AdamW
from torch.utils.data import DataLoader
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup

GOOD = "great lovely superb charming brilliant moving funny fresh clever warm".split()
BAD = "awful boring dull clumsy stale weak tedious messy cold lifeless".split()
NEUTRAL = (
    "the a film movie plot actor scene story music ending was is with and by director this".split()
)
WORDS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "not", "very", *GOOD, *BAD, *NEUTRAL]
INDEX = {w: i for i, w in enumerate(WORDS)}


def make_sentence(rng):
    """A review; a 'not' in front turns the opinion around."""
    label = rng.random() < 0.5
    words = [rng.choice(NEUTRAL) for _ in range(rng.randint(4, 10))]
    for _ in range(rng.randint(1, 2)):
        negated = rng.random() < 0.25
        opinion = rng.choice(GOOD if label != negated else BAD)
        piece = (["not"] if negated else (["very"] if rng.random() < 0.3 else [])) + [opinion]
        at = rng.randint(0, len(words) - 1)
        words[at:at] = piece
    return ["[CLS]", *words, "[SEP]"], int(label)


def get_dataloaders(batch_size, seed):
    rng = random.Random(seed)
    data = [make_sentence(rng) for _ in range(2400)]

    def collate_fn(examples):
        longest = max(len(words) for words, _ in examples)
        ids = [[INDEX[w] for w in words] + [0] * (longest - len(words)) for words, _ in examples]
        ids = torch.tensor(ids)
        return {
            "input_ids": ids,
            "attention_mask": (ids != 0).long(),
            "labels": torch.tensor([label for _, label in examples]),
        }

    return (
        DataLoader(data[:2000], shuffle=True, collate_fn=collate_fn, batch_size=batch_size),
        DataLoader(data[2000:], shuffle=False, collate_fn=collate_fn, batch_size=100),
    )


def training_function(config, args):
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    set_seed(args.seed)
    train_dataloader, eval_dataloader = get_dataloaders(config["batch_size"], args.seed)
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=len(WORDS),
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=128,
            max_position_embeddings=32,
            num_labels=2,
        )
    )
    optimizer = AdamW(params=model.parameters(), lr=config["lr"])
    lr_scheduler = get_linear_schedule_with_warmup(
        optimizer=optimizer,
        num_warmup_steps=30,
        num_training_steps=(len(train_dataloader) * config["num_epochs"]) // 2,
    )
    model, optimizer, train_dataloader, eval_dataloader, lr_scheduler = accelerator.prepare(
        model, optimizer, train_dataloader, eval_dataloader, lr_scheduler
    )
    for epoch in range(config["num_epochs"]):
        model.train()
        total_loss = 0.0
        for batch in train_dataloader:
            with accelerator.accumulate(model):
                outputs = model(**batch)
                loss = outputs.loss
                total_loss += loss.detach().float()
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                lr_scheduler.step()
                optimizer.zero_grad()

        model.eval()
        right = seen = 0
        for batch in eval_dataloader:
            with torch.no_grad():
                outputs = model(**batch)
            predictions, references = accelerator.gather_for_metrics(
                (outputs.logits.argmax(dim=-1), batch["labels"])
            )
            right += (predictions == references).sum().item()
            seen += len(references)
        accelerator.print(
            f"epoch {epoch}: loss {total_loss.item() / len(train_dataloader):.4f} accuracy {right / seen:.4f}"
        )


def main():
    parser = argparse.ArgumentParser(description="Simple example of training script.")
    parser.add_argument("seed", nargs="?", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    training_function({"lr": 1e-3, "num_epochs": 8, "batch_size": 16}, args)


if __name__ == "__main__":
    main()
