"""Fine-tuning CANINE for classification, compared with transformers' Trainer: python -m benchmarks.train.finetune_step

Both sides have the same weights (of a run exported as by `tokenfree export`), texts, batch size, dropout,
AdamW, clipping, precision and threads. A round is one epoch over the texts by each side in turn, in CPU
seconds. Our time includes reading characters and making arrays; the Trainer's texts are tokenised before. The
Trainer's batches are random texts (its default), or grouped with `group_by_length`. Ours always have texts of
about the same length. Each round also measures our encoder alone: forward and backward over the same arrays,
without head and optimizer.

The Trainer needs accelerate, which is not a dependency of tokenfree: `pip install accelerate`.

    python -m benchmarks.train.finetune_step --data sst/stsa.binary.train
    python -m benchmarks.train.finetune_step --data sst/stsa.binary.train --size base --texts 64 --rounds 3
"""

import argparse
import importlib.util
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers

from benchmarks.timing import Seconds, median, quotient
from tokenfree.core.settings import build, merge
from tokenfree.train.config import FinetuneRecipe
from tokenfree.train.finetune import finetune
from tokenfree.train.huggingface.folders import export_run
from tokenfree.train.loop.finetuning import FinetuneJob, TaskFiles, content_of
from tokenfree.train.loop.step import on_device
from tokenfree.train.loop.trainer import TrainingLoop
from tokenfree.train.runs.run import checkpoint_of
from tokenfree.train.tasks.examples.texts import TextOptions, read_texts
from tokenfree.train.tasks.heads import encode_units
from tokenfree.train.torch_state import matrix_precision

SIZES: dict[str, dict[str, Any]] = {
    "small": {"width": 256, "trunk": {"layers": 4, "heads": 4}},
    "base": {"width": 768, "trunk": {"layers": 12, "heads": 12}},
}
ORDERS = {"random": "random", "by length": "group_by_length"}  # how the Trainer orders texts
DROPOUT, RATE, LENGTH = 0.1, 1e-5, 2048
OURS, THEIRS, ENCODER = "tokenfree", "transformers", "our encoder alone"


def main() -> None:
    options = parse()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = some_texts(options.data, options.texts, folder)
        finetune(recipe_of(options, steps=1), {"train": files}, str(folder / "run"))
        export_run(folder / "run", folder / "exported")
        for order in ORDERS:
            report(order, measure(options, folder, files, order))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, help="a file that the task classification reads")
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--texts", type=int, default=320, help="of a round: the first of the file")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    if options.texts % options.batch:
        parser.error(f"--texts {options.texts}: give a multiple of --batch, {options.batch}")
    if importlib.util.find_spec("accelerate") is None:
        parser.error("the Trainer of transformers needs accelerate; run `pip install accelerate`")
    return options


def some_texts(path: str, count: int, folder: Path) -> str:
    """Write the first examples of a file to another one and return its path."""
    examples = read_texts(path, TextOptions())[:count]
    found = folder / "train.tsv"
    lines = [f"{' '.join(example.text.split())}\t{example.label}\n" for example in examples]
    found.write_text("text\tlabel\n" + "".join(lines), encoding="utf-8")
    return str(found)


def recipe_of(options: argparse.Namespace, *, steps: int) -> FinetuneRecipe:
    mapping = {
        "model": merge(SIZES[options.size], {"trunk": {"dropout": DROPOUT}}),
        "task": {"name": "classification", "dropout": DROPOUT, "representation": "pooled"},  # as in the peer
        "train": {
            "steps": steps, "global_batch": options.batch, "length": LENGTH, "learning_rate": RATE,
            "precision": options.precision, "threads": options.threads,
        },
    }  # fmt: skip
    return build(FinetuneRecipe, mapping, source="benchmark")


def measure(options: argparse.Namespace, folder: Path, files: str, order: str) -> Seconds:
    """Return the CPU seconds of an epoch of each side in each round, without the first round."""
    batches = options.texts // options.batch
    steps = batches * (options.rounds + 1)
    loop = our_loop(recipe_of(options, steps=steps), folder, files)
    model, tokenizer = their_model(folder / "exported")
    largest = difference(loop, model)
    assert largest < 1e-3, f"the models differ: by {largest:.1e} in a logit"
    print(f"largest difference of a logit {largest:.1e}", flush=True)
    seconds: Seconds = {OURS: [], THEIRS: [], ENCODER: []}

    def add(name: str, began: float) -> None:
        seconds[name].append(time.process_time() - began)

    def between(began: float) -> None:
        """Run one of our epochs after one of theirs, which began at CPU time `began`."""
        add(THEIRS, began)
        first, began = loop.step, time.process_time()
        list(loop.steps(first + batches))
        add(OURS, began)
        arrays = [loop.loader.batch(step) for step in range(first, loop.step)]
        began = time.process_time()
        encoder_alone(loop, arrays)
        add(ENCODER, began)

    train_theirs(model, tokenizer, files, options, folder, ORDERS[order], steps, between)
    return {name: values[1:] for name, values in seconds.items()}


def our_loop(recipe: FinetuneRecipe, folder: Path, files: str) -> TrainingLoop[FinetuneRecipe]:
    """Return the loop that `tokenfree finetune` runs, with the weights of the exported run."""
    paths: Any = {"train": files}
    found = TaskFiles(paths, content_of(paths))
    task = recipe.task.fitted(recipe.task.examples("train", files))
    fitted = build(
        FinetuneRecipe, {"model": recipe.model, "task": task, "train": recipe.train}, source="benchmark"
    )
    loop = FinetuneJob(recipe=fitted, files=found, run=str(folder / "ours")).make_loop()
    loop.load_model(checkpoint_of(folder / "run"))
    return loop


def their_model(folder: Path) -> tuple[Any, Any]:
    model = transformers.CanineForSequenceClassification.from_pretrained(folder)
    assert model.config.hidden_dropout_prob == model.config.attention_probs_dropout_prob == DROPOUT
    return model, transformers.CanineTokenizer.from_pretrained(folder)


def encoder_alone(loop: TrainingLoop[FinetuneRecipe], batches: list[Any]) -> None:
    """Run forward and backward of the part that classification needs."""
    loop.model.train()
    for arrays in batches:
        with matrix_precision(loop.recipe.train.precision, loop.device):
            units, _ = encode_units(loop.encoder, on_device(arrays, loop.device))
            total = loop.encoder.pool(units).sum()
        total.backward()
        loop.optimizer.zero_grad()


@torch.no_grad()
def difference(loop: TrainingLoop[FinetuneRecipe], theirs: Any) -> float:
    """Return the largest difference between the logits of both, without dropout, on one batch."""
    batch = on_device(loop.loader.batch(0), loop.device)
    loop.model.eval()
    head: Any = loop.model.head
    ours = head.outputs(loop.encoder, batch)["logits"]
    found = theirs.eval()(batch["codepoints"], attention_mask=batch["mask"].long()).logits
    return (ours - found).abs().max().item()


def train_theirs(
    model: Any,
    tokenizer: Any,
    files: str,
    options: argparse.Namespace,
    folder: Path,
    order: str,
    steps: int,
    between: Callable[[float], None],
) -> None:
    """Train with the Trainer. `between` is called after each epoch with the CPU time at which the epoch began."""
    began, batches = time.process_time(), options.texts // options.batch

    class Rounds(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            nonlocal began
            if state.global_step % batches == 0:
                between(began)
                began = time.process_time()

    examples = read_texts(files, TextOptions())
    labels = sorted({str(example.label) for example in examples})
    data: Any = [
        {**tokenizer(example.text), "labels": labels.index(str(example.label))} for example in examples
    ]
    arguments = transformers.TrainingArguments(
        str(folder / "theirs"), max_steps=steps, per_device_train_batch_size=options.batch, learning_rate=RATE,
        warmup_steps=max(1, steps // 10), weight_decay=0.01, train_sampling_strategy=order,
        bf16=options.precision == "bfloat16", use_cpu=True, dataloader_pin_memory=False, save_strategy="no",
        logging_strategy="no", report_to=[], disable_tqdm=True,
    )  # fmt: skip
    trainer = transformers.Trainer(
        model,
        arguments,
        train_dataset=data,
        data_collator=transformers.DataCollatorWithPadding(tokenizer),
        callbacks=[Rounds()],
    )
    trainer.train()


def report(order: str, seconds: Seconds) -> None:
    print(f"the Trainer's batches: {order}")
    for name, values in seconds.items():
        print(f"  {name:18} {median(values):8.3f} CPU s an epoch, best {min(values):.3f}")
    faster = [theirs / ours for theirs, ours in zip(seconds[THEIRS], seconds[OURS], strict=True)]
    print(f"  ours is {median(faster):.2f} times as fast ({min(faster):.2f} to {max(faster):.2f})")
    print(
        f"  our step takes {quotient(seconds, OURS, ENCODER):.3f} times its encoder's forward and backward",
        flush=True,
    )


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
