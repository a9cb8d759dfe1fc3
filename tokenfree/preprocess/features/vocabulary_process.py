"""Train a large vocabulary in a separate process, so that its log shows progress and it can be stopped.

    python -m tokenfree.preprocess.features.vocabulary_process

`train_watched` starts it. Standard input has pickles: settings and seed, then texts, then None. Standard output gets
the model or the error, and standard error SentencePiece's log.
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

WORTH_A_PROCESS = 200_000  # characters; with fewer, training takes hardly longer than starting a process
_REPORTED = 1_000_000  # characters of the sample between two reports
_SHRINKING, _SLACK = 0.75, 1.1  # SentencePiece's: a round keeps this share
_ALPHABET = re.compile(r"Alphabet size=(\d+)")
_ROUND = re.compile(r"EM sub_iter=0 size=(\d+)")
_MERGES = re.compile(r"Merged: .*merges=(\d+)")


@dataclass(frozen=True)
class TrainingProgress:
    """Progress of the training of a vocabulary.

    Attributes:
        phase: `sample` reads characters; `candidates` looks for pieces, without a count; `rounds` of `unigram` remove
            candidates; each of the `merges` of `bpe` adds a piece.
        done: Characters, rounds or merges done in the phase.
        total: Characters, rounds (approximate) or merges of the phase; 0 without a count.
    """

    phase: Literal["sample", "candidates", "rounds", "merges"]
    done: int = 0
    total: int = 0


Report = Callable[[TrainingProgress], None]


def train_watched(texts: Iterable[str], config: VocabularyConfig, seed: int, size: int, report: Report) -> bytes:
    """Call `train_vocabulary` in a process and report its progress.

    Args:
        texts: See `train_vocabulary`.
        config: See `train_vocabulary`.
        seed: See `train_vocabulary`.
        size: Characters of all texts. A small vocabulary is trained in this process, without reports.
        report: Called with the progress, from threads.

    Raises:
        UserError: See `train_vocabulary`.
        JobError: See `train_vocabulary`; or the process was killed.
    """
    if size < WORTH_A_PROCESS:
        return train_vocabulary(texts, config, seed)
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", __name__],  # no module of the working directory may hide another
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
    except BrokenPipeError:  # the process ended before it had all texts
        answer = b""
    finally:
        process.kill()  # no effect after the process has answered
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
    """A reader of SentencePiece's log that reports progress.

    Attributes:
        last: The last line, without SentencePiece's prefix.
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
        """Parse a line."""
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
    """Write what the process needs. The pipe stays open, so that its end reports the end of this process."""
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
    """Read, train and answer. End at once when the parent process ends."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python's own handler does not run while SentencePiece works
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
    """Yield the texts without keeping them. After the last one, the pipe ends only with the parent process."""
    yield from iter(lambda: pickle.load(pipe), None)
    threading.Thread(target=_end_with, args=(pipe,), daemon=True).start()


def _end_with(pipe: IO[bytes]) -> None:
    pipe.read()
    os._exit(1)


if __name__ == "__main__":
    main()
