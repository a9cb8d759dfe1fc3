"""The live line of preprocessing shows progress, speed and remaining time, also in a resumed job."""

import pytest

from tests.workflows.terminal.conftest import Terminal
from tokenfree.pipelines.progress import Progress
from tokenfree.workflows.terminal import progress as console
from tokenfree.workflows.terminal.progress import StageLine
from tokenfree.workflows.terminal.results import counted


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch, wide: None) -> StageLine:
    """A line whose clock stands at 100 seconds."""
    monkeypatch.setattr(console.time, "monotonic", lambda: 100.0)
    return StageLine(Terminal())


def shown(line: StageLine) -> list[str]:
    """The parts of what stands there."""
    return list(line.shown)


def at(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr(console.time, "monotonic", lambda: seconds)


def test_rate_and_time_left_are_those_of_this_job(line: StageLine, monkeypatch: pytest.MonkeyPatch) -> None:
    line(Progress("read", 10, 40, 100_000_000, 5))  # ten splits were there already
    assert shown(line) == ["read       10 of 40 splits", "0:00", "100.0 MB", "5 characters"]
    at(monkeypatch, 110.0)
    line(Progress("read", 20, 40, 200_000_000, 10))
    assert shown(line) == [
        *("read       20 of 40 splits", "about 0:20 left", "0:10"),
        *("200.0 MB, 10.0 MB/s", "10 characters"),
    ]


def test_stages_follow_one_another_on_lines_of_their_own(
    line: StageLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    line(Progress("read", 0, 1, 0, 0))
    assert shown(line) == ["read       0 of 1 split", "0:00"]
    line(Progress("vocabulary", 1, 1, 1_000_000, 7))
    assert shown(line) == ["vocabulary", "0:00", "7 characters"]
    line(Progress("build", 0, 2, 0, 0))
    at(monkeypatch, 104.0)
    line(Progress("build", 1, 2, 8_000_000, 4))
    assert shown(line) == [
        *("build      1 of 2 shards", "about 0:04 left", "0:04"),
        *("8.0 MB, 2.0 MB/s", "4 characters"),
    ]
    line.close()
    written = line.stream
    assert isinstance(written, Terminal)
    read, vocabulary, build, end = written.screen()
    assert read == "read       1 of 1 split · 0:00 · 1.0 MB · 7 characters"
    assert vocabulary.startswith("vocabulary · 0:00")
    assert build.startswith("build      1 of 2 shards")
    assert end == ""


def test_many_short_documents_are_noted(line: StageLine) -> None:
    line(Progress("read", 0, 1, 1_000_000, 7, 0.97))
    assert shown(line)[-2:] == ["7 characters", "97% too short, see filters.min_characters"]


def test_a_stage_that_ends_between_two_looks_is_whole(line: StageLine) -> None:
    line(Progress("read", 0, 1, 0, 0))
    line(Progress("finish", 1, 1, 5_000_000, 7))
    line.close()
    assert isinstance(line.stream, Terminal)
    assert line.stream.screen() == [
        "read       1 of 1 split · 0:00",
        "finish     1 of 1 shard · 0:00 · 5.0 MB · 7 characters",
        "",
    ]


def test_counted() -> None:
    assert [counted(number, "shard") for number in (0, 1, 2, 1000)] == [
        "0 shards",
        "1 shard",
        "2 shards",
        "1,000 shards",
    ]
