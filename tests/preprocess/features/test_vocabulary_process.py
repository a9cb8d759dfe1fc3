"""A vocabulary that is trained in a process of its own is the same, tells how far it is, and ends with its parent."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.preprocess.features.test_vocabulary import CORPUS, config_of
from tokenfree.core.errors import JobError, UserError
from tokenfree.preprocess.features import vocabulary_process
from tokenfree.preprocess.features.vocabulary import train_vocabulary
from tokenfree.preprocess.features.vocabulary_process import TrainingLog, TrainingProgress, train_watched

CHARACTERS = sum(map(len, CORPUS))


@pytest.fixture(autouse=True)
def small_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary_process, "WORTH_A_PROCESS", 1)
    monkeypatch.setattr(vocabulary_process, "_REPORTED", 500)


@pytest.mark.parametrize("algorithm", ["unigram", "bpe"])
def test_the_same_bytes_and_progress_on_the_way(algorithm: str) -> None:
    config = config_of(f"{algorithm}-bytes")
    told: list[TrainingProgress] = []
    assert train_watched(iter(CORPUS), config, 0, CHARACTERS, told.append) == train_vocabulary(CORPUS, config, 0)
    phases = list(dict.fromkeys(progress.phase for progress in told))
    assert phases == ["sample", "candidates", *(["rounds"] if algorithm == "unigram" else [])]
    sample = [progress for progress in told if progress.phase == "sample"]
    assert [progress.total for progress in sample] == [CHARACTERS] * len(sample)
    assert [progress.done for progress in sample] == sorted({progress.done for progress in sample})
    assert sample[-1].done > CHARACTERS - 500
    assert all(1 <= progress.done <= progress.total for progress in told if progress.phase == "rounds")


def test_a_small_vocabulary_needs_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary_process, "WORTH_A_PROCESS", CHARACTERS + 1)
    monkeypatch.setattr(subprocess, "Popen", None)
    told: list[TrainingProgress] = []
    config = config_of("unigram-bytes")
    assert train_watched(CORPUS, config, 0, CHARACTERS, told.append) == train_vocabulary(CORPUS, config, 0)
    assert not told


def test_what_the_log_tells() -> None:
    told: list[TrainingProgress] = []
    log = TrainingLog(config_of("unigram-bytes", size=8000), told.append)
    for line in (
        "I0000 00:00:1795367148.936446    7672 trainer_interface.cc:601] Alphabet size=2746",
        "I0000 00:00:1795365934.166980   14190 unigram_model_trainer.cc:903] EM sub_iter=0 size=45510 obj=15.8599",
        "I0000 00:00:1795365934.989650   14190 unigram_model_trainer.cc:903] EM sub_iter=1 size=41483 obj=13.2329",
        "I0000 00:00:1795365937.208988   14190 unigram_model_trainer.cc:903] EM sub_iter=0 size=31101 obj=13.3733",
        "I0000 00:00:1795365943.069863   14190 unigram_model_trainer.cc:903] EM sub_iter=0 size=8700 obj=13.8841",
        "I0000 00:00:1795367169.341301    7988 trainer_interface.cc:601] Alphabet size=3106",
        "I0000 00:00:1795367170.259693    7988 bpe_model_trainer.cc:421] Merged: freq=996 merges=100 piece=▁k",
    ):
        log.take(line)
    assert told == [
        TrainingProgress("candidates"),
        TrainingProgress("rounds", 1, 6),  # as it was: 45510 -> 31101 -> 23306 -> 17477 -> 13107 -> 9830 -> 8800
        TrainingProgress("rounds", 2, 6),
        TrainingProgress("rounds", 3, 3),
        TrainingProgress("candidates"),
        TrainingProgress("merges", 100, 4636),  # 8000 less the alphabet, 256 bytes, padding and unknown
    ]
    assert log.last == "Merged: freq=996 merges=100 piece=▁k"


def test_errors_are_those_of_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"vocabulary\.size: 300 is too small"):
        train_watched(CORPUS, config_of("unigram-bytes", size=300), 0, CHARACTERS, lambda _: None)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(JobError, match=r"Lower vocabulary\.sample_characters"):
        train_watched(CORPUS * 1000, config_of("unigram-bytes"), 0, CHARACTERS, lambda _: None)


def test_it_ends_with_the_process_that_waits_for_it(tmp_path: Path) -> None:
    program = tmp_path / "waits.py"
    program.write_text(
        "import random\n"
        "from tokenfree.preprocess.config import VocabularyConfig\n"
        "from tokenfree.preprocess.features.vocabulary_process import train_watched\n"
        "texts = [' '.join(random.choices(['goose', 'gander', 'gosling'], k=9)) + str(n) for n in range(300_000)]\n"
        "train_watched(texts, VocabularyConfig(), 0, 10**7, lambda progress: print(progress.phase, flush=True))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    parent = subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, text=True, env=environment)
    assert parent.stdout is not None
    while parent.stdout.readline() != "candidates\n":
        assert parent.poll() is None
    child = next(
        int(folder.name)
        for folder in Path("/proc").iterdir()
        if folder.name.isdigit() and f"\nPPid:\t{parent.pid}\n" in (folder / "status").read_text()
    )
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and _lives(child):
        time.sleep(0.05)
    assert not _lives(child)


def _lives(process: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
