"""Template rules for words: text in another language, quotations, links to articles that are missing, lists, ships."""

from tokenfree.preprocess.wikitext.templates.arguments import get, positional
from tokenfree.preprocess.wikitext.templates.braces import Rule

Arguments = dict[str, str]


def first(arguments: Arguments) -> str:
    """The first argument, by position or by a usual name."""
    return get(arguments, "1", "text", "content", "quote", "code")


def second(arguments: Arguments) -> str:
    """The second argument: `{{lang|fr|mot}}`; without it the named text, else nothing."""
    return get(arguments, "2", "text", "texte")


def last(arguments: Arguments) -> str:
    """The last argument by position: `{{transl|ar|ALA|alif}}`."""
    values = positional(arguments)
    return values[-1] if values else ""


def constant(text: str) -> Rule:
    """A rule that always gives the same text."""
    return lambda arguments: text


def around(before: str, after: str = "") -> Rule:
    """A rule that sets the first argument between two texts."""

    def rule(arguments: Arguments) -> str:
        shown = first(arguments)
        return f"{before}{shown}{after}" if shown else ""

    return rule


def joined(separator: str) -> Rule:
    """A rule that joins the arguments."""
    return lambda arguments: separator.join(value for value in positional(arguments) if value)


def named(*names: str) -> Rule:
    """A rule that gives the first argument present, in this order."""
    return lambda arguments: get(arguments, *names)


def abbreviated(arguments: Arguments) -> str:
    """A language template, of which only the text shows: `{{lang-de|Berlin|label=none}}`."""
    return get(arguments, "1", "text")


def nihongo(arguments: Arguments) -> str:
    """`{{nihongo|English|kanji|romaji|extra}}`: "English (kanji, romaji, extra)"."""
    values = [*positional(arguments)[:4], "", "", "", ""]
    inside = ", ".join(value for value in values[1:4] if value)
    if not inside:
        return values[0]
    return f"{values[0]} ({inside})" if values[0] else inside


def reading(arguments: Arguments) -> str:
    """Japanese 読み仮名: `{{読み仮名|物理学|ぶつりがく|physics}}` is 物理学（ぶつりがく、physics）."""
    values = positional(arguments)
    inside = "、".join(value for value in values[1:] if value)
    return f"{values[0]}（{inside}）" if inside else "".join(values[:1])


def ruby(arguments: Arguments) -> str:
    """Base text with its reading in brackets."""
    values = [*positional(arguments)[:2], "", ""]
    return f"{values[0]}（{values[1]}）" if values[1] else values[0]


def ship(prefix: str) -> Rule:
    """`{{HMS|Exeter|68}}`: "HMS Exeter (68)"; a third argument other than 1 leaves out the hull number."""

    def rule(arguments: Arguments) -> str:
        values = [*positional(arguments)[:3], "", "", ""]
        hull = f" ({values[1]})" if values[1] and values[2] in ("", "1") else ""
        name = values[0] if values[2] == "3" else f"{prefix} {values[0]}".strip()
        return f"{name}{hull}"

    return rule


def any_ship(arguments: Arguments) -> str:
    """`{{ship|French battleship|Bouvet||2}}`."""
    values = [*positional(arguments)[:3], "", "", ""]
    hull = f" ({values[2]})" if values[2] else ""
    return f"{values[0]} {values[1]}{hull}".strip()


def quotation(arguments: Arguments) -> str:
    """`{{quote|text|author|source}}`: the text, then who said it."""
    text = get(arguments, "text", "quote", "1", "цитата", "citation", "zitat", "texte")
    values = positional(arguments)
    others = values[1:3] if "text" not in arguments and "quote" not in arguments else values[:2]
    author = get(arguments, "author", "sign", "by", "автор", "auteur", "autor", "người nói")
    source = get(arguments, "source", "title", "nguồn")
    credit = ", ".join(part for part in ([author, source] if author or source else others) if part and "px" not in part)
    credit = credit.lstrip("-–— ")
    # On lines of its own: in MediaWiki it is a block.
    return f"\n{text}\n— {credit}\n" if credit and text else f"\n{text}\n" if text else ""


def chinese(arguments: Arguments) -> str:
    """`{{zh|s=西沙群岛|t=西沙群島|p=Xīshā}}`: the forms, without labels."""
    names = ("c", "s", "t", "hv", "p", "w", "j", "l")
    values = [*positional(arguments), *(get(arguments, name) for name in names)]
    return ", ".join(dict.fromkeys(value for value in values if value))


def music(arguments: Arguments) -> str:
    """`{{music|flat}}`: ♭."""
    name = get(arguments, "1").lower()
    signs = {"flat": "♭", "b": "♭", "sharp": "♯", "#": "♯", "natural": "♮", "doublesharp": "𝄪", "doubleflat": "𝄫"}
    return signs.get(name, name if len(name) < 4 else "")
