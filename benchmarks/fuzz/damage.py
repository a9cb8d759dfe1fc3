"""Damages files: bits flipped, ends cut off, values of JSON and YAML exchanged, names gone. It tells what it did."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

SMALL = 200_000  # bytes; values are exchanged in files up to this size
TORN = b'{"step": 3, "lo'  # a line that a kill has cut off
VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 10**30, 1e308, float("nan"), "", "x", "../x", "\x1b[31mred", "a\nb", "\u202eabc", [], {},
    [[]], {"a": {"b": []}}, "0", "1e309",
)  # fmt: skip


def damage_file(path: Path, draw: random.Random) -> str:
    """Damage one file, which is then other than it was; what was done, in words."""
    before = path.read_bytes()
    for _ in range(20):
        kind = draw.choice(_KINDS_OF_VALUES if _has_values(path, before) and draw.random() < 0.5 else _KINDS)
        told = kind(path, before, draw)
        if not path.is_file() or path.read_bytes() != before:
            return f"{path.name}: {told}"
    path.unlink()
    return f"{path.name}: removed"


def files_in(folder: Path) -> list[Path]:
    """All files of a folder that can be damaged, in order; locks, which hold nothing, are left out."""
    return sorted(file for file in folder.rglob("*") if file.is_file() and file.stem != "lock")


def _flip_bit(path: Path, before: bytes, draw: random.Random) -> str:
    if not before:
        return _append(path, before, draw)
    place, bit = _place(before, draw), draw.randrange(8)
    changed = bytearray(before)
    changed[place] ^= 1 << bit
    path.write_bytes(changed)
    return f"bit {bit} of byte {place} of {len(before)} flipped"


def _zero(path: Path, before: bytes, draw: random.Random) -> str:
    start = _place(before, draw) if before else 0
    length = min(len(before) - start, draw.choice((1, 16, 512, 4096)))
    path.write_bytes(before[:start] + bytes(length) + before[start + length :])
    return f"{length} bytes from {start} of {len(before)} made zero"


def _cut(path: Path, before: bytes, draw: random.Random) -> str:
    keep = draw.choice((draw.randint(0, len(before)), max(0, len(before) - draw.randint(1, 40))))
    path.write_bytes(before[:keep])
    return f"cut to {keep} of {len(before)} bytes"


def _empty(path: Path, before: bytes, draw: random.Random) -> str:
    path.write_bytes(b"")
    return f"emptied of its {len(before)} bytes"


def _remove(path: Path, before: bytes, draw: random.Random) -> str:
    path.unlink()
    return "removed"


def _append(path: Path, before: bytes, draw: random.Random) -> str:
    more = draw.choice((b"\0" * 10, b"{", b"\n", TORN, b"\xff\xfe", bytes(draw.randbytes(20))))
    path.write_bytes(before + more)
    return f"{more!r} appended"


def _make_folder(path: Path, before: bytes, draw: random.Random) -> str:
    path.unlink()
    path.mkdir()
    return "a folder put in its place"


def _take_another(path: Path, before: bytes, draw: random.Random) -> str:
    other = draw.choice(files_in(path.parent))
    if other != path:
        shutil.copyfile(other, path)
    return f"overwritten with {other.name}"


def _double_line(path: Path, before: bytes, draw: random.Random) -> str:
    lines = before.splitlines(keepends=True) or [b"\n"]
    number = draw.randrange(len(lines))
    lines[number:number] = [lines[number]]
    path.write_bytes(b"".join(lines))
    return f"line {number + 1} doubled"


def _drop_line(path: Path, before: bytes, draw: random.Random) -> str:
    lines = before.splitlines(keepends=True)
    if lines:
        del lines[draw.randrange(len(lines))]
    path.write_bytes(b"".join(lines))
    return "a line dropped"


def _change_value(path: Path, before: bytes, draw: random.Random) -> str:
    """Another value at some place of a JSON or YAML file; of JSON lines, in one of them."""
    value = draw.choice(VALUES)
    if path.suffix == ".jsonl":
        lines = before.splitlines() or [b"{}"]
        number = draw.randrange(len(lines))
        changed, place = exchange(json.loads(lines[number]), value, draw)
        lines[number] = json.dumps(changed).encode()
        path.write_bytes(b"\n".join(lines) + b"\n")
        return f"line {number + 1}: {place} made {value!r}"
    read: Callable[[bytes], Any] = json.loads if path.suffix == ".json" else yaml.safe_load
    changed, place = exchange(read(before), value, draw)
    text = json.dumps(changed) if path.suffix == ".json" else yaml.safe_dump(changed)
    path.write_text(text, encoding="utf-8")
    return f"{place} made {value!r}"


def exchange(tree: Any, value: Any, draw: random.Random) -> tuple[Any, str]:
    """`tree` with `value` at some place of it, or without that place, or with it under an unknown key; and the place.

    Every level is as likely as the next: the values that matter most are few and lie near the top.
    """
    if isinstance(tree, dict) and tree and draw.random() < 0.85:
        key = draw.choice(list(tree))
        if draw.random() < 0.08:
            return {k: v for k, v in tree.items() if k != key}, f"{key} (left out), else"
        if draw.random() < 0.05:
            return {**tree, "unknown": value}, "unknown"
        inner, place = exchange(tree[key], value, draw)
        return {**tree, key: inner}, f"{key}.{place}" if place else str(key)
    if isinstance(tree, list) and tree and draw.random() < 0.85:
        number = draw.randrange(len(tree))
        inner, place = exchange(tree[number], value, draw)
        return [*tree[:number], inner, *tree[number + 1 :]], f"{number}.{place}" if place else str(number)
    return value, ""


def _place(before: bytes, draw: random.Random) -> int:
    """Any byte, or one near the beginning or the end, where formats have their own."""
    near = min(len(before), 256)
    return draw.choice((draw.randrange(len(before)), draw.randrange(near), len(before) - 1 - draw.randrange(near)))


def _has_values(path: Path, before: bytes) -> bool:
    if path.suffix not in (".json", ".jsonl", ".yaml") or len(before) > SMALL:
        return False
    try:
        texts = before.splitlines() if path.suffix == ".jsonl" else [before]
        return all((yaml.safe_load if path.suffix == ".yaml" else json.loads)(text) is not None for text in texts)
    except (ValueError, yaml.YAMLError):
        return False


_Kind = Callable[[Path, bytes, random.Random], str]
_KINDS: Sequence[_Kind] = (
    _flip_bit, _flip_bit, _flip_bit, _zero, _cut, _cut, _empty, _remove, _append, _make_folder, _take_another,
)  # fmt: skip
_KINDS_OF_VALUES: Sequence[_Kind] = (_change_value, _change_value, _change_value, _double_line, _drop_line)
