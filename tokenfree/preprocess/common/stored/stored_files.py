"""Small files that tokenfree wrote and reads back: what each has to hold, and one line for one that holds other things.

A process that was killed leaves no such file half written, but disks, copies and editors do. What is read is therefore
compared with the types that its readers count on, before anything is done with it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import yaml
from pydantic import ConfigDict, TypeAdapter, ValidationError

from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.common.problems import refusals
from tokenfree.preprocess.common.storage import Storage
from tokenfree.preprocess.common.stored.json_lines import whole_lines

T = TypeVar("T")
MOST_CHARACTERS = 200  # of what is told of a wrong value, which may be of any length
OPEN = ConfigDict(extra="allow")  # of a TypedDict: other keys than those that it names stay as they are


@dataclass(frozen=True)
class StoredFile(Generic[T]):
    """A kind of file that is read back.

    Attributes:
        holds: the type of its content (of a line, in files of JSON lines) as pydantic knows types, such as a TypedDict
            of what is read from it.
        remedy: what a user does about a damaged one.
        format: the newest number that its key `format` may have here, which stands for the whole folder that it lies
            in; None where it has no such key. Without one it is of format 1.
    """

    holds: Any
    remedy: str
    format: int | None = None

    def json(self, storage: Storage, name: str) -> T:
        """The content of a JSON file.

        Raises:
            FileNotFoundError: there is none.
            UserError: it is damaged or cannot be read.
        """
        return self._read(storage, name, self.from_json)

    def yaml(self, storage: Storage, name: str) -> T:
        """The content of a YAML file.

        Raises:
            FileNotFoundError: there is none.
            UserError: it is damaged or cannot be read.
        """
        return self._read(storage, name, self.from_yaml)

    def json_lines(self, storage: Storage, name: str) -> list[T]:
        """The content of each whole line of a file of JSON lines; none where there is no file.

        Raises:
            UserError: a whole line is damaged, or the file cannot be read.
        """
        try:
            return self._read(storage, name, lambda data, file: self.from_json_lines(data.splitlines(True), file))
        except FileNotFoundError:
            return []

    def from_json(self, data: bytes, file: str) -> T:
        """The content of a JSON file of these bytes; `file` is what messages call it.

        Raises:
            UserError: it is damaged.
        """
        return self._parsed(json.loads, "JSON", data, file)

    def from_yaml(self, data: bytes, file: str) -> T:
        """The content of a YAML file of these bytes; `file` is what messages call it.

        Raises:
            UserError: it is damaged.
        """
        return self._parsed(_yaml, "YAML", data, file)

    def from_json_lines(self, lines: Iterable[bytes], file: str) -> list[T]:
        """The content of the whole lines of a file of JSON lines; `file` is what messages call it.

        Raises:
            UserError: a whole line is damaged; it is told which.
        """
        return [self.from_json(line, f"{file}: line {number}") for number, line in enumerate(whole_lines(lines), 1)]

    def damaged(self, file: str, what: str) -> UserError:
        """What is told of a file with something wrong in it."""
        return UserError(f"{file}: damaged, {what}; {self.remedy}")

    def _read(self, storage: Storage, name: str, parse: Callable[[bytes, str], Any]) -> Any:
        file = f"{storage.url}/{name}"
        try:
            data = storage.read_bytes(name)
        except IsADirectoryError:
            raise self.damaged(file, "a folder stands in its place") from None
        except PermissionError as error:
            raise UserError(f"{file}: cannot be read ({error.strerror or error}); change its rights") from None
        return parse(data, file)

    def _parsed(self, parse: Callable[[bytes], Any], language: str, data: bytes, file: str) -> T:
        try:
            value = parse(data)
        except Exception:  # YAML's own tags raise whatever their constructors do
            raise self.damaged(file, f"it is no {language}" if data.strip() else "it is empty") from None
        if self.format is not None:
            refuse_later(value, self.format, file)
        try:
            return checked(self.holds, value)
        except ValueError as error:
            raise self.damaged(file, str(error)) from None


def refuse_later(value: Any, known: int, file: str) -> None:
    """See that a file of this content is of no format after the newest one `known`; see `StoredFile.format`.

    Raises:
        UserError: it is.
    """
    found = value.get("format", 1) if isinstance(value, dict) else 1
    if isinstance(found, int) and found > known:
        raise UserError(
            f"{file}: format {found} is not known here (the newest known: {known}); install the tokenfree that wrote "
            "it, or a later one"
        )


def checked(holds: Any, value: Any) -> Any:
    """A value that was read, if it is what `holds` says; see `StoredFile`.

    Raises:
        ValueError: it is not; the message names the first key whose value is wrong.
    """
    try:
        return _adapter(holds).validate_python(value)
    except ValidationError as error:
        wrong = refusals(error.errors(), value)
        text = wrong[0].text
        text = text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."
        raise ValueError(text + (f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else "")) from None
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None


def _yaml(data: bytes) -> Any:
    value = yaml.safe_load(data)
    json.dumps(value, default=str, skipkeys=True)  # fails where a value contains itself, as YAML can have it
    return value


@functools.cache
def _adapter(holds: Any) -> TypeAdapter[Any]:
    return TypeAdapter(holds)
