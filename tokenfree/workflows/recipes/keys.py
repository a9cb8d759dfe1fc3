"""The keys of a recipe: each with its type and range, its default, and what it means.

The types, ranges and defaults are those of the settings classes, the meanings those of their docstrings, under
`Attributes:`.
"""

import dataclasses
import difflib
import re
import types
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.common.settings import slot_of

_WORDS = {int: "int", float: "float", bool: "true | false", str: "text", Any: "anything", type(None): "null"}
_SIGNS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<", "multiple_of": "a multiple of"}
_FACTS = (*_SIGNS, "min_length", "max_length", "pattern")


@dataclasses.dataclass(frozen=True)
class Key:
    """A key of a recipe."""

    name: str  # dotted
    type: str  # with its range, such as `int, 1 to 16`
    default: str | None  # as in YAML; None where a value must be given
    meaning: str


@dataclasses.dataclass(frozen=True)
class KeyGroup:
    """Keys that stand together: those of a mapping of the recipe, or those of one part that a slot may hold."""

    name: str  # the dotted key of the mapping; empty at the top
    part: str | None  # that the slot holds where these keys are known
    meaning: str
    keys: tuple[Key, ...]


def listed(settings: type) -> list[KeyGroup]:
    """All keys of a recipe that builds the settings class, in the order of the class; parts may have none."""
    return list(_groups(settings, settings, "", None))


def chosen(groups: Sequence[KeyGroup], prefix: str) -> list[KeyGroup]:
    """The keys that begin with a prefix, such as `model.downsampler`; `-` counts as `_`.

    Raises:
        UserError: there are none; the nearest key is named.
    """
    prefix = prefix.replace("-", "_")
    found = []
    for group in groups:
        keys = tuple(key for key in group.keys if f"{key.name}.".startswith(prefix))
        if keys or f"{group.name}.".startswith(prefix):
            found.append(dataclasses.replace(group, keys=keys))
    if not found:
        hint = nearest(prefix, [name for group in groups for name in _names(group)])
        raise UserError(
            f"no key begins with {prefix!r} " + (f"(did you mean {hint}?)" if hint else "(see --help-keys)")
        )
    return found


def nearest(name: str, known: Sequence[str]) -> str | None:
    """The dotted key that is most like `name`, which may be its last part alone."""
    by_end = {each.rpartition(".")[2]: each for each in reversed(known)}
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    close = close or [by_end[end] for end in difflib.get_close_matches(name.rpartition(".")[2], by_end, n=1)]
    return close[0] if close else None


def attributes(docstring: str) -> dict[str, str]:
    """What a docstring says of each field under `Attributes:`, in one line each."""
    told: dict[str, list[str]] = {}
    lines = docstring.partition("Attributes:\n")[2].partition("\n\n")[0].splitlines()
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    name = ""
    for line in lines:
        if line[indent : indent + 1].strip():
            name, _, line = line.strip().partition(": ")
        told.setdefault(name, []).append(line.strip())
    return {name: " ".join(filter(None, parts)) for name, parts in told.items()}


def _names(group: KeyGroup) -> Iterator[str]:
    yield from filter(None, [group.name])
    yield from (key.name for key in group.keys)


def _groups(settings: type, defaults: Any, name: str, part: str | None) -> Iterator[KeyGroup]:
    """The group of a class and those of the classes inside it; `defaults`: the class, or an instance of it."""
    hints, prefix = get_type_hints(settings, include_extras=True), f"{name}." if name else ""
    keys: list[Key] = []
    inner: list[KeyGroup] = []
    for field in dataclasses.fields(settings):
        hint, key = hints[field.name], prefix + field.name
        default, meaning = _default(field, defaults), _meaning(settings, field.name)
        slot = slot_of(hint)
        if slot is not None:
            parts = {variant: slot.config_class(variant) for variant in slot.names()}
            keys.append(Key(f"{key}.name", " | ".join(parts), slot.default, meaning))
            for its_name, its_settings in parts.items():
                inner += _groups(its_settings, its_settings, key, its_name)
        elif dataclasses.is_dataclass(hint) and isinstance(hint, type):
            inner += _groups(hint, hint if default is dataclasses.MISSING else default, key, None)
        elif field.name != "name" or part is None:  # a part's name stands with the slot
            keys.append(Key(key, described(hint), _shown(default), meaning))
            values = next((each for each in get_args(_bare(hint)) if dataclasses.is_dataclass(each)), None)
            if values is not None:
                assert isinstance(values, type)
                inner += _groups(values, values, f"{key}.KEY", None)
    yield KeyGroup(name, part, _summary(settings), tuple(keys))
    yield from inner


def _default(field: dataclasses.Field[Any], defaults: Any) -> Any:
    if not isinstance(defaults, type):
        return getattr(defaults, field.name)
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _meaning(settings: type, field: str) -> str:
    told = (attributes(base.__doc__ or "").get(field) for base in settings.__mro__)
    return next(filter(None, told), "")


def _summary(settings: type) -> str:
    """The first sentence of a docstring; abbreviations before a year or a number do not end it."""
    text = " ".join((settings.__doc__ or "").split("\n\n")[0].split())
    return re.split(r"(?<=[^ .][^ .][^.])\.(?= [A-Z`])", text)[0].rstrip(".") + "."


def _bare(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def described(hint: Any) -> str:
    """A type with its range, as a reader of YAML would say it, such as `int >= 1 | null`."""
    origin, of = get_origin(hint), get_args(hint)
    if origin is Annotated:
        metadata = [fact for each in of[1:] for fact in getattr(each, "metadata", [each])]
        return _ranged(described(of[0]), metadata)
    if origin in (Union, types.UnionType):
        return " | ".join(map(described, of))
    if origin is Literal:
        return " | ".join(map(str, of))
    if origin is tuple and of[-1] is Ellipsis:
        word = described(of[0])
        return f"list of ({word})" if " | " in word else f"list of {word}"
    if origin is tuple:
        return f"[{', '.join(map(described, of))}]"
    return "mapping" if origin is dict else _WORDS[hint]


def _ranged(word: str, metadata: Sequence[Any]) -> str:
    facts = {name: getattr(fact, name) for fact in metadata for name in _FACTS if hasattr(fact, name)}
    if "min_length" in facts:
        most = facts.get("max_length")
        return f"{word}, not empty" if most is None else f"{word}, {facts['min_length']} to {most}"
    if "pattern" in facts:
        return f"{word} like {facts['pattern']}"
    if "ge" in facts and "le" in facts:
        return f"{word}, {facts['ge']} to {facts['le']}"
    return f"{word} {' and '.join(f'{_SIGNS[name]} {fact}' for name, fact in facts.items() if name in _SIGNS)}".strip()


def _shown(value: Any) -> str | None:
    """A default as YAML has it, in one line."""
    if value is dataclasses.MISSING:
        return None
    if isinstance(value, tuple):
        return f"[{', '.join(str(_shown(item)) for item in value)}]"
    if value is None or isinstance(value, bool):
        return _WORDS[type(None)] if value is None else str(value).lower()
    return str(value)
