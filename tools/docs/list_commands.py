"""Writes every command and option into docs/commands.md: python -m tools.docs.list_commands."""

import argparse
import re
from collections.abc import Iterator

from tokenfree.workflows import cli
from tools import REPOSITORY

PAGE = REPOSITORY / "docs" / "commands.md"
MARK = "<!-- python -m tools.docs.list_commands writes what follows -->\n"
COMMON = {"--help", "--debug", "--quiet", "--verbose"}  # the page describes them once


def page() -> str:
    """Return the page: what was written by hand, then the reference."""
    return PAGE.read_text(encoding="utf-8").partition(MARK)[0] + f"{MARK}\n{reference()}\n"


def reference() -> str:
    """Return a section for each command and each of its actions, as Markdown."""
    parser = cli._parser(cli._imported(cli.command_names()))
    return "\n\n".join(
        block for name, command in _commands(parser) for block in _section(name, command, "##")
    )


def _commands(parser: argparse.ArgumentParser) -> list[tuple[str, argparse.ArgumentParser]]:
    return [
        item
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for item in action.choices.items()
    ]


def _section(name: str, command: argparse.ArgumentParser, heading: str) -> Iterator[str]:
    yield f"{heading} {name}"
    text, _, examples = re.split(
        r"\n*^(Examples?:\n|\Z)", command.description or "", maxsplit=1, flags=re.MULTILINE
    )
    yield _with_code(re.sub(r"^ {0,2}(\w+) {2,}", r"- `\1`: ", text, flags=re.MULTILINE))  # a list
    if examples:
        yield f"```\n{re.sub('^  ', '', examples, flags=re.MULTILINE)}\n```"
    formatter = command._get_formatter()
    items = []
    for action in command._actions:
        if action.help and not COMMON.intersection(action.option_strings):
            required = " (required)" if action.required and action.option_strings else ""
            meaning = _with_code(formatter._expand_help(action))
            items.append(f"- `{formatter._format_action_invocation(action)}`{required}: {meaning}")
    if items:
        yield "\n".join(items)
    for action, parser in _commands(command):
        yield from _section(f"{name} {action}", parser, "###")


def _with_code(text: str) -> str:
    """Return the text with its options in backticks, and without links."""
    parts = re.split(r"(`[^`]*`)", text)
    parts[::2] = [re.sub(r"--[\w.-]*\w", r"`\g<0>`", part.replace("[", r"\[")) for part in parts[::2]]
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
