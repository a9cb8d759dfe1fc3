"""YAML from files and options, which anyone may have written: small, flat and without repeated keys."""

import contextlib
from typing import Any

import yaml

# Not in all builds of PyYAML. With it a recipe takes 2 ms, with PyYAML's own parser 8 ms.
_CLoader: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MAX_CHARACTERS = 200_000
_MAX_VALUES = 20_000  # with those that aliases and merge keys repeat
_DEEPEST = 50  # nested mappings and lists
_MAX_VALUE_CHARACTERS = 40  # characters of a wrong value


def parse_yaml(text: str | bytes) -> Any:
    """Return the value of a YAML document.

    Raises ValueError, in one line, if it cannot be built or is too large.
    """
    try:
        _check_size(text)
        return yaml.load(text, _Loader)
    except ValueError:
        raise
    except Exception as error:  # PyYAML's own, and of any kind from its constructors
        raise ValueError(" ".join(str(error).split())) from None


def _check_size(text: str | bytes) -> None:
    if len(text) > _MAX_CHARACTERS:
        raise ValueError(f"longer than {_MAX_CHARACTERS:,} characters")
    count, sizes, containers = 0, dict[str, int](), list[tuple[str | None, int]]()
    # PyYAML's types allow None where its events have none.
    event: Any
    for event in yaml.parse(text, _CLoader):
        line = f"line {event.start_mark.line + 1}"
        if isinstance(event, yaml.CollectionStartEvent):
            containers.append((event.anchor, count))
            if len(containers) > _DEEPEST:
                raise ValueError(f"{line}: nested more than {_DEEPEST} levels deep")
        if isinstance(event, yaml.CollectionEndEvent):
            anchor, start = containers.pop()
            if anchor:
                sizes[anchor] = count - start
        elif isinstance(event, yaml.AliasEvent):
            if any(anchor == event.anchor for anchor, _ in containers):
                raise ValueError(f"{line}: *{event.anchor} contains itself")
            count += sizes.get(str(event.anchor), 1)
        elif isinstance(event, yaml.NodeEvent):
            count += 1
        if count > _MAX_VALUES:
            raise ValueError(f"{line}: more than {_MAX_VALUES:,} values, with those that aliases repeat")


class _Loader(_CLoader):
    """A loader that refuses a key given twice, which PyYAML would ignore, and names lines of values."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        value, kind = None, node.tag.rpartition(":")[2]
        with contextlib.suppress(ArithmeticError, AttributeError, LookupError, ValueError):
            value = super().construct_object(node, deep)
        line = f"line {node.start_mark.line + 1}"
        if not isinstance(value, (dict, list, str, int, float)) and kind != "null":
            raise yaml.YAMLError(
                f"{line}: {str(node.value)[:_MAX_VALUE_CHARACTERS]!r} is no value ({kind}); quote a text"
            )
        if isinstance(value, int) and not -(2**63) <= value < 2**64:
            raise yaml.YAMLError(f"{line}: an integer of more than 64 bits")
        return value

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = set[str]()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in keys:
                raise yaml.YAMLError(
                    f"line {key.start_mark.line + 1}: the key {key.value!r} is given twice. Keep one"
                )
            keys |= {key.value} if isinstance(key, yaml.ScalarNode) else set()
        return super().construct_mapping(node, deep)
