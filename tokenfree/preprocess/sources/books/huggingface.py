"""Rows of a Hugging Face dataset as documents: one saved on disk, local files, or a name of the hub."""

from __future__ import annotations

import hashlib
import logging
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.records.input_split import InputSplit
from tokenfree.preprocess.sources.books.table_columns import TableColumns
from tokenfree.preprocess.sources.inputs.files import InputFile

SCHEME = "hf-dataset:"  # before the names of such inputs, which are no files
BATCH_ROWS = 64  # a row may be a whole book


class Named(NamedTuple):
    """A dataset as the user names it: `PATH_OR_NAME`, `:CONFIG` and `@SPLIT` where they are given."""

    path: str
    config: str | None
    split: str | None

    @classmethod
    def parse(cls, text: str) -> Named:
        """Read `NAME[:CONFIG][@SPLIT]`. A folder may hold a colon; it is made absolute, so that all workers find it."""
        name, _, split = text.partition("@")
        path, _, config = (name, "", "") if os.path.isdir(name) else name.partition(":")
        return cls(os.path.abspath(path) if os.path.isdir(path) else path, config or None, split or None)

    @property
    def label(self) -> str:
        """Its name in ids: without the folders above it."""
        return _joined(os.path.basename(self.path.rstrip("/")), self.config, self.split)

    def __str__(self) -> str:
        return _joined(self.path, self.config, self.split)


def list_datasets(texts: Iterable[str]) -> list[InputFile]:
    """The datasets of these names as inputs, each once: `size` is the number of rows, `modified` the fingerprint.

    The rows, because the bytes of a dataset depend on how its files divide it, which is no other content.

    Raises:
        UserError: there is no such dataset or split.
    """
    names = sorted({Named.parse(text) for text in texts}, key=str)
    labels = Counter(named.label for named in names)
    found = []
    for named in names:
        dataset = open_dataset(named)
        label = named.label if labels[named.label] == 1 else str(named)  # of two folders of one name
        found.append(InputFile(SCHEME + str(named), label, len(dataset), dataset._fingerprint))
    return found


def split_dataset(
    file: InputFile, columns: TableColumns, language: str | None, split_bytes: int
) -> Iterator[InputSplit]:
    """The rows of a dataset in ranges of about `split_bytes`.

    Raises:
        UserError: it has no such columns.
    """
    named = Named.parse(file.path.removeprefix(SCHEME))
    dataset = open_dataset(named)
    columns.check(dataset.features.arrow_schema, f"hf_dataset: {named}")
    num_rows, size = file.size, dataset.data.nbytes
    num_parts = min(max(1, math.ceil(size / split_bytes)), num_rows)
    for part in range(num_parts):
        yield InputSplit(
            kind="books",
            format="hf",
            inputs=(file.path,),
            names=(file.name,),
            versions=(file.version,),
            languages=(language or "und",),
            start=num_rows * part // num_parts,
            end=num_rows * (part + 1) // num_parts,
            size=size // num_parts,
            language_given=language is not None,
            text_column=columns.text,
            id_column=columns.id,
            language_column=columns.language,
        )


def read_rows(split: InputSplit) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Number and values (of the columns that are read, as far as they are there) of each row of a split.

    Raises:
        UserError: the dataset is not there any more.
    """
    dataset = open_dataset(Named.parse(split.inputs[0].removeprefix(SCHEME)))
    columns = TableColumns.of(split).among(dataset.column_names)
    number = split.start
    for table in _tables(dataset.select(range(split.start, split.end)), columns):
        for row in table.to_pylist():
            yield str(number), row
            number += 1


def hash_dataset(text: str) -> tuple[int, str]:
    """Bytes and SHA-256 (hex) of the values of all columns, however the files divide them.

    Raises:
        UserError: there is no such dataset.
    """
    dataset = open_dataset(Named.parse(text))
    digest, size = hashlib.sha256(), 0
    for table in _tables(dataset, sorted(dataset.column_names)):
        for column in table.columns:
            for value in column:
                encoded = repr(value.as_py()).encode(errors="surrogatepass")
                digest.update(len(encoded).to_bytes(8, "big") + encoded)
                size += len(encoded)
    return size, digest.hexdigest()


def open_dataset(named: Named) -> Any:
    """The dataset of that name, memory-mapped; its split `train` unless another is named.

    Raises:
        UserError: it cannot be found or read; the splits that there are are named.
    """
    import datasets
    from datasets.exceptions import DatasetsError

    if "://" in str(named):
        raise UserError(f"hf_dataset: {named} is an address; copy it here, or give its *.parquet or *.jsonl to books")
    if os.path.isfile(named.path):
        raise UserError(f"hf_dataset: {named} is a file; give its folder, or give *.parquet, *.jsonl or *.txt to books")
    datasets.disable_progress_bars()
    logging.getLogger("huggingface_hub").setLevel(logging.CRITICAL)  # two lines for each of six attempts
    try:
        if any(os.path.isfile(os.path.join(named.path, name)) for name in ("state.json", "dataset_dict.json")):
            saved: Any = datasets.load_from_disk(named.path)
            return _split_of(named, saved)
        return datasets.load_dataset(named.path, named.config, split=named.split or "train")
    except UserError:
        raise
    except (OSError, ValueError, RuntimeError, ImportError, DatasetsError) as error:
        said = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        where = "" if os.path.isdir(named.path) else "is no folder here, and "
        remedy = "give a folder, or a name of the hub with its config and split: NAME[:CONFIG][@SPLIT]"
        raise UserError(f"hf_dataset: {named} {where}cannot be read ({said}); {remedy}") from error


def _split_of(named: Named, saved: Any) -> Any:
    if not isinstance(saved, Mapping):
        if named.split:
            raise UserError(f"hf_dataset: {named.path} has no splits; leave out @{named.split}")
        return saved
    split = named.split or "train"
    if split not in saved:
        raise UserError(f"hf_dataset: {named.path} has no split {split!r}, only {', '.join(saved)}; add @SPLIT")
    return saved[split]


def _joined(path: str, config: str | None, split: str | None) -> str:
    return path + (f":{config}" if config else "") + (f"@{split}" if split else "")


def _tables(dataset: Any, columns: list[str]) -> Iterator[pa.Table]:
    return dataset.select_columns(columns).with_format("arrow").iter(batch_size=BATCH_ROWS)
