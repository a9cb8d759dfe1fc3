"""Files of JSON lines, also those whose writer was killed."""

import io

import pytest

from tokenfree.core.stored_files import json_lines, whole_lines


def test_a_torn_last_line_is_left_out() -> None:
    lines = io.BytesIO(b'{"geese": 1}\n{"geese": "\xe2\x80\xa8"}\n{"gee')
    assert list(json_lines(lines)) == [{"geese": 1}, {"geese": "\u2028"}]
    lines = io.BytesIO(b'{"geese": 1}\n2')  # whole JSON, yet perhaps the beginning of 23
    assert list(json_lines(lines)) == [{"geese": 1}]
    assert list(whole_lines([b"a\n", b"b"])) == [b"a\n"]


def test_a_broken_line_among_whole_ones_is_no_torn_one() -> None:
    with pytest.raises(ValueError, match="Expecting"):
        list(json_lines([b"{\n", b"1\n"]))
