"""A thread that does things ahead of their use, the newest list of them first."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable


class BackgroundFetcher:
    """Calls `act` with each item of the list given last, in order, in a thread that ends with the process.

    An error of `act` is passed over: whoever needs the item meets it again.
    """

    def __init__(self, act: Callable[[int], object]) -> None:
        self._act = act
        self._items: list[int] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def replace(self, items: Iterable[int]) -> None:
        """Do `items` from now on; what is being done is finished first."""
        with self._changed:
            self._items = list(items)
            self._changed.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="fetch-ahead", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._items)
                item = self._items.pop(0)
            with contextlib.suppress(Exception):
                self._act(item)
