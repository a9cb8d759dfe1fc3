"""What is wrong with a mapping of settings, in words: unknown keys, and what pydantic refuses."""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

Path = tuple[Any, ...]  # keys from the top to a value


class Problem(NamedTuple):
    """A problem of settings: the value to be left out, if there is one, and a line for the user."""

    path: Path | None
    text: str


class Nearest:
    """The known name that is most like a name, if one is, and the hint that tells it or all that are known."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.name = next(iter(difflib.get_close_matches(name, known, n=1, cutoff=0.5)), None)
        self.hint = f" (known: {', '.join(known)})" if self.name is None else f" (did you mean {self.name!r}?)"


def refusals(errors: Iterable[Any], mapping: Any) -> list[Problem]:
    """The errors of pydantic as problems of the mapping, one for each place of it."""
    paths: dict[Path, Path | None] = {}
    messages: dict[Path, dict[str, None]] = {}
    inputs: dict[Path, Any] = {}
    for location, error in _flat(errors, ()):
        place, path = _place(location, mapping)
        if error["type"] == "missing":
            place, path = location, None
        elif error["type"] != "value_error" and not isinstance(error["input"], (Mapping, list)):
            inputs[place] = error["input"]
        paths[place] = path or None
        messages.setdefault(place, {})[_words(error["msg"])] = None
    return [
        Problem(path, _line(place, " or ".join(messages[place]), inputs.get(place, ...)))
        for place, path in paths.items()
    ]


def _flat(errors: Iterable[Any], prefix: Path) -> Iterator[tuple[Path, Any]]:
    for error in errors:
        location = (*prefix, *error["loc"])
        if error["type"] == "part":  # of a slot, with the errors of the part that it holds
            yield from _flat(error["ctx"]["errors"], location)
        else:
            yield location, error


def _place(location: Path, mapping: Any) -> tuple[Path, Path]:
    """How far a location leads into the mapping: in all, and by keys; after that pydantic names types of a union."""
    reached, by_keys = 0, 0
    for step in location:
        if isinstance(mapping, Mapping) and step in mapping:
            by_keys += by_keys == reached
        elif not (isinstance(mapping, list) and isinstance(step, int) and step < len(mapping)):
            break
        mapping = mapping[step]
        reached += 1
    return location[:reached], location[:by_keys]


def _words(message: str) -> str:
    message = re.sub("^(Input|String) should", "should", message.removeprefix("Value error, "))
    message = re.sub(", unable to parse .*", "", message).replace("Field required", "is missing")
    message = re.sub("a valid dictionary|a dictionary or an instance of .*", "a mapping", message)
    return message.replace("be a valid tuple", "be a list such as [a, b]")


def _line(place: Path, message: str, given: Any) -> str:
    text = message if given is ... else f"{message}, not {given!r}"
    return ": ".join(filter(None, [".".join(map(str, place)), text]))
