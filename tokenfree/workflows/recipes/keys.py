"""The keys of recipes. Meanings come from the docstrings of settings, under `Attributes:`."""

import dataclasses
import difflib
import re
import types
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from tokenfree.core.errors import UserError

_WORDS = {int: "int", float: "float", bool: "true | false", str: "text", Any: "anything", type(None): "null"}
_SIGNS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<", "multiple_of": "a multiple of"}
_FACTS = (*_SIGNS, "min_length", "max_length", "pattern")


@dataclasses.dataclass(frozen=True)
class Key:
    name: str  # dotted
    type: str  # with its range, such as `int, 1 to 16`
    default: str | None  # as in YAML; None if a value is required
    meaning: str


@dataclasses.dataclass(frozen=True)
class KeyGroup:
    """The keys of one mapping of the recipe, or of one part that a slot may hold."""

    name: str  # dotted key of the mapping; empty at the top level
    part: str | None  # part in the slot to which the keys belong, if any
    meaning: str
    keys: tuple[Key, ...]


def listed(settings: type) -> list[KeyGroup]:
    return list(_groups(settings, settings, "", None))


def keys_with_prefix(groups: Sequence[KeyGroup], prefix: str) -> list[KeyGroup]:
    """Return the keys with a prefix such as `model.trunk`, where `-` means `_`.

    Raises UserError if there are none.
    """
    prefix = prefix.replace("-", "_")
    selected = []
    for group in groups:
        keys = tuple(key for key in group.keys if f"{key.name}.".startswith(prefix))
        if keys or f"{group.name}.".startswith(prefix):
            selected.append(dataclasses.replace(group, keys=keys))
    if not selected:
        hint = nearest(prefix, groups)
        raise UserError(
            f"no key begins with {prefix!r} " + (f"(did you mean {hint}?)" if hint else "(see --help-keys)")
        )
    return selected


def nearest(name: str, groups: Sequence[KeyGroup]) -> str | None:
    """Return the dotted key that is most similar to `name`, which may be only the last part of a key."""
    names = [key.name for group in groups for key in group.keys] + [
        group.name for group in groups if group.name
    ]
    by_end = {dotted.rpartition(".")[2]: dotted for dotted in reversed(names)}
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.7)
    close = close or [by_end[end] for end in difflib.get_close_matches(name.rpartition(".")[2], by_end, n=1)]
    return close[0] if close else None


def attributes(docstring: str) -> dict[str, str]:
    """Return the text of each field under `Attributes:` in a docstring, each as one line."""
    texts: dict[str, list[str]] = {}
    lines = docstring.partition("Attributes:\n")[2].partition("\n\n")[0].splitlines()
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    name = ""
    for line in lines:
        if line[indent : indent + 1].strip():
            name, _, line = line.strip().partition(": ")
        texts.setdefault(name, []).append(line.strip())
    return {name: " ".join(filter(None, parts)) for name, parts in texts.items()}


def _groups(settings: type, defaults: Any, name: str, part: str | None) -> Iterator[KeyGroup]:
    """Yield the group of a class and of the classes inside it. `defaults` is the class, or an instance of it."""
    from tokenfree.core.settings import slot_of, without_annotations

    hints, prefix = get_type_hints(settings, include_extras=True), f"{name}." if name else ""
    keys: list[Key] = []
    inner: list[KeyGroup] = []
    for field in dataclasses.fields(settings):
        hint, key = hints[field.name], prefix + field.name
        bare = without_annotations(hint)
        default, meaning = _default(field, defaults), text_of(settings, field.name)
        slot = slot_of(hint)
        if slot is not None:
            parts = {variant: slot.config_class(variant) for variant in slot.names()}
            keys.append(Key(f"{key}.name", " | ".join(parts), slot.default, meaning))
            for its_name, its_settings in parts.items():
                inner += _groups(its_settings, its_settings, key, its_name)
        elif dataclasses.is_dataclass(bare) and isinstance(bare, type):
            inner += _groups(bare, bare if default is dataclasses.MISSING else default, key, None)
        # The name of a part is a key of its slot.
        elif field.name != "name" or part is None:
            keys.append(Key(key, described(hint), _shown(default), meaning))
            values = next(
                (argument for argument in get_args(bare) if dataclasses.is_dataclass(argument)), None
            )
            if values is not None:
                assert isinstance(values, type)
                inner += _groups(values, values, f"{key}.KEY", None)
    yield KeyGroup(name, part, _summary(settings), tuple(keys))
    yield from inner


def _default(field: dataclasses.Field[Any], defaults: Any) -> Any:
    if not isinstance(defaults, type):
        return getattr(defaults, field.name)
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default


def text_of(settings: type, field: str) -> str:
    texts = (attributes(base.__doc__ or "").get(field) for base in settings.__mro__)
    return next(filter(None, texts), "")


def _summary(settings: type) -> str:
    """Return the first sentence of a docstring. An abbreviation before a year or a number does not end it."""
    text = " ".join((settings.__doc__ or "").split("\n\n")[0].split())
    return re.split(r"(?<=[^ .][^ .][^.])\.(?= [A-Z`])", text)[0].rstrip(".") + "."


def described(hint: Any) -> str:
    """Return a type with its range in terms of YAML, such as `int >= 1 | null`."""
    origin, of = get_origin(hint), get_args(hint)
    if origin is Annotated:
        metadata = [fact for annotation in of[1:] for fact in getattr(annotation, "metadata", [annotation])]
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
        max_length = facts.get("max_length")
        return (
            f"{word}, not empty" if max_length is None else f"{word}, {facts['min_length']} to {max_length}"
        )
    if "pattern" in facts:
        return f"{word} like {facts['pattern']}"
    if "ge" in facts and "le" in facts:
        return f"{word}, {facts['ge']} to {facts['le']}"
    return f"{word} {' and '.join(f'{_SIGNS[name]} {fact}' for name, fact in facts.items() if name in _SIGNS)}".strip()


def _shown(value: Any) -> str | None:
    if value is dataclasses.MISSING:
        return None
    if isinstance(value, tuple):
        return f"[{', '.join(str(_shown(item)) for item in value)}]"
    if value is None or isinstance(value, bool):
        return _WORDS[type(None)] if value is None else str(value).lower()
    return str(value)


BASE = Key("base", "text", "null", "in a file: the recipe that this one is laid over, by its name or file.")


def lines(groups: Sequence[KeyGroup]) -> Iterator[str]:
    """Yield a line for each key: name, its part, type, default and meaning, separated by tabs."""
    for group in groups:
        for key in group.keys:
            default = "required" if key.default is None else f"default {key.default}"
            yield "\t".join([key.name, group.part or "", key.type, default, key.meaning])
