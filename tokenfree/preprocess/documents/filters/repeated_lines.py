"""The filter by repeated lines: menus, templates that were filled in, texts that were copied into themselves.

Gopher's fraction of characters in duplicate lines, https://arxiv.org/abs/2112.11446, table A1.
"""

from __future__ import annotations


def repeated_line_share(text: str) -> float:
    """The share of the characters of a text that stand in lines which stood in it before; 0 where it has none.

    White space around a line is nothing, and line ends are not counted.
    """
    lines = [line for line in map(str.strip, text.split("\n")) if line]
    characters = sum(map(len, lines))
    once = sum(map(len, set(lines)))
    return (characters - once) / characters if characters else 0.0
