"""Find phrases that plain English does without: python -m tools.docs.words. `make lint` runs it."""

import re
import sys

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
FOLDERS = ("tokenfree", "docs", "infra", "benchmarks", "examples")
ENDINGS = (".py", ".md", ".yaml", ".jinja", ".sbatch")


def findings(text: str) -> list[str]:
    """Return a line for each phrase: its line number, the phrase, and the words to use instead."""
    return [
        f"{number}: {found[0]!r}: use {plain}"
        for number, line in enumerate(text.splitlines(), 1)
        for phrase, plain in PHRASES.items()
        if (found := phrase.search(line))
    ]


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
    print(*lines, sep="\n")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
