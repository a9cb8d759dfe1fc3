"""Training a vocabulary in a separate process gives the same model, and ends with its parent."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.preprocess.features.test_vocabulary import CORPUS, config_of
from tokenfree.core.child import Child
from tokenfree.core.errors import JobError, UserError
from tokenfree.preprocess.features import vocabulary
from tokenfree.preprocess.features.vocabulary import train_in_subprocess, train_vocabulary

CHARACTERS = sum(map(len, CORPUS))


@pytest.fixture(autouse=True)
def small_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary, "WORTH_A_PROCESS", 1)


@pytest.mark.parametrize("algorithm", ["unigram", "bpe"])
def test_the_same_bytes(algorithm: str) -> None:
    config = config_of(f"{algorithm}-bytes")
    assert train_in_subprocess(iter(CORPUS), config, 0, CHARACTERS) == train_vocabulary(CORPUS, config, 0)


def test_a_small_vocabulary_needs_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary, "WORTH_A_PROCESS", CHARACTERS + 1)
    monkeypatch.setattr(subprocess, "Popen", None)
    config = config_of("unigram-bytes")
    assert train_in_subprocess(CORPUS, config, 0, CHARACTERS) == train_vocabulary(CORPUS, config, 0)


def test_errors_are_those_of_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"vocabulary\.size: 300 is too small"):
        train_in_subprocess(CORPUS, config_of("unigram-bytes", size=300), 0, CHARACTERS)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(JobError, match=r"Lower vocabulary\.sample_characters"):
        train_in_subprocess(CORPUS * 1000, config_of("unigram-bytes"), 0, CHARACTERS)


def test_it_ends_with_the_process_that_waits_for_it(tmp_path: Path) -> None:
    program = tmp_path / "waits.py"
    program.write_text(
        "import random\n"
        "from tokenfree.preprocess.config import VocabularyConfig\n"
        "from tokenfree.preprocess.features.vocabulary import train_in_subprocess\n"
        "texts = [' '.join(random.choices(['goose', 'gander', 'gosling'], k=9)) + str(n) for n in range(100_000)]\n"
        "train_in_subprocess(texts, VocabularyConfig(), 0, 10**7)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    parent = subprocess.Popen([sys.executable, str(program)], env=environment)
    children = list[int]()
    while not children or _seconds(children[0]) < 2:  # it has read the texts and trains
        assert parent.poll() is None
        time.sleep(0.1)
        children = [
            int(folder.name)
            for folder in Path("/proc").iterdir()
            if folder.name.isdigit() and f"\nPPid:\t{parent.pid}\n" in _status(folder.name)
        ]
    (child,) = children
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and _lives(child):
        time.sleep(0.05)
    assert not _lives(child)


def test_it_ends_quietly_if_the_texts_break_off() -> None:
    with tempfile.TemporaryFile() as errors:
        with Child(
            f"{vocabulary.__name__}:train_on_messages", config_of("unigram-bytes"), 0, errors=errors
        ) as child:
            child.send(["geese"])
            child._connection.close()
            assert child._process.wait(60) == 0
        errors.seek(0)
        assert errors.read() == b""


def _status(process: int | str) -> str:
    try:
        return Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return "\nState:\tZ"


def _seconds(process: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _lives(process: int) -> bool:
    return "\nState:\tZ" not in _status(process)
