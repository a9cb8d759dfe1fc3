"""Embeddings of a corpus: `tokenfree embed` compared with a loop over transformers: python -m benchmarks.train.embed

Both have the same weights: a CANINE initialised by transformers, imported as a run. Both are whole jobs, from
the file of texts to a folder that `datasets.load_from_disk` opens, with one thread. The loop sorts the texts
by length, takes 32 at a time, pads them to the longest, and averages the embeddings of their characters. The
longest text of a batch then has no padding, which changes its embedding. The texts are paragraphs of the
interpreter's help, or the lines of FILE.
"""

import argparse
import pydoc_data.topics as topics
import tempfile
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import torch

from benchmarks.timing import in_turn, median, quotient
from benchmarks.train.canine_step import SIZES
from tokenfree.train.huggingface.folders import import_folder
from tokenfree.train.inference.embed import embed

_AT_ONCE = 32
_LONGEST = 2000  # characters
# Largest difference of an element. The longest texts of a batch have no padding, so their embeddings differ.
_SAME = 1e-4


def main() -> None:
    options = parse()
    torch.set_num_threads(1)
    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        model, run, source = folder / "model", folder / "run", folder / "texts.txt"
        draw(options.size, model)
        import_folder(model, run)
        texts = read(options.file, options.texts)
        source.write_text("".join(f"{text}\n" for text in texts))
        made: dict[str, list[Path]] = {"transformers": [], "tokenfree": []}

        def new(name: str) -> Path:
            made[name].append(folder / f"{name}-{len(made[name])}")
            return made[name][-1]

        seconds = in_turn(
            {
                "transformers": lambda: loop(model, source, new("transformers")),
                "tokenfree": lambda: embed(str(run), str(source), str(new("tokenfree"))),
            },
            options.rounds,
        )
        characters = sum(map(len, texts))
        print(
            f"{len(texts)} texts, {characters:,} characters, the longest {max(map(len, texts)):,}; {options.size}"
        )
        for name, values in seconds.items():
            print(
                f"{name:14}{median(values):8.2f} CPU s, {characters / median(values):10,.0f} characters a CPU second"
            )
        print(
            f"ours is {quotient(seconds, 'transformers', 'tokenfree'):.2f} times as fast (median of the rounds)"
        )
        theirs, ours = (
            np.array(datasets.load_from_disk(str(paths[-1]))["vector"][:]) for paths in made.values()
        )
        off = np.abs(theirs - ours).max(axis=1)
        others = off > _SAME
        print(
            f"{(~others).sum()} texts have the same vectors, to {off[~others].max(initial=0):.0e}; not {others.sum()}"
        )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--file", metavar="FILE", help="texts, one a line")
    parser.add_argument("--texts", type=int, default=400, help="as many of them, spaced evenly")
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


def draw(size: str, folder: Path) -> None:
    """Write a CANINE with random weights to a folder of transformers."""
    from transformers import CanineConfig, CanineModel, CanineTokenizer

    torch.manual_seed(0)
    CanineModel(CanineConfig(**SIZES[size]["fields"])).save_pretrained(folder)
    CanineTokenizer().save_pretrained(folder)


def read(file: str | None, count: int) -> list[str]:
    if file is None:
        paragraphs = [part for text in topics.topics.values() for part in text.split("\n\n")]
        lines = [" ".join(part.split()) for part in paragraphs]
    else:
        lines = Path(file).read_text().splitlines()
    lines = [line for line in lines if 0 < len(line) <= _LONGEST]
    return [lines[index * len(lines) // count] for index in range(min(count, len(lines)))]


@torch.no_grad()
def loop(folder: Path, source: Path, output: Path) -> None:
    """Write embeddings with the loop that an expert of transformers would write."""
    from transformers import CanineModel, CanineTokenizer

    model: Any = CanineModel.from_pretrained(folder).eval()  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer = CanineTokenizer.from_pretrained(folder)
    texts = source.read_text().splitlines()
    by_length = sorted(range(len(texts)), key=lambda number: -len(texts[number]))
    vectors = np.empty((len(texts), model.config.hidden_size), np.float32)
    for start in range(0, len(texts), _AT_ONCE):
        numbers = by_length[start : start + _AT_ONCE]
        batch = tokenizer([texts[number] for number in numbers], padding="longest", return_tensors="pt")
        found = model(**batch).last_hidden_state
        lengths = torch.tensor([len(texts[number]) for number in numbers])[:, None]
        positions = torch.arange(found.shape[1])
        inside = (positions > 0) & (positions <= lengths)
        vectors[numbers] = ((found * inside[..., None]).sum(dim=1) / lengths).numpy()
    flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
    datasets.Dataset(pa.table({"text": texts, "vector": flat})).save_to_disk(output)


if __name__ == "__main__":
    main()
