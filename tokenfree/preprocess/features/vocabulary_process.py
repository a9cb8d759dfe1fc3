"""Training of a large vocabulary in a process of its own: its log tells how far it is, and it can be ended.

    python -m tokenfree.preprocess.features.vocabulary_process

(started by `train_watched`; pickles come on standard input, settings and seed first, then texts, then None; standard
output gets the model or the error, standard error SentencePiece's log)
"""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Literal

from tokenfree.core.errors import JobError, UserError
from tokenfree.preprocess.config import VocabularyConfig
from tokenfree.preprocess.features.vocabulary import PAD_ID, UNKNOWN_ID, train_vocabulary

WORTH_A_PROCESS = 200_000  # characters: with fewer, training takes hardly longer than the start of a process
_REPORTED = 1_000_000  # characters of the sample between two reports
_SHRINKING, _SLACK = 0.75, 1.1  # SentencePiece's: what is left of the candidates by a round, and of how many they end
_ALPHABET = re.compile(r"Alphabet size=(\d+)")
_ROUND = re.compile(r"EM sub_iter=0 size=(\d+)")
_MERGES = re.compile(r"Merged: .*merges=(\d+)")


@dataclass(frozen=True)
class TrainingProgress:
    """How far the training of a vocabulary is.

    Attributes:
        phase: `sample`: characters are read; `candidates`: pieces are sought, which is not counted; `rounds`: of
            `unigram`, each of which leaves fewer candidates; `merges`: of `bpe`, each of which is a piece.
        done: of the phase.
        total: of the phase; about so many rounds. 0 where it is not counted.
    """

    phase: Literal["sample", "candidates", "rounds", "merges"]
    done: int = 0
    total: int = 0


Report = Callable[[TrainingProgress], None]


def train_watched(texts: Iterable[str], config: VocabularyConfig, seed: int, size: int, report: Report) -> bytes:
    """`train_vocabulary`, whose progress `report` hears of, from threads.

    Args:
        texts: see `train_vocabulary`.
        config: see `train_vocabulary`.
        seed: see `train_vocabulary`.
        size: characters of all texts; a small vocabulary is trained in this process and without a report.
        report: hears of what is new.

    Raises:
        UserError: see `train_vocabulary`.
        JobError: see `train_vocabulary`; or the process was ended.
    """
    if size < WORTH_A_PROCESS:
        return train_vocabulary(texts, config, seed)
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", __name__],  # a module of the working directory is not to be taken for another
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    log = TrainingLog(config, report)
    reader = threading.Thread(target=log.read, args=(process.stderr,), name="vocabulary log", daemon=True)
    reader.start()
    try:
        _send(process.stdin, texts, config, seed, size, report)
        answer = process.stdout.read()
    except BrokenPipeError:  # it ended before it had all texts
        answer = b""
    finally:
        process.kill()  # of no effect where it has answered
        with contextlib.suppress(BrokenPipeError), process:  # closes the pipes
            reader.join()
    if not answer:
        raise JobError(
            f"vocabulary: the process that trains it was ended (the last it said: {log.last or 'nothing'}); was "
            "it out of memory? Lower vocabulary.sample_characters, or run the same command again"
        )
    made = pickle.loads(answer)
    if isinstance(made, Exception):
        raise made
    return made


class TrainingLog:
    """Reads SentencePiece's log and reports what it tells of progress.

    Attributes:
        last: the last line, without what SentencePiece puts before each.
    """

    def __init__(self, config: VocabularyConfig, report: Report) -> None:
        self._config, self._report = config, report
        self._rounds = self._merges = 0
        self.last = ""

    def read(self, log: IO[bytes]) -> None:
        """Read the log to its end."""
        for line in log:
            self.take(line.decode(errors="replace").strip())

    def take(self, line: str) -> None:
        """Take in a line."""
        self.last = line.rpartition("] ")[2] or self.last
        if found := _ALPHABET.search(line):
            meta = len({PAD_ID, UNKNOWN_ID}) + 256 * self._config.byte_fallback
            self._rounds, self._merges = 0, self._config.size - int(found[1]) - meta
            self._report(TrainingProgress("candidates"))
        elif found := _ROUND.search(line):
            left = math.log(int(found[1]) / (_SLACK * self._config.size)) / -math.log(_SHRINKING)
            self._rounds += 1
            self._report(TrainingProgress("rounds", self._rounds, self._rounds - 1 + max(1, math.ceil(left))))
        elif found := _MERGES.search(line):
            self._report(TrainingProgress("merges", int(found[1]), max(int(found[1]), self._merges)))


def _send(
    file: IO[bytes], texts: Iterable[str], config: VocabularyConfig, seed: int, size: int, report: Report
) -> None:
    """Write what the process needs; the pipe stays open, so that its end tells the process of ours."""
    pickle.dump((config, seed), file)
    sent = reported = 0
    for text in texts:
        pickle.dump(text, file)
        sent += len(text)
        if sent - reported >= _REPORTED:
            reported = sent
            report(TrainingProgress("sample", min(sent, size), size))
    pickle.dump(None, file)
    file.flush()


def main() -> None:
    """Read, train and answer; end at once when whoever started this process does."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # while SentencePiece works Python's own handler is not asked
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    texts = sys.stdin.buffer
    config, seed = pickle.load(texts)
    try:
        made: object = train_vocabulary(_received(texts), config, seed, log=True)
    except (UserError, JobError) as error:
        made = error
    with answers:
        pickle.dump(made, answers)


def _received(pipe: IO[bytes]) -> Iterator[str]:
    """The texts, none of which is kept; behind the last nothing comes but the end of whoever sends them."""
    yield from iter(lambda: pickle.load(pipe), None)
    threading.Thread(target=_end_with, args=(pipe,), daemon=True).start()


def _end_with(pipe: IO[bytes]) -> None:
    pipe.read()
    os._exit(1)


if __name__ == "__main__":
    main()
