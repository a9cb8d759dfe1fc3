"""Text of corpora as HTML: escaped, in its own direction, with what cannot be seen drawn."""

from markupsafe import Markup

from tokenfree.workflows.samples.windows import on_one_line


def bdi(text: str) -> Markup:
    """A piece of text in its own direction, whatever is beside it; characters that show nothing are told by number."""
    shown = "".join(character if character.isprintable() else f"U+{ord(character):04X}" for character in text)
    return Markup("<bdi>{}</bdi>").format(shown)


def text_cell(*parts: str) -> Markup:
    """A line of text in its own direction, of parts that are text, escaped here, or marked already."""
    drawn = (part if isinstance(part, Markup) else on_one_line(part) for part in parts)
    return Markup('<span class="sample" dir="auto">{}</span>').format(Markup("").join(drawn))
