"""Files of lines, also those whose writer was killed."""

from tokenfree.core.stored_files import whole_lines


def test_a_torn_last_line_is_left_out() -> None:
    lines = [b'{"geese": 1}\n', b'{"geese": "\xe2\x80\xa8"}\n']
    assert list(whole_lines([*lines, b'{"gee'])) == lines
    assert list(whole_lines([*lines, b"2"])) == lines  # whole JSON, yet perhaps the beginning of 23
