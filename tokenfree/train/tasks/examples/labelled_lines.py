"""A label and a text a line (SST, MTL-16), and pairs in three parallel files (SNLI)."""

from __future__ import annotations

import posixpath

from tokenfree.preprocess.common.errors import UserError
from tokenfree.train.tasks.examples.columns import ExampleTable
from tokenfree.train.tasks.examples.files import decode, exists, read_bytes, read_lines, shown

PARALLEL = ("s1", "s2", "labels")  # what the names of the three files begin with: premises, hypotheses, labels


def labelled_lines(path: str, name: str, separator: str, encoding: str | None = None) -> ExampleTable:
    """A label, a separator and a text a line.

    Args:
        path: of the file.
        name: of the file in the keys of examples.
        separator: a space (SST) or a tab (MTL-16).
        encoding: of the file. By default UTF-8; a line of MTL-16 that is not, as in its reviews of films, is
            Windows-1252.

    Raises:
        UserError: the file cannot be read, or a line has no label or no text.
    """
    mixed = separator == "\t" and encoding is None
    lines = _lines_of_two_encodings(path) if mixed else read_lines(path, encoding)
    rows = []
    for number, line in enumerate(lines, 1):
        label, found, text = line.partition(separator)
        if not line.strip():
            continue
        if not found or not label.strip():
            kind = "tab" if separator == "\t" else "space"
            raise UserError(
                f"{path}: line {number}: {shown(line)} is no label, {kind} and text; mend it or give a format"
            )
        rows.append((number, {"label": label, "text": text}))
    return ExampleTable(path, name, ["label", "text"], rows)


def parallel_paths(path: str) -> tuple[str, ...] | None:
    """The three parallel files (premises, hypotheses, labels) to which this path belongs; None if it is of no such.

    Args:
        path: of one of them, such as `snli/labels.dev`, or what they have in common, `snli/dev`.
    """
    folder, file = posixpath.split(path)
    prefix, _, rest = file.partition(".")
    is_one = prefix in PARALLEL and rest != ""
    if not file or (not is_one and exists(path)):
        return None
    paths = tuple(posixpath.join(folder, f"{prefix}.{rest if is_one else file}") for prefix in PARALLEL)
    return paths if sum(map(exists, paths)) > 1 else None  # a table may be called labels.csv


def parallel_lines(paths: tuple[str, ...], name: str, encoding: str | None = None) -> ExampleTable:
    """Line n of each of three files belongs together.

    Args:
        paths: as `parallel_paths` gives them.
        name: of the last file in the keys of examples.
        encoding: of the files; UTF-8 by default.

    Raises:
        UserError: one of them is not there, or has another number of lines.
    """
    premises, hypotheses, labels = (read_lines(one, encoding) for one in paths)
    for one, lines in zip(paths, (premises, hypotheses, labels), strict=True):
        if len(lines) != len(labels):
            said = f"{len(lines)} lines, and {paths[-1]} has {len(labels)}"
            raise UserError(f"{one}: {said}; line n of each file must belong together")
    rows = [
        (number, {"premise": premise, "hypothesis": hypothesis, "label": label})
        for number, (premise, hypothesis, label) in enumerate(zip(premises, hypotheses, labels, strict=True), 1)
    ]
    return ExampleTable(paths[-1], name, ["premise", "hypothesis", "label"], rows)


def _lines_of_two_encodings(path: str) -> list[str]:
    data = read_bytes(path).removeprefix(b"\xef\xbb\xbf")
    lines = data.split(b"\n" if b"\n" in data else b"\r")
    return [
        (line.decode() if _is_utf8(line) else decode(path, line, "cp1252", number)).removesuffix("\r")
        for number, line in enumerate(lines, 1)
    ]


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True
