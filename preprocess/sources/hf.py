"""Rows of a Hugging Face dataset as documents: one saved on disk, local files, or a name of the hub."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from preprocess.errors import UserError
from preprocess.sources.records import Split

SCHEME = "hf-dataset:"  # before the names of such inputs, which are no files
MORE_COLUMNS = ("id", "language", "title")
BATCH_ROWS = 1000


class Named(NamedTuple):
    """A dataset as the user names it: `PATH_OR_NAME`, `:CONFIG` and `@SPLIT` where they are given."""

    path: str
    config: str | None
    split: str

    @classmethod
    def parse(cls, text: str) -> Named:
        """Read `NAME[:CONFIG][@SPLIT]`; the split is `train` where none is given. A folder may hold a colon."""
        name, _, split = text.partition("@")
        path, colon, config = name.partition(":") if not os.path.isdir(name) else (name, "", "")
        return cls(path, config if colon else None, split or "train")


def split_dataset(text: str, text_column: str, language: str | None, split_bytes: int) -> list[Split]:
    """The rows of a dataset in ranges of about `split_bytes`.

    Raises:
        UserError: there is no such dataset, split or text column.
    """
    dataset = open_dataset(text)
    columns = dataset.column_names
    if text_column not in columns:
        raise UserError(
            f"hf_dataset: {text} has no column {text_column!r}, only {', '.join(columns)}; name the one with the text: "
            "--text_column NAME"
        )
    num_rows, size = len(dataset), dataset.data.nbytes
    num_parts = min(max(1, math.ceil(size / split_bytes)), num_rows)
    return [
        Split(
            kind="books",
            format="hf",
            inputs=(SCHEME + text,),
            names=(os.path.basename(Named.parse(text).path.rstrip("/")),),
            versions=(dataset._fingerprint,),
            languages=(language or "und",),
            start=num_rows * part // num_parts,
            end=num_rows * (part + 1) // num_parts,
            size=size // num_parts,
            language_given=language is not None,
            text_column=text_column,
        )
        for part in range(num_parts)
    ]


def read_rows(split: Split) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Number and values (`text`, and those of `id`, `language`, `title` that are there) of each row of a split."""
    dataset = open_dataset(split.inputs[0].removeprefix(SCHEME))
    columns = [split.text_column, *(name for name in MORE_COLUMNS if name in dataset.column_names)]
    number = split.start
    for table in _tables(dataset.select(range(split.start, split.end)), columns):
        for row in table.rename_columns(["text", *columns[1:]]).to_pylist():
            yield str(number), row
            number += 1


def hash_dataset(text: str) -> tuple[int, str]:
    """Bytes and SHA-256 of the values of all columns, however the files divide them."""
    dataset = open_dataset(text)
    digest, size = hashlib.sha256(), 0
    for table in _tables(dataset, sorted(dataset.column_names)):
        for column in table.columns:
            for value in pc.cast(column, pa.string()) if not pa.types.is_nested(column.type) else column:
                encoded = repr(value.as_py()).encode(errors="surrogatepass")
                digest.update(len(encoded).to_bytes(8, "big") + encoded)
                size += len(encoded)
    return size, digest.hexdigest()


def open_dataset(text: str) -> Any:
    """The dataset of that name, memory-mapped.

    Raises:
        UserError: it cannot be found or read; the splits that there are are named.
    """
    import datasets
    from datasets.exceptions import DatasetsError

    datasets.disable_progress_bars()
    named = Named.parse(text)
    try:
        if os.path.isfile(os.path.join(named.path, "state.json")):
            return datasets.load_from_disk(named.path)
        if os.path.isfile(os.path.join(named.path, "dataset_dict.json")):
            splits: Any = datasets.load_from_disk(named.path)
            return _split_of(text, splits, named.split)
        return datasets.load_dataset(named.path, named.config, split=named.split)
    except UserError:
        raise
    except (OSError, ValueError, DatasetsError) as error:
        said = str(error).strip().splitlines() or [type(error).__name__]
        remedy = "give a folder, or a name of the hub with its config and split: NAME[:CONFIG][@SPLIT]"
        raise UserError(f"hf_dataset: {text} cannot be read ({said[0]}); {remedy}") from error


def _split_of(text: str, splits: Mapping[str, Any], name: str) -> Any:
    if name not in splits:
        raise UserError(f"hf_dataset: {text} has no split {name!r}, only {', '.join(splits)}; add @SPLIT")
    return splits[name]


def _tables(dataset: Any, columns: list[str]) -> Iterator[pa.Table]:
    return dataset.select_columns(columns).with_format("arrow").iter(batch_size=BATCH_ROWS)
