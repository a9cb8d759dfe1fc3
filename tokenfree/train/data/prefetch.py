"""A thread that makes items ahead of their use, with a bounded queue."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic, TypeVar

T = TypeVar("T")
_DONE = object()


class Prefetcher(Generic[T]):
    """Iterates over make(start), make(start + 1), ..., each made by a background thread up to `depth` items ahead.

    An error of `make` is raised where its item would have come. `seconds_waited` is the time that the consumer spent
    waiting: the data wait of training. Leaving the `with` block (or `close`) ends the thread.
    """

    def __init__(self, make: Callable[[int], T], start: int, stop: int | None = None, *, depth: int = 2) -> None:
        self.seconds_waited = 0.0
        self._make = make
        self._queue: queue.Queue[Any] = queue.Queue(maxsize=depth)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, args=(start, stop), name="prefetch", daemon=True)
        self._thread.start()

    def __iter__(self) -> Prefetcher[T]:
        return self

    def __next__(self) -> T:
        if self._closed.is_set():
            raise StopIteration
        began = time.perf_counter()
        item, error = self._queue.get()
        self.seconds_waited += time.perf_counter() - began
        if error is not None:
            self.close()
            raise error
        if item is _DONE:
            self.close()
            raise StopIteration
        return item

    def close(self) -> None:
        """End the thread after the item it is making; calling it again does nothing."""
        self._closed.set()
        while self._thread.is_alive():  # it may be waiting for room in the queue
            try:
                self._queue.get_nowait()
            except queue.Empty:
                self._thread.join(timeout=0.01)

    def __enter__(self) -> Prefetcher[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _work(self, start: int, stop: int | None) -> None:
        index = start
        while not self._closed.is_set():
            try:
                entry = (_DONE, None) if index == stop else (self._make(index), None)
            except BaseException as error:  # carried to the consumer, which raises it
                entry = (None, error)
            self._queue.put(entry)
            if entry[0] is _DONE or entry[1] is not None:
                return
            index += 1
