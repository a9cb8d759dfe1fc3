"""Small files that are written atomically and checked when read: typed JSON, JSON lines, Arrow tables and hashes."""

import contextlib
import functools
import hashlib
import io
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import pyarrow as pa
from pydantic import ConfigDict, ValidationError

from tokenfree.core.errors import JobError, UserError
from tokenfree.core.files import TEMPORARY, AnyPath, hash_stream, lock
from tokenfree.core.machine import cores
from tokenfree.core.settings import adapter
from tokenfree.core.settings_errors import refusals
from tokenfree.core.storage import Storage
from tokenfree.core.yaml_text import parse_yaml


def write_table(storage: Storage, name: str, table: pa.Table) -> str:
    """Commit a table as an Arrow file of one batch. Return its SHA-256, in hex."""
    table = table.combine_chunks()
    with (
        storage.new_file(name) as new,
        pa.OSFile(new.path, "wb") as sink,
        pa.ipc.new_file(sink, table.schema) as writer,
    ):
        writer.write_table(table)
    return new.sha256


def read_columns(storage: Storage, name: str, columns: Sequence[str]) -> pa.Table:
    """Return some columns of a file that `write_table` wrote. Raises FileNotFoundError if there is none."""
    with pa.memory_map(storage.path(name)) if storage.is_local else storage.open(name) as source:
        with pa.ipc.open_file(source) as reader:
            fields = [reader.schema.get_field_index(column) for column in columns]
        options = pa.ipc.IpcReadOptions(included_fields=fields)
        with pa.ipc.open_file(source, options=options) as reader:
            return reader.read_all().select(list(columns))


HASH_KEY = "sha256"  # the key of a file's own hash


def hash_of(storage: Storage, name: str) -> str | None:
    """Return the SHA-256 of a file, in hex, or None if there is none."""
    try:
        with storage.open(name) as file:
            return hash_stream(file)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None


def hashes_of(storage: Storage, names: Iterable[str]) -> dict[str, str]:
    return {name: sha256 for name in names if (sha256 := hash_of(storage, name)) is not None}


def check_hash(storage: Storage, name: str, sha256: str, *, source: str, action: str) -> None:
    """Raise JobError, with the fix `action`, unless a file has the hash that the file `source` records."""
    actual_sha256 = hash_of(storage, name)
    if actual_sha256 is None:
        raise JobError(f"{name}: missing; {action}")
    if actual_sha256 != sha256:
        raise JobError(f"{name}: damaged, its SHA-256 is not that of {source}; {action}")


def check_hashes(storage: Storage, files: Mapping[str, str], *, source: str, action: str) -> None:
    """Do the same as `check_hash` for several files, which are hashed in parallel.

    The first wrong one is named.
    """
    check = functools.partial(check_hash, storage, source=source, action=action)
    with ThreadPoolExecutor(cores()) as pool:
        for _ in pool.map(check, files, files.values()):
            pass


HASHES = "hashes.json"  # of a finished folder: the SHA-256 of its files and of itself
_LAST = ("result.json", "sweep.csv")  # without the last file of a run or sweep, a command resumes it
_PUT_BACK = f"put a copy of it back, or remove {HASHES} if you changed it yourself"


def recorded_hashes(storage: Storage) -> dict[str, str]:
    """Return the hashes in `HASHES` by file, or {} if there is no such file.

    Raises JobError if it is damaged.
    """
    with contextlib.suppress(NotADirectoryError):
        sealed = read_sealed(storage, HASHES)
        if sealed is not None and all(map(is_inside, sealed["files"])):
            return sealed["files"]
        if storage.size(HASHES) is not None:
            raise JobError(f"{HASHES}: damaged; put a copy of it back")
    return {}


def check_finished(folder: AnyPath, includes: Callable[[str], bool] = lambda name: True) -> None:
    """Raise JobError, naming the file, if one of a finished run, sweep or export is not as `HASHES` records it.

    Only files whose names `includes` accepts are checked. Nothing is checked in an unfinished folder, or
    without `HASHES`, as in a folder of another program.
    """
    storage = Storage.at(str(folder))
    try:
        recorded = recorded_hashes(storage)
        if all(storage.size(name) is not None for name in recorded.keys() & set(_LAST)):
            files = {name: sha256 for name, sha256 in recorded.items() if includes(name)}
            check_hashes(storage, files, source=HASHES, action=_PUT_BACK)
    except JobError as error:
        raise JobError(f"{storage.url}/{error}") from None


def record_hashes(storage: Storage, files: Mapping[str, str]) -> None:
    write_sealed(storage, HASHES, {"files": dict(files)})
    if storage.is_local:
        # The folder in which the temporary file was written.
        storage.remove(TEMPORARY)


@contextlib.contextmanager
def rewriting(storage: Storage, names: Collection[str]) -> Iterator[None]:
    """Write files of a finished folder again in the block.

    Meanwhile, and after a kill, they have no hashes.
    """
    previous = recorded_hashes(storage)
    with contextlib.ExitStack() as stack:
        # Another command may rewrite other files.
        if previous and storage.is_local:
            stack.enter_context(lock(Path(storage.path("lock")), seconds=60))
            previous = recorded_hashes(storage)
        if not previous.keys().isdisjoint(names):
            record_hashes(storage, {name: sha256 for name, sha256 in previous.items() if name not in names})
        yield
        if previous:
            record_hashes(storage, {**recorded_hashes(storage), **hashes_of(storage, names)})


def is_inside(name: str) -> bool:
    """Return True if a file name from an untrusted source stays below its folder, on every file system."""
    return {"", ".", ".."}.isdisjoint(name.split("/")) and set("\\:\0").isdisjoint(name)


def write_sealed(storage: Storage, name: str, values: Mapping[str, Any]) -> None:
    """Write JSON together with a hash of its values."""
    storage.write_bytes(name, _text(values))


def read_sealed(storage: Storage, name: str) -> dict[str, Any] | None:
    """Return the values of a file that `write_sealed` wrote, or None if it is missing or any bit has changed."""
    try:
        data = storage.read_bytes(name)
        values = json.loads(data)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError, RecursionError):
        return None
    if not isinstance(values, dict):
        return None
    values.pop(HASH_KEY, None)
    return values if data == _text(values) else None


def _text(values: Mapping[str, Any]) -> bytes:
    return _json({**values, HASH_KEY: hashlib.sha256(_json(values)).hexdigest()})


def _json(values: Mapping[str, Any]) -> bytes:
    return (json.dumps(values, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode(
        errors="surrogatepass"
    )


def whole_lines(file: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file opened for reading bytes, with their line ends, except an incomplete last one."""
    for line in file:
        if line.endswith(b"\n"):
            yield line


def cut_torn_line(path: Path) -> None:
    """Cut off an incomplete last line in place, so that the next line does not join it.

    The file may be missing.
    """
    with contextlib.suppress(FileNotFoundError), path.open("r+b") as file:
        file.truncate(file.read().rfind(b"\n") + 1)


T = TypeVar("T")
MAX_CHARACTERS = 200  # of a wrong value in a message
OPEN = ConfigDict(extra="allow")  # for a TypedDict whose other keys are kept unchanged


@dataclass(frozen=True)
class StoredFile(Generic[T]):
    """A kind of file that is read back.

    Its methods raise UserError if the file is damaged or unreadable. Those with a storage raise
    FileNotFoundError if the file is missing.

    Attributes:
        holds: Type of the content (of a line, in JSON lines) for pydantic, such as a TypedDict of the keys to
            read.
        format: Newest supported number of the key `format`, which covers the whole folder; None if files have
            no such key. A file without the key has format 1.
    """

    holds: Any
    action: str
    format: int | None = None

    def json(self, storage: Storage, name: str) -> T:
        return self._read(storage, name, self.from_json)

    def yaml(self, storage: Storage, name: str) -> T:
        return self._read(storage, name, self.from_yaml)

    def json_lines(self, storage: Storage, name: str) -> list[T]:
        """Return the content of each complete line of a file of JSON lines, or [] without a file."""

        def parse(data: bytes, file: str) -> list[T]:
            lines = enumerate(whole_lines(io.BytesIO(data)), 1)
            return [self.from_json(line, f"{file}: line {number}") for number, line in lines]

        try:
            return self._read(storage, name, parse)
        except FileNotFoundError:
            return []

    def from_json(self, data: bytes, file: str) -> T:
        return self._parsed(json.loads, "JSON", data, file)

    def from_yaml(self, data: bytes, file: str) -> T:
        return self._parsed(parse_yaml, "YAML", data, file)

    def damaged(self, file: str, what: str) -> UserError:
        return UserError(f"{file}: damaged, {what}; {self.action}")

    def _read(self, storage: Storage, name: str, parse: Callable[[bytes, str], Any]) -> Any:
        file = f"{storage.url}/{name}"
        try:
            data = storage.read_bytes(name)
        except IsADirectoryError:
            raise self.damaged(file, "a folder stands in its place") from None
        except PermissionError as error:
            raise UserError(
                f"{file}: cannot be read ({error.strerror or error}); change its rights"
            ) from None
        return parse(data, file)

    def _parsed(self, parse: Callable[[bytes], Any], language: str, data: bytes, file: str) -> T:
        try:
            value = parse(data)
        except (ValueError, RecursionError):
            raise self.damaged(file, f"it is no {language}" if data.strip() else "it is empty") from None
        if self.format is not None:
            refuse_later(value, self.format, file)
        try:
            return checked(self.holds, value)
        except ValueError as error:
            raise self.damaged(file, str(error)) from None


def sealed_record(holds: type[T], storage: Storage, name: str) -> T | None:
    """Return what `write_sealed` wrote as the class `holds`, or None if it is missing, damaged or of another kind."""
    try:
        return checked(holds, read_sealed(storage, name))
    except ValueError:
        return None


def refuse_later(value: Any, supported: int, file: str) -> None:
    """Raise UserError if the `format` of a value is later than the supported one, `supported`."""
    version = value.get("format", 1) if isinstance(value, dict) else 1
    if isinstance(version, int) and version > supported:
        raise UserError(
            f"{file}: format {version} is not known here (the newest known: {supported}); install the tokenfree that "
            "wrote it, or a later one"
        )


def checked(holds: Any, value: Any) -> Any:
    """Return a value as the type `holds`.

    Raises ValueError, naming the first wrong key, if it has another type.
    """
    try:
        return adapter(holds).validate_python(value)
    except ValidationError as error:
        wrong = refusals(error.errors(), value)
        text = wrong[0] if len(wrong[0]) <= MAX_CHARACTERS else f"{wrong[0][:MAX_CHARACTERS]}..."
        raise ValueError(text + (f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else "")) from None
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None
