"""Find phrases and names that plain English does without: python -m tools.docs.words. `make lint` runs it."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tools import REPOSITORY

PLAIN = {
    r"go(es|ing)? on": "continue, resume",
    r"given again|taken up": "re-run, resumed",
    r"(is|are|was|were) told|told (of|by|in)|heard of": "reported, logged",
    r"knobs?": "hyperparameter",
    r"rehears\w+": "local cluster",
    r"mend(s|ed|ing)?": "fix",
    r"parted": "split, separated",
    r"but for": "except",
    r"whoever": "anyone who",
    r"so many": "N, the number of",
    r"at the least": "at least",
    r"hangs? on": "depend on",
    r"anew": "again",
    r"of before": "earlier, of an earlier version",
    r"of one's own": "custom",
}
# A hyphen or underscore next to a phrase makes it part of a name, such as that of a recipe.
PHRASES = {
    re.compile(rf"(?<![\w-])({phrase})(?![\w-])", re.IGNORECASE): plain for phrase, plain in PLAIN.items()
}
FOLDERS = ("tokenfree", "docs", "infra", "benchmarks", "examples", "tests", "tools")
ENDINGS = (".py", ".md", ".yaml", ".jinja", ".sbatch", ".Dockerfile")

# Names of variables and parameters that do not say what they hold. Some uses remain; there must not be more.
VAGUE = {
    *("found", "given", "made", "most", "least", "before", "wanted"),
    *("shown", "known", "own", "told", "badness", "begun", "gone"),
}
MAX_VAGUE = 6  # per 10,000 lines of the package


def findings(text: str) -> list[str]:
    """Return a line for each phrase: its line number, the phrase, and the words to use instead."""
    return [
        f"{number}: {found[0]!r}: use {plain}"
        for number, line in enumerate(text.splitlines(), 1)
        for phrase, plain in PHRASES.items()
        if (found := phrase.search(line))
    ]


def vague_names(path: Path) -> Iterator[str]:
    """Yield a line for each vague name that a file assigns or has as a parameter."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        else:
            continue
        if name in VAGUE:
            yield f"{path.relative_to(REPOSITORY)}:{node.lineno}: {name!r}: name what it holds"


def main() -> int:
    """Print the findings of all files and return the exit status."""
    files = [path for name in FOLDERS for path in (REPOSITORY / name).rglob("*") if path.suffix in ENDINGS]
    files += [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md"]
    lines = [
        f"{path.relative_to(REPOSITORY)}:{finding}"
        for path in sorted(files)
        if path.name != "words.py"
        for finding in findings(path.read_text(encoding="utf-8"))
    ]
    modules = sorted((REPOSITORY / "tokenfree").rglob("*.py"))
    vague = [line for path in modules for line in vague_names(path)]
    if 1e4 * len(vague) > MAX_VAGUE * sum(len(path.read_text().splitlines()) for path in modules):
        lines += vague
    print(*lines, sep="\n")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
