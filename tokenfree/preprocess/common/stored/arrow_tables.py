"""Small Arrow files of one batch, of which a reader takes the columns that it needs."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tokenfree.preprocess.common.storage import Storage

SMALL_BYTES = 1 << 20  # files of a store of this size come in one request, of larger ones a dozen fetch the columns
_AHEAD_BYTES = 1 << 16  # fetched behind what is asked for; usual are 5 MB, in vain where a column is smaller


def write_table(storage: Storage, name: str, table: pa.Table) -> str:
    """Commit a table as an Arrow file of one batch; its SHA-256, in hex.

    Raises:
        UserError: the directory cannot be written to, or is full.
    """
    table = table.combine_chunks()
    with (
        storage.new_file(name) as new,
        pa.OSFile(new.path, "wb") as sink,
        pa.ipc.new_file(sink, table.schema) as writer,
    ):
        writer.write_table(table)
    return new.sha256


def read_columns(storage: Storage, name: str, columns: Sequence[str]) -> pa.Table:
    """Some columns of a file that `write_table` wrote; of one that is local or large no other bytes are read.

    Raises:
        FileNotFoundError: there is none.
    """
    with _opened(storage, name) as source:
        with pa.ipc.open_file(source) as reader:
            fields = [reader.schema.get_field_index(column) for column in columns]
        options = pa.ipc.IpcReadOptions(included_fields=fields)
        with pa.ipc.open_file(source, options=options) as reader:
            return reader.read_all().select(list(columns))


def _opened(storage: Storage, name: str) -> pa.NativeFile:
    if storage.is_local:
        return pa.memory_map(storage.path(name))
    if (storage.size(name) or 0) <= SMALL_BYTES:
        return pa.BufferReader(storage.read_bytes(name))
    return pa.PythonFile(storage.fs.open(storage.path(name), "rb", block_size=_AHEAD_BYTES), "r")
