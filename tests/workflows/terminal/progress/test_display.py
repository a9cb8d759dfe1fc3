"""What is drawn in a terminal stays within it; where there is none, nothing is drawn."""

import io
import logging
import re
import sys
from collections.abc import Callable

import pytest

from tests.workflows.terminal.conftest import Terminal
from tokenfree.workflows.terminal.output import PrintableStream
from tokenfree.workflows.terminal.progress import LiveLine

TIME = re.compile(r"^\d\d:\d\d:\d\d  ", re.MULTILINE)  # before each line of a log file


pytestmark = pytest.mark.usefixtures("resize")


def test_a_line_is_drawn_over_the_last_one_and_stays_at_the_end() -> None:
    terminal = Terminal()
    with LiveLine(terminal) as line:
        for number in range(3):
            line.show(f"step {number}")
        line.show("step 3", final=True)
        line.show("step 4")
    assert terminal.screen() == ["step 3", "step 4", ""]


@pytest.mark.parametrize(
    ("columns", "shown"), [(80, "a · bb · 日本 · [red]:x:"), (12, "a · bb · 日…"), (3, "a …")]
)
def test_a_line_is_cut_by_the_width_of_its_characters(
    resize: Callable[[int, int], None], columns: int, shown: str
) -> None:
    resize(columns, 5)
    terminal = Terminal()
    with LiveLine(terminal) as line:
        line.show("a", "bb", "日本", "[red]:x:")  # two columns each of the Japanese
    assert terminal.screen() == [shown, ""]


def test_messages_and_prints_stand_whole_above_the_line(
    resize: Callable[[int, int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", PrintableStream(terminal))
    resize(80, 5)
    with LiveLine() as line:
        line.show("step 1")
        line.message("a message" + 20 * " that is long")
        print("(pid=7) x\x1b[2J", file=sys.stderr)
        logging.StreamHandler(sys.stderr).emit(logging.makeLogRecord({"msg": "logged"}))
        line.show("step 2")
    assert terminal.screen() == ["a message" + 20 * " that is long", "(pid=7) x", "logged", "step 2", ""]


def test_after_an_interrupt_the_line_stays_and_the_streams_are_as_before() -> None:
    terminal, before = Terminal(), sys.stderr

    def interrupted() -> None:
        with LiveLine(terminal) as line:
            line.show("step 1")
            assert sys.stderr is not before
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert sys.stderr is before
    assert terminal.screen() == ["step 1", ""]


@pytest.mark.parametrize("name", ["NO_COLOR", "FORCE_COLOR"])
def test_wishes_about_colours_do_not_change_lines(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "1")
    for stream in (Terminal(), io.StringIO()):
        with LiveLine(stream) as line:
            line.show("step 1", final=True)
        assert TIME.sub("", stream.getvalue()).replace("\r\x1b[2K", "").strip() in ("step 1", "step 1step 1")


def test_a_terminal_that_cannot_go_back_gets_the_lines_of_a_log_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    terminal = Terminal()
    with LiveLine(terminal) as line:
        line.show("step 1")
        line.message("longer than the width of this terminal")
        line.show("step 2")
    lines = terminal.getvalue().splitlines()
    assert [TIME.sub("", line) for line in lines] == ["longer than the width of this terminal", "step 2"]
    assert all(TIME.match(line) for line in lines)


def test_a_log_file_has_all_parts() -> None:
    log = io.StringIO()
    with LiveLine(log) as line:
        line.show("a" * 50, "b" * 50, final=True)
    assert TIME.sub("", log.getvalue()) == f"{'a' * 50} · {'b' * 50}\n"


def test_clear_leaves_nothing() -> None:
    terminal = Terminal()
    with LiveLine(terminal) as line:
        line.clear()
        line.show("step 1")
        line.clear()
    assert terminal.screen() == ["", ""] or terminal.screen() == [""]
