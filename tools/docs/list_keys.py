"""Writes docs/keys.md from the settings classes: `python -m tools.docs.list_keys` after a key or a part has changed."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tokenfree.workflows.recipes.keys import Key
from tokenfree.workflows.recipes.kinds import KINDS
from tools import REPOSITORY

PAGE = REPOSITORY / "docs" / "keys.md"
HEAD = """\
# Keys of recipes

Set a key in a recipe, in a file given with `--config`, or as an option: `--train.learning_rate 0.002`, or
`--train.learning-rate 0.002`. `--help-keys PREFIX` prints the keys of a command in a terminal. A key that ends in
`.name` chooses a part. A key that only some parts have names them first.
"""


@dataclass
class Mapping:
    """The keys of one mapping of a recipe, such as `model.embedder`, that the same commands read."""

    # By part; of the mapping itself under the empty name.
    meanings: dict[str, str] = field(default_factory=dict)
    keys: dict[Key, list[str]] = field(default_factory=dict)  # with the parts that have them


def page() -> str:
    """Return the page as Markdown: a section for all that the same commands read, each key once in it."""
    return HEAD + "".join(
        f"\n## {_joined(commands)}\n"
        + "".join(f"\n{block}\n" for name in mappings for block in _blocks(name, mappings[name]))
        for commands, mappings in _sections().items()
    )


def _sections() -> dict[tuple[str, ...], dict[str, Mapping]]:
    meanings: dict[tuple[str, str, str], list[str]] = {}
    keys: dict[tuple[str, Key], dict[str, list[str]]] = {}
    for kind in KINDS:
        for group in kind.groups():
            meanings.setdefault((group.name, group.part or "", group.meaning), []).append(kind.command)
            for key in group.keys:
                keys.setdefault((group.name, key), {}).setdefault(kind.command, []).append(group.part or "")
    sections: dict[tuple[str, ...], dict[str, Mapping]] = {}
    for (name, part, meaning), commands in meanings.items():
        mappings = sections.setdefault(tuple(dict.fromkeys(commands)), {})
        mappings.setdefault(name, Mapping()).meanings[part] = meaning
    for (name, key), by_command in keys.items():
        mappings = sections.setdefault(tuple(by_command), {})
        mappings.setdefault(name, Mapping()).keys[key] = next(iter(by_command.values()))
    return sections


def _joined(commands: tuple[str, ...]) -> str:
    return " and ".join(filter(None, (", ".join(f"`{name}`" for name in commands[:-1]), f"`{commands[-1]}`")))


def _blocks(name: str, mapping: Mapping) -> Iterator[str]:
    if name:
        yield f"### `{name}`"
    if "" in mapping.meanings:
        yield mapping.meanings[""]
    parts = [part for part in mapping.meanings if part]
    if parts:
        yield "\n".join(f"- `{part}`: {mapping.meanings[part]}" for part in parts)
    if mapping.keys:
        rows = [
            _row(key, owners if set(owners) != set(mapping.meanings) else [])
            for key, owners in mapping.keys.items()
        ]
        yield "\n".join(["| key | type | default | what |", "|---|---|---|---|", *rows])


def _row(key: Key, parts: list[str]) -> str:
    default = "required" if key.default is None else f"`{key.default}`"
    owners = ", ".join(f"`{part}`" for part in parts if part)
    what = f"({owners}) {key.meaning}" if owners else key.meaning
    cells = [f"`{key.name}`", re.sub(r"[*\[\]]", r"\\\g<0>", key.type), default, what]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
