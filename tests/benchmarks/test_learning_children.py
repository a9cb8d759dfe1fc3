"""Child processes: one thread, a log, the last line of what failed, and SIGTERM in place of Ctrl-C."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from benchmarks.learning.children import call, last_line
from benchmarks.learning.data import prepare
from tokenfree.preprocess.common.errors import JobError, UserError


def program(folder: Path, text: str) -> str:
    """A shell script in place of Python, that gets `-m tokenfree ARGUMENTS`."""
    path = folder / "program"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_what_is_printed_goes_to_the_log_and_numbers_to_their_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        sys, "executable", program(tmp_path, 'echo "$@" with $OMP_NUM_THREADS thread; echo warning >&2')
    )
    log, numbers = tmp_path / "logs" / "log", tmp_path / "numbers"
    call(["evaluate", "run"], log, output=numbers)
    assert numbers.read_text() == "-m tokenfree evaluate run with 1 thread\n"
    assert log.read_text() == "warning\n"
    call(["pretrain"], log)
    assert log.read_text().startswith("warning\n-m tokenfree pretrain with 1 thread\n")


def test_a_failure_says_the_last_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", program(tmp_path, "printf 'step 1\\rstep 2\\n\\n'; exit 2"))
    with pytest.raises(JobError, match=r"tokenfree pretrain ended with 2: step 2 \("):
        call(["pretrain"], tmp_path / "log")


def test_the_last_line_of_an_empty_log(tmp_path: Path) -> None:
    (tmp_path / "log").touch()
    assert last_line(tmp_path / "log") == "it printed nothing"


def test_ctrl_c_waits_for_the_child_to_save_its_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"trap 'sleep 0.2; echo saved; exit 1' TERM; touch {tmp_path}/began; while :; do sleep 0.05; done"
    monkeypatch.setattr(sys, "executable", program(tmp_path, text))

    def interrupt() -> None:
        while not (tmp_path / "began").exists():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        call(["pretrain"], tmp_path / "log")
    thread.join()
    assert (tmp_path / "log").read_text() == "saved\n"


def test_only_data_that_are_absent_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", program(tmp_path, 'echo "$@"'))
    (tmp_path / "en").mkdir()
    (tmp_path / "en" / "_SUCCESS").touch()
    monkeypatch.delenv("TOKENFREE_TEST_DATA", raising=False)
    prepare(tmp_path, ["en"], tmp_path / "logs")
    with pytest.raises(UserError, match="TOKENFREE_TEST_DATA is not set"):
        prepare(tmp_path, ["en", "en-short"], tmp_path / "logs")
    monkeypatch.setenv("TOKENFREE_TEST_DATA", str(tmp_path))
    with pytest.raises(UserError, match=r"no wiki-dumps/enwiki-2016-shortened\.xml\.bz2 in it"):
        prepare(tmp_path, ["en", "en-short"], tmp_path / "logs")
    (tmp_path / "wiki-dumps").mkdir()
    (tmp_path / "wiki-dumps" / "enwiki-2016-shortened.xml.bz2").touch()
    (tmp_path / "books" / "en").mkdir(parents=True)
    prepare(tmp_path, ["en", "en-short"], tmp_path / "logs")
    with pytest.raises(UserError, match=r"no wiki-dumps/jawiki-.* in it"):
        prepare(tmp_path, ["ja-short"], tmp_path / "logs")
    (tmp_path / "wiki-dumps" / "jawiki-20230501-excerpt.xml.bz2").touch()
    prepare(tmp_path, ["ja-short"], tmp_path / "logs")
    assert "--books" not in (tmp_path / "logs" / "data-ja-short.log").read_text()
    assert not (tmp_path / "logs" / "data-en.log").exists()
    assert "--window.max_characters 236 --vocabulary.size 2000" in (tmp_path / "logs" / "data-en-short.log").read_text()
