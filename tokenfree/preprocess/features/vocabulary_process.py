"""Train a large vocabulary in a separate process, so that it can be stopped.

Standard input has pickles: settings and seed, then texts, then None. Standard output gets the model or the error.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import IO

from tokenfree.core.errors import JobError, UserError
from tokenfree.preprocess.config import VocabularyConfig
from tokenfree.preprocess.features.vocabulary import train_vocabulary

WORTH_A_PROCESS = 200_000  # characters; with fewer, training takes hardly longer than starting a process


def train_apart(texts: Iterable[str], config: VocabularyConfig, seed: int, size: int) -> bytes:
    """Call `train_vocabulary` in a separate process, or in this one if all texts have few characters (`size`).

    Raises UserError and JobError as `train_vocabulary` does, and JobError if the process was killed.
    """
    if size < WORTH_A_PROCESS:
        return train_vocabulary(texts, config, seed)
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", __name__],  # no module of the working directory may hide another
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        pickle.dump((config, seed), process.stdin)
        for text in texts:
            pickle.dump(text, process.stdin)
        pickle.dump(None, process.stdin)
        process.stdin.flush()  # the pipe stays open, so that its end reports the end of this process
        answer = process.stdout.read()
    except BrokenPipeError:  # the process ended before it had all texts
        answer = b""
    finally:
        process.kill()  # no effect after the process has answered
        with contextlib.suppress(BrokenPipeError), process:  # closes the pipes
            pass
    if not answer:
        raise JobError(
            "vocabulary: the process that trains it was ended; was it out of memory? Lower "
            "vocabulary.sample_characters, or run the same command again"
        )
    made = pickle.loads(answer)
    if isinstance(made, Exception):
        raise made
    return made


def main() -> None:
    """Read, train and answer. End at once when the parent process ends."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python's own handler does not run while SentencePiece works
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    texts = sys.stdin.buffer
    config, seed = pickle.load(texts)
    try:
        made: object = train_vocabulary(_received(texts), config, seed)
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
