"""What is printed of a folder of vectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.common.printable import one_line
from tokenfree.preprocess.common.storage import Storage
from tokenfree.train.embeddings.folder import COUNTS, finished
from tokenfree.workflows.terminal.stage_line import counted

_FIRST = 4  # numbers of a vector that are shown


def described(directory: str, *, num_texts: int, width: int) -> dict[str, Any]:
    """What is in a folder of vectors: counts, columns, and its first texts with how many vectors each has.

    Args:
        num_texts: to show, of the first shard.
        width: characters of each.

    Raises:
        UserError: the folder is not complete.
    """
    storage = Storage.at(directory)
    manifest = finished(storage)
    if manifest is None:
        raise UserError(f"{directory}: not complete; run `tokenfree embed` again, which goes on with it")
    with storage.open(manifest["shards"][0]["path"]) as file, pa.ipc.open_stream(file) as stream:
        schema, batch = stream.schema, stream.read_next_batch().slice(0, num_texts)
    return {
        "of": manifest["config"]["vectors"],
        "pooling": manifest["config"]["pooling"],
        "width": manifest["config"]["width"],
        "shards": len(manifest["shards"]),
        **{name: manifest[name] for name in COUNTS},
        "columns": {field.name: str(field.type) for field in schema},
        "sample": [_row(row, width) for row in batch.to_pylist()],
    }


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """The same in words."""
    pooling = f" ({found['pooling']})" if found["pooling"] else ""
    yield f"{counted(found['vectors'], 'vector')} of width {found['width']:,}, of {found['of']}{pooling}"
    yield ", ".join(counted(found[name], name.removesuffix("s")) for name in ("texts", "characters", "shards"))
    for name, kind in found["columns"].items():
        yield f"  {name:<12}{kind}"
    for row in found["sample"]:
        yield ""
        yield one_line(f"{row['number']}  {row['text']}")
        first = " ".join(f"{each:.3f}" for each in row["first"])
        yield f"   {counted(row['vectors'], 'vector')}; the first has 2-norm {row['norm']:.3f}: {first} ..."


def _row(row: Mapping[str, Any], width: int) -> dict[str, Any]:
    vectors = np.array([row["vector"]] if "vector" in row else row["vectors"], np.float32)
    text = row["text"] if len(row["text"]) <= width else row["text"][:width] + "…"
    shown = vectors[0] if len(vectors) else np.zeros(0, np.float32)
    norm = float(np.linalg.norm(shown))
    return {
        "number": row["number"],
        "text": text,
        "vectors": len(vectors),
        "norm": norm,
        "first": shown[:_FIRST].tolist(),
    }
