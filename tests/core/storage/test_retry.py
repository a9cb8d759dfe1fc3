"""Attempts, their pauses, and when there are no more."""

from collections.abc import Callable
from typing import Any

import pytest

from tokenfree.core import storage as retry_module
from tokenfree.core.storage import retry


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses made, by a clock that they alone move."""
    made: list[float] = []
    monkeypatch.setattr(retry_module.time, "sleep", made.append)
    monkeypatch.setattr(retry_module.time, "monotonic", lambda: sum(made))
    return made


def failing(times: int, error: type[Exception] = OSError) -> Callable[[], str]:
    """Fails so often, then gives "bread"."""
    left = iter(range(times))

    def act() -> str:
        number = next(left, None)
        if number is not None:
            raise error(number)
        return "bread"

    return act


def always(error: Exception) -> bool:
    return True


def test_pauses_double_up_to_the_longest(waits: list[float]) -> None:
    assert retry(failing(5), again=always, pause=1, longest_pause=6) == "bread"
    assert waits == [1, 2, 4, 6, 6]


@pytest.mark.parametrize(
    ("limits", "number"), [({"attempts": 3}, 2), ({"seconds": 7}, 3), ({"seconds": 6.5}, 2)]
)
def test_the_last_error_is_raised(waits: list[float], limits: dict[str, Any], number: int) -> None:
    with pytest.raises(OSError, match=str(number)):
        retry(failing(99), again=always, pause=1, **limits)
    assert len(waits) == number


def test_an_error_that_does_not_pass_is_raised_at_once(waits: list[float]) -> None:
    with pytest.raises(LookupError):
        retry(failing(1, LookupError), again=lambda error: isinstance(error, OSError), pause=1)
    assert waits == []


def test_errors_are_reported_with_the_pause(waits: list[float]) -> None:
    told: list[tuple[str, float]] = []
    retry(failing(2), again=always, pause=1, notice=lambda error, wait: told.append((str(error), wait)))
    assert told == [("0", 1), ("1", 2)]


def test_failures_that_get_further_do_not_count(waits: list[float]) -> None:
    further = iter([False, True, True, False, False])
    with pytest.raises(OSError, match="4"):
        retry(failing(99), again=always, pause=1, attempts=3, progressed=lambda: next(further))
    assert waits == [1, 1, 1, 2]
