"""A thread that does things ahead of their use, the newest list of them first."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable


class BackgroundFetcher:
    """Calls `act` with each item of the list given last, in order, in a thread that lives as long as there are any.

    An error of `act` is passed over: whoever needs the item meets it again.
    """

    def __init__(self, act: Callable[[int], object]) -> None:
        self._act = act
        self._items: list[int] = []
        self._lock = threading.Lock()
        self._works = False

    def replace(self, items: Iterable[int]) -> None:
        """Do `items` from now on; what is being done is finished first."""
        with self._lock:
            self._items = list(items)
            if self._items and not self._works:
                self._works = True
                threading.Thread(target=self._work, name="fetch-ahead", daemon=True).start()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._items:
                    self._works = False
                    return
                item = self._items.pop(0)
            with contextlib.suppress(Exception):
                self._act(item)
