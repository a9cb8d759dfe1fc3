"""The values of settings: nested mappings, dotted keys, a fingerprint, and the code of custom classes."""

import dataclasses
import functools
import hashlib
import itertools
import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from tokenfree.core.errors import logger
from tokenfree.core.files import hash_file


def to_mapping(config: Any) -> dict[str, Any]:
    """Return the nested mapping of plain values from which `build` makes an equal config."""
    return json.loads(json.dumps(dataclasses.asdict(config)))


def fingerprint(value: Any) -> str:
    """Return 32 hex digits that change with any value of a config (or JSON-able mapping), but not with key order."""
    mapping = dataclasses.asdict(value) if dataclasses.is_dataclass(value) else value  # pyright: ignore[reportArgumentType]
    encoded = json.dumps(mapping, sort_keys=True, ensure_ascii=False).encode()
    return hashlib.blake2b(encoded, digest_size=16).hexdigest()


def flatten(mapping: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in mapping.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def is_custom(name: Any) -> bool:
    return isinstance(name, str) and "." in name


def code_hashes(settings: Any) -> dict[str, str]:
    digests = {}
    values = (value if isinstance(value, tuple) else (value,) for value in vars(settings).values())
    for value in itertools.chain.from_iterable(values):
        if dataclasses.is_dataclass(value):
            digests |= code_hashes(value)
            name = getattr(value, "name", "")
            file = getattr(sys.modules.get(type(value).__module__), "__file__", None)
            # Classes of notebooks have no file.
            if is_custom(name) and file:
                digests[name] = hash_file(file)
    return digests


def warn_of_changes(settings: Any, previous_hashes: Mapping[str, str], source: str) -> None:
    now = code_hashes(settings)
    changed = [
        name for name in previous_hashes if now.get(name, previous_hashes[name]) != previous_hashes[name]
    ]
    if changed:
        _warn_once(f"{source}: the code of {', '.join(changed)} has changed since the run began")


@functools.cache
def _warn_once(message: str) -> None:
    """Log a message unless this process has, as a command may read a run's config several times."""
    logger.warning(message)
