"""The problems of a mapping of settings, one line per key, from the errors of pydantic."""

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

Path = tuple[Any, ...]  # keys from the top to a value


def nearest_hint(name: str, names: Sequence[str], prefix: str = "") -> str:
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f" (did you mean {prefix + close[0]!r}?)" if close else f" (known: {', '.join(names)})"


def refusals(
    errors: Iterable[Any], mapping: Any, keys_at: Callable[[Path], Sequence[str]] = lambda path: ()
) -> list[str]:
    """Turn errors of pydantic into problems of the mapping, one line per key, unknown keys first.

    `keys_at` returns the known keys at the place of an unknown one, if they can be listed.
    """
    unknown: list[str] = []
    messages: dict[Path, dict[str, None]] = {}
    inputs: dict[Path, Any] = {}
    for location, error in _flat(errors, ()):
        place = location if error["type"] == "missing" else _place(location, mapping)
        if error["type"] == "unexpected_keyword_argument" and (names := keys_at(place)):
            key = ".".join(map(str, place))
            unknown.append(
                f"there is no key {key!r}{nearest_hint(str(place[-1]), names, key[: key.rfind('.') + 1])}"
            )
            continue
        reported = ("missing", "value_error", "unexpected_keyword_argument")
        if error["type"] not in reported and not isinstance(error["input"], (Mapping, list)):
            inputs[place] = error["input"]
        messages.setdefault(place, {})[_words(error["msg"])] = None
    return unknown + [
        _line(place, " or ".join(texts), inputs.get(place, ...)) for place, texts in messages.items()
    ]


def _flat(errors: Iterable[Any], prefix: Path) -> Iterator[tuple[Path, Any]]:
    for error in errors:
        location = (*prefix, *error["loc"])
        # Of a slot, with the errors of its part.
        if error["type"] == "part":
            yield from _flat(error["ctx"]["errors"], location)
        else:
            yield location, error


def _place(location: Path, mapping: Any) -> Path:
    """Return the part of a location that exists in the mapping.

    The rest are types of a union that pydantic names.
    """
    for reached, step in enumerate(location):
        if isinstance(mapping, list):
            mapping = dict(enumerate(mapping))
        if not isinstance(mapping, Mapping) or step not in mapping:
            return location[:reached]
        mapping = mapping[step]
    return location


def _words(message: str) -> str:
    message = re.sub("^(Input|String|Tuple) should", "should", message.removeprefix("Value error, "))
    message = re.sub(" after validation, not .*", "", message).replace(
        "Unexpected keyword argument", "no such key"
    )
    message = re.sub(", unable to parse .*", "", message).replace("Field required", "is missing")
    message = re.sub("a valid dictionary|a dictionary or an instance of .*", "a mapping", message)
    return message.replace("be a valid tuple", "be a list such as [a, b]")


def _line(place: Path, message: str, value: Any) -> str:
    text = message if value is ... else f"{message}, not {value!r}"
    return ": ".join(filter(None, [".".join(map(str, place)), text]))
