"""A hook of mkdocs that appends every command and option to docs/commands.md, as their parsers describe them.

GitHub needs a backslash before `|` in the code of a table, and Python-Markdown shows it. The hook removes it.
"""

import argparse
import re
from collections.abc import Iterator
from typing import Any

from tokenfree.workflows import cli

COMMON = {"--help", "--debug", "--quiet", "--verbose"}  # the page describes them once


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Called by mkdocs for each page."""
    markdown = re.sub(r"`[^`\n]*`", lambda code: code[0].replace("\\|", "|"), markdown)
    return f"{markdown}\n{reference()}" if page.file.src_uri == "commands.md" else markdown


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
    for action in command._actions:
        if action.help and not COMMON.intersection(action.option_strings):
            required = " (required)" if action.required and action.option_strings else ""
            meaning = _with_code(formatter._expand_help(action))
            yield f"`{formatter._format_action_invocation(action)}`{required}\n:   {meaning}"
    for action, parser in _commands(command):
        yield from _section(f"{name} {action}", parser, "###")


def _with_code(text: str) -> str:
    """Return the text with its options in backticks, and without links."""
    parts = re.split(r"(`[^`]*`)", text)
    parts[::2] = [re.sub(r"--[\w.-]*\w", r"`\g<0>`", part.replace("[", r"\[")) for part in parts[::2]]
    return "".join(parts)
