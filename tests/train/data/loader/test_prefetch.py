"""Items made ahead by a thread: in order, bounded, with errors where they belong, and an end."""

import threading

import pytest

from tokenfree.train.data.loader import prefetched


def test_items_come_in_order_and_end() -> None:
    with prefetched(lambda index: index * index, 3, 7) as items:
        assert list(items) == [9, 16, 25, 36]
        assert list(items) == []


def test_no_more_than_depth_items_are_made_ahead() -> None:
    made: list[int] = []
    enough = threading.Event()

    def make(index: int) -> int:
        made.append(index)
        if len(made) == 4:  # one handed out, three ahead
            enough.set()
        return index

    with prefetched(make, 0, depth=3) as items:
        assert next(items) == 0
        assert enough.wait(10)
    assert len(made) == 4
    assert not any(thread.name.startswith("prefetch") for thread in threading.enumerate())


def test_an_error_comes_where_its_item_would_have() -> None:
    def make(index: int) -> int:
        if index == 2:
            raise KeyError("broken shard")
        return index

    with prefetched(make, 0) as items:
        assert [next(items), next(items)] == [0, 1]
        with pytest.raises(KeyError, match="broken shard"):
            next(items)
        assert list(items) == []


def test_leaving_early_ends_the_thread() -> None:
    with prefetched(lambda index: index, 0) as items:
        next(items)
    assert not any(thread.name.startswith("prefetch") for thread in threading.enumerate())
