"""Damage that small files may come to, for tests of what reads them."""

import copy
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

WRONG: tuple[Any, ...] = (
    None,
    True,
    -1,
    1e300,
    float("nan"),
    "x",
    [],
    [1],
    {},
    {"a": [1]},
    [[]],
    ["x", None],
)


def put(path: Path, content: bytes | None) -> None:
    """Write a file in place of whatever stands there; None puts a folder there."""
    if path.is_dir():
        shutil.rmtree(path)
    if content is None:
        path.unlink(missing_ok=True)
        path.mkdir()
    else:
        path.write_bytes(content)


def damaged_bytes(content: bytes, *, step: int = 1) -> Iterator[bytes | None]:
    """A folder, other bytes, and the content cut at every `step`-th byte or with the highest bit of it flipped."""
    yield from (
        None,
        b"",
        b"\n",
        b"\xff\xfe\x00",
        b"null\n",
        b"[]\n",
        b"{}\n",
        b"[" * 100_000 + b"\n",
        b"\0" * 64 + b"\n",
    )
    for place in range(0, len(content), step):
        yield content[:place]
        yield content[:place] + bytes([content[place] ^ 0x80]) + content[place + 1 :]


def wrong_values(value: Any) -> Iterator[Any]:
    """Copies of nested values in each of which one value, at any depth, is of another type or gone."""
    yield from WRONG
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(items):
        without = copy.copy(value)
        del without[key]
        yield without
        for wrong in wrong_values(inner):
            changed = copy.copy(value)
            changed[key] = wrong
            yield changed


def wrong_json(content: bytes) -> Iterator[bytes]:
    """See `wrong_values`."""
    yield from (json.dumps(value).encode() + b"\n" for value in wrong_values(json.loads(content)))


def wrong_yaml(content: bytes) -> Iterator[bytes]:
    """See `wrong_values`."""
    yield from (yaml.safe_dump(value).encode() for value in wrong_values(yaml.safe_load(content)))


def wrong_lines(content: bytes) -> Iterator[bytes]:
    """See `wrong_values`, in each line in turn."""
    lines = content.splitlines(keepends=True)
    for number, line in enumerate(lines):
        yield from (b"".join([*lines[:number], wrong, *lines[number + 1 :]]) for wrong in wrong_json(line))
