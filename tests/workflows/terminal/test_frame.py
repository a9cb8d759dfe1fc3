"""What is drawn in a terminal stays within it and comes in single pieces; where there is none, nothing is drawn."""

import io
import re
from collections.abc import Callable

import pytest

from tests.workflows.terminal.conftest import Terminal
from tokenfree.workflows.terminal.progress import Frame, LiveLine

BACK, UP = "\r\x1b[2K", "\x1b[1A\x1b[2K"


TIME = re.compile(r"^\d\d:\d\d:\d\d  ", re.MULTILINE)  # before each line of a log file


class Parts(LiveLine):
    """A line with a separator of its own."""

    separator = " · "


pytestmark = pytest.mark.usefixtures("resize")


def test_each_frame_is_one_piece_and_goes_back_over_the_lines_of_the_last_one() -> None:
    terminal = Terminal()
    frame = Frame(terminal)
    frame.draw(["one", "two", "three"])
    frame.draw(["four"])
    frame.draw(["five"])
    frame.finish("six, which is the last and stays whole")
    frame.draw(["seven"])
    assert terminal.pieces == [
        f"{BACK}one\ntwo\nthree",
        f"{BACK}{UP}{UP}four",
        f"{BACK}five",
        f"{BACK}six, which is the last and stays whole\n",
        f"{BACK}seven",
    ]


def test_lines_are_cut_to_the_terminal_by_the_width_of_their_characters() -> None:
    terminal = Terminal()
    frame = Frame(terminal)
    frame.draw(["x" * 12, "x" * 13, "step 12/1,000 loss 4.0"])
    assert terminal.getvalue().removeprefix(BACK).split("\n") == ["x" * 12, "x" * 11 + "…", "step 12/1,0…"]
    frame.clear()
    frame.draw(["日本語" * 4])  # two columns each
    assert terminal.pieces[-1].removeprefix(BACK).rstrip("… ") == "日本語日本"


def test_after_a_resize_the_next_frame_stands_below(resize: Callable[[int, int], None]) -> None:
    terminal = Terminal()
    frame = Frame(terminal)
    frame.draw(["one", "two"])
    resize(8, 5)
    assert frame.size == (8, 5)
    frame.draw(["three, cut"])
    frame.draw(["four"])
    assert terminal.pieces[1:] == [f"\n{BACK}three, …", f"{BACK}four"]


def test_markup_is_text() -> None:
    terminal = Terminal()
    Frame(terminal).draw(["[red]a :x:"])
    assert terminal.getvalue() == f"{BACK}[red]a :x:"


def test_a_message_stands_whole_above_what_is_drawn() -> None:
    terminal = Terminal()
    with LiveLine(terminal) as line:
        line.show("step 1")
        line.message("a message that is longer than a line")
    assert terminal.pieces == [
        f"{BACK}step 1",
        f"{BACK}a message that is longer than a line\nstep 1",
        f"{BACK}step 1\n",
    ]


@pytest.mark.parametrize("name", ["NO_COLOR", "FORCE_COLOR"])
def test_wishes_about_colours_do_not_change_lines(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "1")
    for stream, shown in ((Terminal(), f"{BACK}step 1\n"), (io.StringIO(), "step 1\n")):
        with LiveLine(stream) as line:
            line.show("step 1", final=True)
        assert TIME.sub("", stream.getvalue()) == shown


def test_a_terminal_that_cannot_go_back_gets_the_lines_of_a_log_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    terminal = Terminal()
    with LiveLine(terminal, interval=3600) as line:
        line.show("step 1")
        line.message("longer than the width of this terminal")
        line.show("step 2")
    lines = terminal.getvalue().splitlines()
    assert [TIME.sub("", line) for line in lines] == ["longer than the width of this terminal", "step 2"]
    assert all(TIME.match(line) for line in lines)


SHOWN = {80: "a · bb · 日本 · dddd", 19: "a · bb · 日本", 14: "a · bb · 日本", 13: "a · bb", 3: "a"}


@pytest.mark.parametrize(("columns", "shown"), SHOWN.items())
def test_parts_that_do_not_fit_are_left_out_from_the_right(
    resize: Callable[[int, int], None], columns: int, shown: str
) -> None:
    resize(columns, 5)
    terminal = Terminal()
    with Parts(terminal) as line:
        line.show("a", "bb", "日本", "dddd")  # two columns each of the Japanese
    assert terminal.pieces == [f"{BACK}{shown}", f"{BACK}{shown}\n"]


def test_a_log_file_has_all_parts() -> None:
    log = io.StringIO()
    with Parts(log) as line:
        line.show("a" * 50, "b" * 50, final=True)
    assert TIME.sub("", log.getvalue()) == f"{'a' * 50} · {'b' * 50}\n"


def test_clear_leaves_nothing() -> None:
    terminal = Terminal()
    with LiveLine(terminal) as line:
        line.clear()
        line.show("step 1")
        line.clear()
    assert terminal.pieces == [f"{BACK}step 1", BACK]
