"""Settings: frozen dataclasses built from YAML mappings. Every problem is reported with its dotted key.

A field annotated with a `Slot` takes the config of any file in a package, or a custom class, chosen by
`name`.
"""

import contextlib
import dataclasses
import functools
import importlib
import os
import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Generic, TypeVar, get_args, get_origin, get_type_hints

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import PydanticCustomError, core_schema
from typing_extensions import dataclass_transform

from tokenfree.core import own_code
from tokenfree.core.errors import SettingsError, UserError, first_line
from tokenfree.core.files import expand_home
from tokenfree.core.settings_errors import Path, nearest_hint, refusals
from tokenfree.core.settings_values import is_custom
from tokenfree.core.yaml_text import parse_yaml

_MAX_CHARACTERS = 80  # of a wrong value in a message
# Reading the annotations of a class takes longer than building it.
_type_hints = functools.cache(get_type_hints)


def _problem_of_part(config_class: Any, base: type, name: str) -> str:
    if not (isinstance(config_class, type) and issubclass(config_class, base)):
        return f"its settings do not inherit {base.__name__}"
    for cls in (config_class, _built_by(config_class)):
        missing = sorted(getattr(cls, "__abstractmethods__", ()))
        if missing:
            return f"{cls.__name__} lacks {', '.join(missing)}"
    if "__pydantic_config__" not in vars(config_class):
        return f"{config_class.__name__} is not decorated with @settings"
    if getattr(config_class, "name", None) != name:
        return f"{config_class.__name__} needs the field name: str = {name!r}"
    try:
        _type_hints(config_class)
        adapter(config_class)
    except (NameError, PydanticUserError) as error:
        return f"its fields have types that cannot be read from YAML: {first_line(error)}"
    return ""


def _built_by(config_class: type) -> Any:
    with contextlib.suppress(AttributeError, KeyError, NameError, TypeError):
        built = _type_hints(config_class.build)["return"]  # pyright: ignore[reportAttributeAccessIssue]
        return built if built.__module__ == config_class.__module__ else None


T = TypeVar("T")
Positive = Annotated[int, Field(ge=1)]
# A key that is a path or an address.
PathText = Annotated[
    str, BeforeValidator(lambda value: expand_home(value) if isinstance(value, str | os.PathLike) else value)
]
NonNegative = Annotated[int, Field(ge=0)]
# The following are marks of fields, given in `Annotated`. An operational setting changes how a job or run is
# done, but not its result (except rounding, and what happens after a failure). It may change on resuming.
OPERATIONAL = "operational"
DECIDES_RUNS = "decides runs"  # the setting changes the sorted runs of preprocessing


@dataclass_transform(frozen_default=True, kw_only_default=True)
def settings(cls: type[T]) -> type[T]:
    """Make `cls` a frozen, keyword-only dataclass that refuses unknown keys when it is built from a mapping."""
    config = ConfigDict(extra="forbid", allow_inf_nan=False)
    cls.__pydantic_config__ = config  # pyright: ignore[reportAttributeAccessIssue]
    return dataclasses.dataclass(frozen=True, kw_only=True)(cls)


@dataclasses.dataclass(frozen=True)
class Slot:
    """Annotation of a field whose variant is a file of `package` or a custom class, chosen by the key `name`.

    `base` is the class that the settings of all variants inherit, as MODULE.CLASS.
    """

    package: str
    default: str
    base: str = "builtins.object"

    @property
    def title(self) -> str:
        return (
            self.package.removeprefix("tokenfree.train.")
            .removeprefix("tokenfree.preprocess.")
            .removeprefix("model.")
        )

    def names(self) -> list[str]:
        """Return the variants: the public files of the package that define a `Config`, sorted."""
        folders = importlib.import_module(self.package).__path__
        return _variants(self.package, *((folder, os.stat(folder).st_mtime_ns) for folder in folders))

    def config_class(self, name: str) -> type:
        """Return the settings of a variant.

        Raises ValueError if there is none, UserError if it does not fit.
        """
        if is_custom(name):
            part = own_code.load(name)
        elif name in self.names():
            part = importlib.import_module(f"{self.package}.{name}").Config
        else:
            hint = nearest_hint(str(name), self.names()) if self.names() else " (give MODULE.CLASS)"
            raise ValueError(f"there is no {self.title} {name!r}{hint}")
        module, _, base = self.base.rpartition(".")
        problem = _problem_of_part(part, getattr(importlib.import_module(module), base), name)
        if problem:
            raise UserError(
                f"{name} is not a part for the slot {self.title}: {problem} (see docs/add_a_part.md)"
            )
        return part

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self._validate)

    def _validate(self, value: Any) -> Any:
        if dataclasses.is_dataclass(value):
            return value
        # `embedder: codepoint_hash` is short for `embedder: {name: codepoint_hash}`.
        if isinstance(value, str):
            value = {"name": value}
        if not isinstance(value, Mapping):
            raise ValueError(f"should be a mapping with a key 'name', not {value!r}")
        config_class = self.config_class(value.get("name", self.default))
        try:
            return adapter(config_class).validate_python(dict(value))
        except ValidationError as error:
            raise PydanticCustomError("part", "part", {"errors": error.errors()}) from error


@functools.lru_cache(maxsize=64)
def _variants(package: str, *folders: tuple[str, int]) -> list[str]:
    """Return the variants in the folders of a package, each with the time of its last change, in nanoseconds."""
    modules = pkgutil.iter_modules([folder for folder, _ in folders])
    names = sorted(info.name for info in modules if not info.name.startswith("_"))
    return [name for name in names if hasattr(importlib.import_module(f"{package}.{name}"), "Config")]


def slot_of(hint: Any) -> Slot | None:
    return next(
        (metadata for metadata in getattr(hint, "__metadata__", ()) if isinstance(metadata, Slot)), None
    )


def without_annotations(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def part(slot: Slot) -> Any:
    return dataclasses.field(default_factory=lambda: slot.config_class(slot.default)())


def marked_keys(config: Any, mark: str, prefix: str = "") -> Iterator[str]:
    """Yield the dotted keys of settings that have a mark.

    A class that overrides a field must repeat its marks.
    """
    hints = _type_hints(type(config), include_extras=True)
    for field in dataclasses.fields(config):
        key, value = prefix + field.name, getattr(config, field.name)
        if mark in getattr(hints[field.name], "__metadata__", ()):
            yield key
        elif dataclasses.is_dataclass(value):
            yield from marked_keys(value, mark, f"{key}.")


def build(cls: type[T], mapping: Mapping[str, Any], *, source: str) -> T:
    """Build `cls` from a nested mapping.

    Raises UserError that begins with `source` and lists all problems.
    """
    result = draft(cls, mapping)
    if result.settings is None:
        raise SettingsError(source, result.problems)
    return result.settings


@dataclasses.dataclass(frozen=True)
class Draft(Generic[T]):
    """The settings of a mapping, or None and its problems: one line each, beginning with the dotted key."""

    settings: T | None
    problems: tuple[str, ...] = ()


def draft(cls: type[T], mapping: Mapping[str, Any]) -> Draft[T]:
    try:
        return Draft(adapter(cls).validate_python(mapping))
    except ValidationError as error:
        problems = refusals(error.errors(), mapping, keys_at=functools.partial(_keys_at, cls, mapping))
        return Draft(None, tuple(problems))


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` overridden by `over`, key by key. A part that changes its `name` replaces that of `base`.

    A part may be a name alone, which stands for `{name: NAME}`.
    """
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        if isinstance(value, str) and isinstance(old, Mapping) and old.get("name") == value:
            continue
        if isinstance(value, Mapping) and isinstance(old, str):
            old = {"name": old}
        if (
            isinstance(value, Mapping)
            and isinstance(old, Mapping)
            and value.get("name", old.get("name")) == old.get("name")
        ):
            merged[key] = merge(old, value)
        else:
            merged[key] = value
    return merged


def override(
    cls: type, base: Mapping[str, Any], over: Mapping[str, Any], prefix: str = ""
) -> tuple[dict[str, Any], list[str]]:
    """Return `base` overridden by `over` as in `merge`, and the keys of `base` that are lost.

    A part that changes its `name` keeps the keys that the new part also has. The others are lost. Each is
    listed with its dotted name, followed by the name of the new part.
    """
    hints, over, lost = (
        _type_hints(cls, include_extras=True),
        dict[str, Any](_without_paths(over)),
        list[str](),
    )
    for key, value in over.items():
        old, new = ({"name": entry} if isinstance(entry, str) else entry for entry in (base.get(key), value))
        hint, slot = without_annotations(hints.get(key)), slot_of(hints.get(key))
        if not isinstance(old, Mapping) or not isinstance(new, Mapping):
            continue
        if slot is not None:
            old_name = old.get("name", slot.default)
            name = new.get("name", old_name)
            try:
                valid_keys = (
                    {field.name for field in dataclasses.fields(slot.config_class(name))}
                    if name != old_name
                    else old
                )
            except (ValueError, TypeError):  # reported when the part is built
                continue
            kept = {part_key: part_value for part_key, part_value in old.items() if part_key in valid_keys}
            over[key] = merge({**kept, "name": name}, new)
            lost += [f"{prefix}{key}.{part_key} ({name})" for part_key in old if part_key not in valid_keys]
        elif isinstance(hint, type) and dataclasses.is_dataclass(hint):
            over[key], inner_lost = override(hint, old, new, f"{prefix}{key}.")
            lost += inner_lost
    return merge(base, over), lost


def _without_paths(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_paths(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_paths(item) for item in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def nest(dotted: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Return `[("a.b", "1")]` as `{"a": {"b": 1}}`, from values in YAML.

    Raises UserError if keys or values clash.
    """
    nested: dict[str, Any] = {}
    for key, text in dotted:
        try:
            value = parse_yaml(text)
        except ValueError as error:
            quoted = text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}..."
            raise UserError(
                f"--{key}: cannot read the value {quoted!r} as YAML ({error}); quote it"
            ) from None
        set_value(nested, key, value)
    return nested


def set_value(nested: dict[str, Any], key: str, value: Any) -> None:
    """Set the value at a dotted key of a nested mapping. Raises UserError if keys clash."""
    node = nested
    *parents, last = key.split(".")
    for parent in parents:
        node = node.setdefault(parent, {})
        if not isinstance(node, dict):
            raise UserError(f"--{key}: {parent!r} was already given a single value; give one or the other")
    node[last] = value


def value_at(mapping: Mapping[str, Any], key: str, default: Any = None) -> Any:
    value: Any = mapping
    for name in key.split("."):
        if not isinstance(value, Mapping) or name not in value:
            return default
        value = value[name]
    return value


@functools.cache
def adapter(cls: Any) -> TypeAdapter[Any]:
    return TypeAdapter(cls)


def _keys_at(cls: Any, mapping: Any, path: Path) -> list[str]:
    for key in path[:-1]:
        # Of any names.
        if get_origin(cls) is dict:
            hint = get_args(cls)[1]
        elif dataclasses.is_dataclass(cls):
            hint = _type_hints(cls, include_extras=True).get(key)
        else:
            return []
        mapping, slot = mapping[key], slot_of(hint)
        cls = (
            without_annotations(hint)
            if slot is None
            else slot.config_class(mapping.get("name", slot.default))
        )
    return [field.name for field in dataclasses.fields(cls)] if dataclasses.is_dataclass(cls) else []
