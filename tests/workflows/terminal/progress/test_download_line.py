"""The live line of a download: bytes, rate and time left."""

import pytest

from tests.workflows.terminal.conftest import Terminal
from tokenfree.preprocess.download import Progress
from tokenfree.workflows.terminal import progress
from tokenfree.workflows.terminal.progress import DownloadLine

NAME = "swwiki-20260301-pages-articles-multistream.xml.bz2"


def test_bytes_rate_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    terminal = Terminal()
    line, shown = DownloadLine(terminal), []
    for clock[0], done in ((0.0, 1), (100.0, 3), (104.0, 9)):
        line(Progress(NAME, done * 1_000_000, 90_000_000, done * 1_000_000))
        shown.append(" · ".join(line.shown))
    line.clear()
    assert shown == [
        "swwiki-20260301 · 1.0 of 90.0 MB",
        "swwiki-20260301 · 3.0 of 90.0 MB · 0.0 MB/s · 48:20 left",
        "swwiki-20260301 · 9.0 of 90.0 MB · 0.1 MB/s · 15:36 left",
    ]
    assert not any(terminal.screen())
