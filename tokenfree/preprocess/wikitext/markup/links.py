"""Links: what a reader sees of `[[internal]]` and `[http://external labelled]` ones."""

import re

from tokenfree.preprocess.wikitext.markup.marks import GONE
from tokenfree.preprocess.wikitext.markup.namespaces import MEDIA_EXTENSIONS

# Innermost links only: the label holds single brackets at most (a bounded number: no unbounded state in the matcher).
_INTERNAL = re.compile(r"\[\[([^\[\]|\n]*)(?:\|([^\[\]]*(?:(?:\[(?!\[)|\](?!\]))[^\[\]]*){0,8}))?\]\]")
# An address and the spaces behind it are taken whole: a label can hold the same characters, so that a matcher free to
# give some of them back would try each place, in quadratic time, where the closing bracket is missing.
_ADDRESS = r"[^\s\[\]<>\"]*(?![^\s\[\]<>\"])[ \t\xa0]*(?![ \t\xa0])"
_EXTERNAL = re.compile(
    rf"\[(?:(?:https?|ftps?|mailto|news|ircs?|gopher|sip|tel|magnet):)(?://)?{_ADDRESS}"
    r"([^\[\]\n]*(?:\[[^\[\]\n]*\][^\[\]\n]*){0,4})\]"
    rf"|\[//(?=[^\s\[\]<>\"]){_ADDRESS}([^\[\]\n]*)\]",
    re.IGNORECASE,
)
# A caption may hold links, a label may hold files: more levels than this are not found in articles.
_MAX_DEPTH = 6


def replace_links(text: str, hidden: frozenset[str]) -> str:
    """Labels for links, nothing for those whose prefix is in `hidden`; brackets that match nothing are removed."""

    def shown(match: re.Match[str]) -> str:
        target, label = match.groups()
        if ":" in target:
            return _shown_with_prefix(target, label, hidden)
        if label is None:
            return target
        return label or _without_parenthesis(target)

    for _ in range(_MAX_DEPTH):
        if "[[" not in text:
            break
        text, count = _INTERNAL.subn(shown, text)
        if not count:
            break
    if "[[" in text:
        text = text.replace("[[", "")
    if "]]" in text:
        text = text.replace("]]", "")
    if "[h" in text or "[/" in text or "[f" in text or "[m" in text or "[H" in text or "[n" in text:
        text = _EXTERNAL.sub(_external_label, text)
    return text


def _shown_with_prefix(target: str, label: str | None, hidden: frozenset[str]) -> str:
    prefix, _, rest = target.partition(":")
    prefix = prefix.replace("_", " ").strip().lower()
    if prefix:
        if prefix in hidden:
            return GONE
        if target.rstrip().lower().endswith(MEDIA_EXTENSIONS) and prefix != "media":
            return GONE
        if label is None:
            return target
        return label or _without_parenthesis(rest)
    # [[:Category:Name]] shows its target; [[:fr:Name|]] its last part.
    return label or (target[1:] if label is None else rest.rpartition(":")[2])


def _without_parenthesis(title: str) -> str:
    """The pipe trick: [[Mercury (planet)|]] shows Mercury."""
    title = title.strip()
    if title.endswith((")", "）")):
        opening = max(title.rfind("("), title.rfind("（"))
        if opening > 0:
            return title[:opening].rstrip()
    return title


def _external_label(match: re.Match[str]) -> str:
    return match[1] or match[2] or ""
