"""A window is drawn with its words and subwords: in colours, or separated by signs where there are none."""

import io

import pytest
from rich.console import Console

from tokenfree.workflows.terminal.inspection import BLOCK, Piece, Window, show_window, subword_pieces
from tokenfree.workflows.terminal.progress import console

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


def drawn(*, terminal: bool) -> list[str]:
    """Its lines."""
    stream = io.StringIO()
    show_window(Console(file=stream, force_terminal=terminal, width=200, highlight=False), WINDOW)
    return stream.getvalue().splitlines()


PLAIN = ["", "window 1,234  enwiki:1:2 en, 99 characters", "a 河⏎ bc…", "words    a|河|bc",
         "subwords a·<河>·bc", f"masks    a {BLOCK}⏎bd"]  # fmt: skip


def test_a_character_that_the_vocabulary_lacks_is_drawn_as_one_piece() -> None:
    names = ["▁a", "▁", "<0xE6>", "<0xB2>", "<0xB3>", "bc", "d"]
    spans = [(0, 1), (1, 2), (2, 3), (2, 3), (2, 3), (4, 6), (6, 7)]
    found = subword_pieces("a 河\nbc", spans, names)
    assert found == [SUBWORDS[0], Piece(1, 2, " "), *SUBWORDS[1:]]  # what goes on past the text is left out


def test_in_a_pipe_signs_part_the_pieces() -> None:
    assert drawn(terminal=False) == PLAIN


def test_without_colours_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    lines = drawn(terminal=True)
    assert "a|河|bc" in _without_escapes(lines[3])
    assert "a·<河>·bc" in _without_escapes(lines[4])


def test_colours_alternate_and_what_is_between_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    lines = drawn(terminal=True)
    assert _without_escapes(lines[3]) == "words    a 河⏎ bc"
    assert "\x1b[36ma" in lines[3]
    assert "\x1b[33m河" in lines[3]


def test_what_goes_into_a_pipe_is_never_wrapped(capsys: pytest.CaptureFixture[str]) -> None:
    console().print("word " * 500)
    assert capsys.readouterr().out.count("\n") == 1


def _without_escapes(line: str) -> str:
    parts = line.split("\x1b[")
    return parts[0] + "".join(part.partition("m")[2] for part in parts[1:])
