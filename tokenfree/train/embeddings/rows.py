"""Vectors as rows of Arrow, one for each text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tokenfree.train.embeddings.parts import Part, VectorsOf

if TYPE_CHECKING:
    from tokenfree.train.embeddings.vectors import TextVectors

_AT_ONCE = 1000  # rows of a record batch, as in data directories


def schema(vectors: VectorsOf, width: int) -> pa.Schema:
    """The columns: `number` (of the text in the corpus, from 0), `text`, `windows` (in how many it was read), and
    `vector` of a text, else `vectors`, with `word_starts` and `word_ends` (codepoint offsets) those of its words.
    """
    vector = pa.list_(pa.float32(), width)
    own: list[tuple[str, pa.DataType]] = [("vector", vector)] if vectors == "texts" else [("vectors", pa.list_(vector))]
    if vectors == "words":
        own = [("word_starts", pa.list_(pa.int32())), ("word_ends", pa.list_(pa.int32())), *own]
    return pa.schema([("number", pa.int64()), ("text", pa.string()), ("windows", pa.int32()), *own])


def write(path: str, part: Part, found: Sequence[TextVectors], vectors: VectorsOf) -> None:
    """Write the rows of a part of the corpus as an Arrow stream."""
    width = found[0].vectors_ND.shape[1]
    all_ND = np.concatenate([each.vectors_ND for each in found])
    flat = pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(all_ND).reshape(-1)), width)
    offsets = pa.array(np.cumsum([0, *(len(each.vectors_ND) for each in found)]), pa.int32())
    columns: dict[str, pa.Array] = {
        "number": pa.array(range(part.first, part.first + len(part.texts)), pa.int64()),
        "text": pa.array(part.texts, pa.string()),
        "windows": pa.array([each.num_windows for each in found], pa.int32()),
    }
    if vectors == "texts":
        columns["vector"] = flat
    else:
        columns["vectors"] = pa.ListArray.from_arrays(offsets, flat)
        for name, edges in (
            ("word_starts", [each.starts_N for each in found]),
            ("word_ends", [each.ends_N for each in found]),
        ):
            columns[name] = pa.ListArray.from_arrays(offsets, pa.array(np.concatenate(edges), pa.int32()))
    wanted = schema(vectors, width)
    table = pa.Table.from_arrays([columns[name] for name in wanted.names], schema=wanted)
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_stream(sink, wanted) as writer:
        writer.write_table(table, max_chunksize=_AT_ONCE)
