"""Hooks of mkdocs."""

import re
from typing import Any


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs for each page.

    GitHub needs a backslash before `|` in the code of a table, and Python-Markdown shows it.
    """
    return re.sub(r"`[^`\n]*`", lambda code: code[0].replace("\\|", "|"), markdown)
