"""Files of JSON lines, also those whose writer was killed."""

from pathlib import Path

import pytest

from tokenfree.core.stored_files import json_lines, read_json_lines, whole_lines


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "geese.jsonl"
    path.write_bytes(b'{"geese": 1}\n{"geese": "\xe2\x80\xa8"}\n{"gee')
    assert read_json_lines(path) == [{"geese": 1}, {"geese": "\u2028"}]
    path.write_bytes(b'{"geese": 1}\n2')  # whole JSON, yet perhaps the beginning of 23
    assert read_json_lines(path) == [{"geese": 1}]
    assert read_json_lines(tmp_path / "absent.jsonl") == []
    assert list(whole_lines([b"a\n", b"b"])) == [b"a\n"]


def test_a_broken_line_among_whole_ones_is_no_torn_one() -> None:
    with pytest.raises(ValueError, match="Expecting"):
        list(json_lines([b"{\n", b"1\n"]))
