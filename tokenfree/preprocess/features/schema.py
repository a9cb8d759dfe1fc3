"""The Arrow schema of windows (rows of a shard): the contract between preprocessing and training."""

from collections.abc import Iterable

import pyarrow as pa

from tokenfree.preprocess.records.window_columns import COLUMN_TYPES

SCHEMA_VERSION = 1
MAX_WINDOW_CHARACTERS = 16_383  # 4 bytes a character at most, and byte offsets are uint16
MAX_BATCH_ROWS = 1000


def schema(columns: Iterable[str] = tuple(COLUMN_TYPES)) -> pa.Schema:
    """The schema of windows with these columns, none of them nullable, in the order of `COLUMN_TYPES` whatever the
    order given.

    Raises:
        ValueError: there is no such column.
    """
    chosen = set(columns)
    unknown = chosen - COLUMN_TYPES.keys()
    if unknown:
        raise ValueError(f"columns: there is no column {min(unknown)!r} (known: {', '.join(COLUMN_TYPES)})")
    fields = [pa.field(name, kind, nullable=False) for name, kind in COLUMN_TYPES.items() if name in chosen]
    return pa.schema(fields, metadata={"schema_version": str(SCHEMA_VERSION)})
