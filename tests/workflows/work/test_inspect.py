"""A window is drawn with its words and subwords, separated by signs."""

import io

import pytest
from rich.console import Console

from tokenfree.workflows.terminal.progress import console
from tokenfree.workflows.work.inspect import BLOCK, Piece, Window, show_window, subword_pieces

SUBWORDS = [Piece(0, 1, "a"), Piece(2, 3, "<河>"), Piece(4, 6, "bc")]
WINDOW = Window(
    number=1234,
    labels={"document": "enwiki:1:2", "language": "en"},
    characters=99,
    text="a 河\nbc",
    words=[Piece(0, 1, "a"), Piece(2, 3, "河"), Piece(4, 6, "bc")],
    subwords=SUBWORDS,
    masked=f"a {BLOCK}\nbd",
)


PLAIN = ["", "window 1,234  enwiki:1:2 en, 99 characters", "a 河⏎ bc…", "words    a|河|bc",
         "subwords a·<河>·bc", f"masks    a {BLOCK}⏎bd"]  # fmt: skip


def test_a_character_that_the_vocabulary_lacks_is_drawn_as_one_piece() -> None:
    names = ["▁a", "▁", "<0xE6>", "<0xB2>", "<0xB3>", "bc", "d"]
    spans = [(0, 1), (1, 2), (2, 3), (2, 3), (2, 3), (4, 6), (6, 7)]
    found = subword_pieces("a 河\nbc", spans, names)
    assert found == [SUBWORDS[0], Piece(1, 2, " "), *SUBWORDS[1:]]  # what lies past the text is left out


@pytest.mark.parametrize("terminal", [False, True])
def test_signs_separate_the_pieces(terminal: bool) -> None:
    stream = io.StringIO()
    show_window(Console(file=stream, force_terminal=terminal, width=200, highlight=False), WINDOW)
    assert list(map(_without_escapes, stream.getvalue().splitlines())) == PLAIN


def test_what_goes_into_a_pipe_is_never_wrapped(capsys: pytest.CaptureFixture[str]) -> None:
    console().print("word " * 500)
    assert capsys.readouterr().out.count("\n") == 1


def _without_escapes(line: str) -> str:
    parts = line.split("\x1b[")
    return parts[0] + "".join(part.partition("m")[2] for part in parts[1:])
