"""Write `tokenfree/preprocess/text/scripts.txt`, the runs of codepoints of each writing system, from Unicode's table.

fontTools, which matplotlib brings, has the table: https://www.unicode.org/reports/tr24/.
"""

import itertools

from fontTools.unicodedata import Scripts

from tools import REPOSITORY

TABLE = REPOSITORY / "tokenfree" / "preprocess" / "text" / "scripts.txt"
# What many writing systems share, such as spaces, digits and accents.
NONE = {"Common", "Inherited", "Unknown"}


def main() -> None:
    names = [Scripts.NAMES[code].replace("_", " ") for code in Scripts.VALUES]
    runs = zip(Scripts.RANGES, ("" if name in NONE else name for name in names), strict=True)
    starts = ((name, next(run)[0]) for name, run in itertools.groupby(runs, key=lambda run: run[1]))
    TABLE.write_text("".join(f"{start:X} {name}".rstrip() + "\n" for name, start in starts), encoding="ascii")


if __name__ == "__main__":
    main()
