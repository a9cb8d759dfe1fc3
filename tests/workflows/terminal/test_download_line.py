"""The live line of a download: bytes, rate and time left."""

from types import SimpleNamespace

import pytest

from tests.workflows.terminal.conftest import Terminal
from tokenfree.preprocess.download import Progress
from tokenfree.workflows.terminal import progress as download_line
from tokenfree.workflows.terminal import progress as live_line

NAME = "swwiki-20260301-pages-articles-multistream.xml.bz2"


def test_bytes_rate_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    for module in (download_line, live_line):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    terminal = Terminal()
    line = download_line.DownloadLine(terminal)
    for clock[0], done in ((0.0, 1), (100.0, 3), (100.05, 4), (104.0, 9)):
        line(Progress(NAME, done * 1_000_000, 90_000_000, done * 1_000_000))
    line.clear()
    shown = terminal.getvalue().split("\r\x1b[2K")[1:]
    assert shown == [
        "swwiki-20260301 · 1.0 of 90.0 MB",
        "swwiki-20260301 · 3.0 of 90.0 MB · 0.0 MB/s · 48:20 left",
        "swwiki-20260301 · 9.0 of 90.0 MB · 0.1 MB/s · 15:36 left",
        "",
    ]
