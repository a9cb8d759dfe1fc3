"""Pages about the blocks of Unicode: a chart, each character's name and properties in sentences, and its numerals.

The names and properties are those of `unicodedata`, so they follow the Unicode version of the Python at hand.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

from tokenfree.workflows.demo_corpus.dump_writer import DemoPage
from tokenfree.workflows.demo_corpus.wikitext import escape

# First and last code point and name: blocks of living scripts and of common symbols, in the order of their use here.
BLOCKS = (
    (0x0400, 0x04FF, "Cyrillic"), (0x0370, 0x03FF, "Greek and Coptic"), (0x0600, 0x06FF, "Arabic"),
    (0x0590, 0x05FF, "Hebrew"), (0x0900, 0x097F, "Devanagari"), (0x0980, 0x09FF, "Bengali"), (0x0E00, 0x0E7F, "Thai"),
    (0x3040, 0x309F, "Hiragana"), (0x30A0, 0x30FF, "Katakana"), (0x1100, 0x11FF, "Hangul Jamo"),
    (0x1200, 0x137F, "Ethiopic"), (0x0530, 0x058F, "Armenian"), (0x10A0, 0x10FF, "Georgian"),
    (0x0B80, 0x0BFF, "Tamil"), (0x0C00, 0x0C7F, "Telugu"), (0x0C80, 0x0CFF, "Kannada"), (0x0D00, 0x0D7F, "Malayalam"),
    (0x0A00, 0x0A7F, "Gurmukhi"), (0x0A80, 0x0AFF, "Gujarati"), (0x0D80, 0x0DFF, "Sinhala"),
    (0x1000, 0x109F, "Myanmar"),
    (0x1780, 0x17FF, "Khmer"), (0x0E80, 0x0EFF, "Lao"), (0x0F00, 0x0FFF, "Tibetan"), (0x1800, 0x18AF, "Mongolian"),
    (0x0100, 0x017F, "Latin Extended-A"), (0x1E00, 0x1EFF, "Latin Extended Additional"),
    (0x0080, 0x00FF, "Latin-1 Supplement"), (0x0180, 0x024F, "Latin Extended-B"), (0x0250, 0x02AF, "IPA Extensions"),
    (0x13A0, 0x13FF, "Cherokee"), (0x2D30, 0x2D7F, "Tifinagh"), (0x07C0, 0x07FF, "NKo"), (0x0700, 0x074F, "Syriac"),
    (0x0780, 0x07BF, "Thaana"), (0x1F00, 0x1FFF, "Greek Extended"), (0x2000, 0x206F, "General Punctuation"),
    (0x20A0, 0x20CF, "Currency Symbols"), (0x2100, 0x214F, "Letterlike Symbols"), (0x2150, 0x218F, "Number Forms"),
    (0x2190, 0x21FF, "Arrows"), (0x2200, 0x22FF, "Mathematical Operators"), (0x2600, 0x26FF, "Miscellaneous Symbols"),
    (0x3100, 0x312F, "Bopomofo"), (0x1400, 0x14FF, "Unified Canadian Aboriginal Syllabics"),
    (0xAC00, 0xACFF, "Hangul Syllables"), (0x2500, 0x257F, "Box Drawing"), (0x25A0, 0x25FF, "Geometric Shapes"),
    (0x2F00, 0x2FDF, "Kangxi Radicals"), (0x0840, 0x085F, "Mandaic"), (0x1B00, 0x1B7F, "Balinese"),
    (0xA980, 0xA9DF, "Javanese"), (0x1700, 0x171F, "Tagalog"), (0xA000, 0xA0FF, "Yi Syllables"),
    (0xA500, 0xA5FF, "Vai"), (0x16A0, 0x16FF, "Runic"), (0x1680, 0x169F, "Ogham"), (0x2C80, 0x2CFF, "Coptic"),
    (0x10330, 0x1034F, "Gothic"), (0x12000, 0x120FF, "Cuneiform"), (0x1F600, 0x1F64F, "Emoticons"),
    (0x1F300, 0x1F3FF, "Miscellaneous Symbols and Pictographs"), (0x2700, 0x27BF, "Dingbats"),
    (0x1D100, 0x1D1FF, "Musical Symbols"), (0x13000, 0x130FF, "Egyptian Hieroglyphs"),
    (0x2800, 0x28FF, "Braille Patterns"),
)  # fmt: skip
# Sentences show the characters of these scripts only, which the articles use too. Those of all blocks would be some
# 8,000 characters that occur once or twice, and no small subword vocabulary has room for so many.
_SHOWN = frozenset(
    ("Cyrillic", "Greek and Coptic", "Arabic", "Hebrew", "Devanagari", "Bengali", "Thai", "Hiragana", "Katakana")
)
_KINDS = {
    "Lu": "an uppercase letter", "Ll": "a lowercase letter", "Lt": "a titlecase letter", "Lm": "a modifier letter",
    "Lo": "a letter without case", "Mn": "a mark that takes no space", "Mc": "a mark that takes space",
    "Me": "an enclosing mark", "Nd": "a decimal digit", "Nl": "a letter that serves as a number", "No": "a number",
    "Pc": "a connecting mark", "Pd": "a dash", "Ps": "an opening bracket", "Pe": "a closing bracket",
    "Pi": "an opening quotation mark", "Pf": "a closing quotation mark", "Po": "a punctuation mark",
    "Sm": "a mathematical sign", "Sc": "a currency sign", "Sk": "a modifier sign", "So": "a symbol", "Zs": "a space",
    "Cf": "an invisible control of layout",
}  # fmt: skip


def unicode_pages() -> Iterator[DemoPage]:
    """A page for each block of `BLOCKS`."""
    for first, last, name in BLOCKS:
        characters = [chr(code) for code in range(first, last + 1) if unicodedata.name(chr(code), "")]
        if characters:
            yield DemoPage(f"{name} (Unicode block)", _page(name, first, last, characters))


def describe(character: str, *, shown: bool = True) -> str:
    """Sentences about one character: `U+0416 Ж is named CYRILLIC CAPITAL LETTER ZHE. It is an uppercase letter. ...`"""
    sentences = [f"{_mention(character, shown)} is named {unicodedata.name(character)}."]
    kind = _KINDS.get(unicodedata.category(character))
    if kind:
        sentences.append(f"It is {kind}.")
    for other, relation in ((character.lower(), "lowercase"), (character.upper(), "uppercase")):
        if other != character and len(other) == 1:
            sentences.append(f"Its {relation} form is {_mention(other, shown)}.")
    value = unicodedata.numeric(character, None)
    if value is not None:
        sentences.append(f"It stands for the value {value:g}.")
    parts = unicodedata.decomposition(character).split()
    if parts:
        how = "may be replaced by" if parts[0].startswith("<") else "is made of"
        names = [unicodedata.name(chr(int(part, 16)), part) for part in parts if not part.startswith("<")]
        sentences.append(f"It {how} {' and '.join(names)}.")
    return " ".join(sentences)


def _mention(character: str, shown: bool) -> str:
    visible = shown and character.isprintable() and not unicodedata.combining(character)
    return f"{_code(character)} {escape(character)}" if visible else _code(character)


def _code(character: str) -> str:
    return f"U+{ord(character):04X}"


def _page(name: str, first: int, last: int, characters: list[str]) -> str:
    shown = name in _SHOWN
    digits = [character for character in characters if unicodedata.category(character) == "Nd"]
    rows = [_row(code, characters) for code in range(first, last + 1, 16)]
    paragraphs = [characters[i : i + 8] for i in range(0, len(characters), 8)]
    return (
        f"{{{{Infobox Unicode block\n| rangestart = {first:04X}\n| rangeend = {last:04X}\n| blockname = {name}\n"
        f"| assigned = {len(characters)}\n}}}}\n"
        f"'''{name}''' is a [[Unicode block]] from U+{first:04X} to U+{last:04X}, with "
        f"{last - first + 1}&nbsp;places, of which {len(characters)} hold a character with a name.<ref>"
        f"{{{{cite web |title=Code charts |publisher=The Unicode Consortium |url=https://www.unicode.org/charts/}}}}"
        f"</ref>\n\n== Chart ==\n"
        f'{{| class="wikitable nounderlines" style="text-align:center"\n|+ {name}\n'
        f"! !! {' !! '.join('0123456789ABCDEF')}\n{''.join(rows)}|}}\n\n"
        + (
            "== Digits ==\n"
            + "".join(f"* {_mention(d, shown)} has the value {unicodedata.digit(d)}\n" for d in digits)
            + "\n"
            if digits
            else ""
        )
        + "== Characters ==\n"
        + "\n\n".join(" ".join(describe(character, shown=shown) for character in paragraph) for paragraph in paragraphs)
        + "\n\n== References ==\n{{reflist}}\n\n[[Category:Unicode blocks]]\n"
    )


def _row(code: int, characters: list[str]) -> str:
    known = set(characters)
    cells = (chr(code + i) for i in range(16))
    shown = (f"&#x{ord(c):X};" if c in known and unicodedata.category(c)[0] not in "CZ" else "" for c in cells)
    return f"|-\n! U+{code >> 4:03X}x\n| {' || '.join(shown)}\n"
