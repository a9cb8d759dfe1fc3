"""Write `tokenfree/preprocess/wikitext/words.txt`, words of wikitext in all languages, from MediaWiki's messages.

usage: python -m tools.docs.list_wiki_words MEDIAWIKI    (a checkout or release, with languages/messages)
"""

import re
import sys
import unicodedata
from pathlib import Path

from tools import REPOSITORY

WORDS = REPOSITORY / "tokenfree" / "preprocess" / "wikitext" / "words.txt"
_TOKEN = re.compile(
    r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"|(?:#|//)[^\n]*|/\*.*?\*/|(\w+|=>|[\[\](),;])", re.DOTALL
)
# Names of Wikimedia's extensions, aliases of its wikis, and names of earlier versions.
_OTHERS = {
    "switch": "archivedtalk disambig expected_unconnected_page expectunusedtemplate nocollaborationhubtoc nodiscussion "
    "noexternallanglinks nonewsectionlink notalk",
    "category": "cat kat kaurangay tūrāroa зүйл پ",
    "file": "bestand comhad fl larawan skrá һүрәт وێنە చిత్రం චිත්‍රය ໄຟລ໌ 文件夹",
}


def assignments(php: str) -> dict[str, list[tuple[str, bool]]]:
    """Return the tokens of each array that is assigned to a variable, and whether each is a quoted string."""
    arrays = {}
    for match in re.finditer(
        r"^\$(\w+)\s*=\s*(?:\[|array\()(.*?)[\])];[ \t]*$", php, re.MULTILINE | re.DOTALL
    ):
        tokens = []
        for token in _TOKEN.finditer(match[2]):
            quoted = token[1] if token[1] is not None else token[2]
            if quoted is not None or token[3]:
                tokens.append(
                    (re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else token[3], quoted is not None)
                )
        arrays[match[1]] = tokens
    return arrays


def words_of(php: str) -> dict[str, set[str]]:
    """Return the words of one language by kind."""
    words: dict[str, set[str]] = {"redirect": set(), "switch": set(), "file": set(), "category": set()}
    arrays = assignments(php)
    name = ""
    tokens = arrays.get("magicWords", [])
    for index, (token, quoted) in enumerate(tokens):
        if quoted and tokens[index + 1 : index + 2] == [("=>", False)]:
            name = token
        elif quoted and name == "redirect" and token not in "01":
            words["redirect"].add(token.strip("#＃'"))
        elif quoted and re.fullmatch(r"[_＿]{2}.+[_＿]{2}", token):
            words["switch"].add(token.strip("_＿"))
    for kind, constant in (("file", "NS_FILE"), ("category", "NS_CATEGORY")):
        for array in ("namespaceNames", "namespaceAliases"):
            tokens = arrays.get(array, [])
            for index, (token, _) in enumerate(tokens):
                # `NS_FILE => 'Name'` and `'Name' => NS_FILE`.
                if token in (constant, constant.replace("FILE", "IMAGE")):
                    near = index + 2 if array == "namespaceNames" else index - 2
                    words[kind].add(tokens[near][0].replace("_", " "))
    return words


def main() -> None:
    words = {kind: set(names.split()) for kind, names in {"redirect": "", **_OTHERS}.items()}
    for path in sorted((Path(sys.argv[1]) / "languages" / "messages").glob("Messages*.php")):
        for kind, names in words_of(path.read_text("utf-8")).items():
            words[kind] |= {unicodedata.normalize("NFC", name).casefold().strip() for name in names}
    lines = [f"{kind}\t{name}\n" for kind in sorted(words) for name in sorted(words[kind] - {""})]
    WORDS.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
