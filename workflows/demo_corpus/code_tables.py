"""Pages made of the tables that Python carries: character encodings, HTML entities, HTTP status codes."""

from __future__ import annotations

import codecs
import html.entities
import http
import unicodedata
from collections.abc import Iterator

from tokenfree.workflows.demo_corpus.dump_writer import DemoPage
from tokenfree.workflows.demo_corpus.wikitext import escape

_ENCODINGS = (
    "koi8-r", "cp1251", "cp866", "iso8859-5", "mac-cyrillic", "cp1253", "iso8859-7", "cp1255", "iso8859-8", "cp1256",
    "iso8859-6", "iso8859-11", "cp874", "cp1258", "cp1254", "iso8859-9", "cp437", "cp850", "cp852", "cp1250", "cp1257",
    "iso8859-13", "mac-roman", "mac-greek", "koi8-u", "ptcp154", "hp-roman8", "cp864",
)  # fmt: skip


def table_pages() -> Iterator[DemoPage]:
    """A page for each one-byte encoding above, with a redirect from its canonical name, then the two lists."""
    for name in _ENCODINGS:
        try:
            canonical = codecs.lookup(name).name
        except LookupError:
            continue
        title = f"Code page {name}"
        yield DemoPage(title, _encoding_page(name))
        if canonical != name:
            yield DemoPage(f"Encoding {canonical}", f"#REDIRECT [[{title}]]", redirect=title)
    yield DemoPage("List of HTML entities", _entities_page())
    yield DemoPage("List of HTTP status codes", _status_page())


def _encoding_page(name: str) -> str:
    letters = {byte: bytes([byte]).decode(name, "replace") for byte in range(0x80, 0x100)}
    named = {byte: letter for byte, letter in letters.items() if len(letter) == 1 and _named(letter)}
    rows = "".join(
        f"|-\n! {start:X}\n| "
        + " || ".join(f"&#{ord(named[b])};" if b in named else "" for b in range(start, start + 16))
        for start in range(0x80, 0x100, 16)
    ).replace("|-", "\n|-")
    sentences = (
        f"Byte 0x{byte:02X} stands for {escape(letter)}, {unicodedata.name(letter)} (U+{ord(letter):04X})."
        for byte, letter in named.items()
        if letter.isprintable()
    )
    return (
        f"'''{name}''' is a [[character encoding]] that gives each character one byte. Its lower half is [[ASCII]]; "
        f"of the 128 bytes in the upper half, {len(named)} stand for a character.<ref>{{{{cite web "
        f"|title=Standard encodings |url=https://docs.python.org/3/library/codecs.html}}}}</ref>\n\n"
        f'{{| class="wikitable"\n|+ Upper half of {name}{rows}\n|}}\n\n== Characters ==\n{" ".join(sentences)}\n\n'
        "== References ==\n<references/>\n\n[[Category:Character encodings]]\n"
    )


def _named(letter: str) -> bool:
    return letter != "\ufffd" and bool(unicodedata.name(letter, ""))


def _entities_page() -> str:
    items = "".join(
        f"* <code>&amp;{name};</code> gives &{name}; ({unicodedata.name(chr(code), 'a control character').lower()})\n"
        for name, code in sorted(html.entities.name2codepoint.items())
    )
    return (
        "An '''HTML entity''' names a character that is hard to type or has a meaning in [[HTML]]. The name stands "
        f"between an ampersand and a semicolon.\n\n== List ==\n{items}\n[[Category:Character encodings]]\n"
    )


def _status_page() -> str:
    items = "".join(
        f"; {status.value} {status.phrase}\n: {status.description or 'The phrase says it all'}.\n"
        for status in http.HTTPStatus
    )
    return (
        "A server that speaks '''[[HTTP]]''' opens each answer with a '''status code''' of three digits, of which the "
        f"first tells the kind of answer.\n\n{items}\n[[Category:Internet]]\n"
    )
