"""What stands in settings for a value that was refused, so that all that does not hang on it can still be checked."""

from collections.abc import Callable, Iterable
from typing import Any, NoReturn


class NeedsRefusedValue(Exception):
    """Something asked for a value that was refused, and cannot be known."""


class _Refused:
    """Stands for a refused value: whatever is done with it raises `NeedsRefusedValue`."""

    __slots__ = ()

    def __getattr__(self, name: str) -> NoReturn:
        raise NeedsRefusedValue(name)


def _needs_value(*_: Any) -> NoReturn:
    raise NeedsRefusedValue


_UNARY = "bool int float complex index neg pos abs invert round trunc floor ceil len iter next reversed repr str hash"
_BINARY = "lt le eq ne gt ge add sub mul matmul truediv floordiv mod divmod pow and or xor lshift rshift"
for _name in [*_UNARY.split(), *_BINARY.split(), "call", "getitem", "contains", "format"]:
    setattr(_Refused, f"__{_name}__", _needs_value)
    if _name in _BINARY.split()[6:]:
        setattr(_Refused, f"__r{_name}__", _needs_value)

REFUSED: Any = _Refused()


def known(value: Callable[[], Any]) -> Any:
    """What the function gives, or `REFUSED` where that hangs on a refused value."""
    try:
        return value()
    except NeedsRefusedValue:
        return REFUSED


def problems_of(*checks: Callable[[], Iterable[str]]) -> list[str]:
    """The problems that checks tell, each once; a check ends where it asks for a refused value."""
    found: dict[str, None] = {}
    for check in checks:
        try:
            for problem in check():
                found[problem] = None
        except NeedsRefusedValue:
            continue
    return list(found)
