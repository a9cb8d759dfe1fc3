"""The texts of an analysis: windows of a data directory's validation split, or the lines of a file."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.common.storage import Storage
from tokenfree.train.analyses.subject.model import AnalysedModel, is_data
from tokenfree.train.data.shard_reader import ShardReader
from tokenfree.train.mixture.mixture import Data

SPLIT = "validation"


class SampledTexts(NamedTuple):
    """Texts that a model can read, and how many of them had to be cut for it."""

    texts: list[str]
    num_cut: int


def sample_texts(model: AnalysedModel, data: str | None, num_texts: int) -> SampledTexts:
    """At most `num_texts` texts of `data`, spaced evenly, each as far as `model` reads it.

    Args:
        model: that is to read them.
        data: a data directory, of which the validation split is read, or a file with a text a line; by default the
            data that the model was trained on.
        num_texts: at least 1.

    Raises:
        UserError: there are none, or it is not known where.
    """
    source = source_of(model, data)
    if is_data(source):
        reader = ShardReader(source, SPLIT)
        _, shards, rows = reader.spread(num_texts)
        found = [bytes(row).decode() for row in reader.rows(("text",), shards, rows)["text"]]
    else:
        lines = [line for _, line in read_lines(str(source))]
        found = [lines[index] for index in np.unique(np.linspace(0, len(lines) - 1, num_texts).astype(int))]
    fitting = [model.fitting(text) for text in found]
    cut = sum(len(short) < len(text) for short, text in zip(fitting, found, strict=True))
    texts = [text for text in fitting if text.strip()]
    if not texts:
        raise UserError(f"{source} has no text to analyse; give a data directory or a file with a text a line")
    return SampledTexts(texts, cut)


def source_of(model: AnalysedModel, data: str | None) -> Data:
    """Where the texts are: `data`, or what the model was trained on.

    Raises:
        UserError: neither is there.
    """
    if data is None and model.data is None:
        raise UserError(f"there is no data directory that {model.name} was trained on; name texts with --data PATH")
    return data or model.data or ""


def read_lines(path: str) -> list[tuple[int, str]]:
    """The lines of a UTF-8 file (a path or any fsspec address) that are not blank, with their numbers from 1 on.

    Raises:
        UserError: it cannot be read, is not UTF-8, or has none.
    """
    folder, _, name = path.rpartition("/")
    try:
        content = Storage.at(folder or ("/" if path.startswith("/") else ".")).read_bytes(name)
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file or folder") from None
    except NotADirectoryError:
        raise UserError(f"{path}: a part of this path is a file, not a folder") from None
    except IsADirectoryError:
        raise UserError(
            f"{path} is a folder without a manifest.json, so no data directory; make one with `tokenfree preprocess`, "
            "or give a text file"
        ) from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UserError(f"{path}:{line}: not UTF-8; convert the file") from None
    lines = [(number, line.rstrip("\r")) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise UserError(f"{path} has no text; give a file with a text a line")
    return lines
