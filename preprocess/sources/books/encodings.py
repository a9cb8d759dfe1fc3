"""Bytes of a book file to text: UTF-8, UTF-16, UTF-32 or, last, Windows-1252; or why it is no text."""

from __future__ import annotations

import codecs
import re

_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_BINARY = (
    b"%PDF",
    b"PK\x03\x04",
    b"\x1f\x8b",
    b"BZh",
    b"\xfd7zXZ",
    b"\x89PNG",
    b"\xff\xd8\xff",
    b"{\\rtf",
    b"7z\xbc\xaf",
)
_MARKUP = re.compile(
    rb"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:(!doctype\s+html|html|head|body)|[!?a-z])", re.I | re.S
)
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\x0b\x0c\r\x1a\x1b"))
SAMPLE_BYTES = 65536


class NotText(ValueError):
    """A file that is no text; its only argument is the reason: binary, html, xml, bad_encoding."""


def decode_book(data: bytes) -> str:
    """The text of a file, without byte order mark.

    UTF-16 without a mark is told by the NULs of its ASCII characters. What is neither UTF-8 nor UTF-16 is taken for
    Windows-1252 (Latin-1 with quotation marks), but only where that is plausible: no code that it leaves undefined,
    at most a quarter of the characters beyond ASCII, and no sign that it is UTF-8 with a few bytes damaged. Any other
    text in the 8-bit encodings of Cyrillic, Chinese and so on would come out as nonsense, hence bad_encoding.

    Raises:
        NotText: it is none; the reason is its argument.
    """
    if data.startswith(_BINARY):
        raise NotText("binary")
    encoding = _unicode_encoding(data)
    mark = next((mark for mark, name in _BYTE_ORDER_MARKS if name == encoding and data.startswith(mark)), b"")
    body = data[len(mark) :]
    if encoding == "utf-8" and _is_binary(body):
        raise NotText("binary")
    text = _decode(body, encoding)
    _refuse_markup(text)
    return text


def _unicode_encoding(data: bytes) -> str:
    for mark, name in _BYTE_ORDER_MARKS:
        if data.startswith(mark):
            return name
    sample = data[:SAMPLE_BYTES]
    half = max(1, len(sample) // 2)
    even, odd = sample[0::2].count(0) / half, sample[1::2].count(0) / half
    if odd > 0.3 and even < 0.05:
        return "utf-16-le"
    return "utf-16-be" if even > 0.3 and odd < 0.05 else "utf-8"


def _is_binary(data: bytes) -> bool:
    sample = data[:SAMPLE_BYTES]
    controls = len(sample) - len(sample.translate(None, _CONTROLS))
    return controls > 0.02 * len(sample)


def _decode(data: bytes, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        if encoding != "utf-8":
            raise NotText("bad_encoding") from error
    repaired = data.decode("utf-8", errors="replace")
    num_bad = repaired.count("\ufffd")
    num_beyond_ascii = sum(len(run) for run in re.findall(r"[^\x00-\x7f]+", repaired)) - num_bad
    visible = data.translate(None, b" \t\r\n")
    num_high = len(visible) - len(visible.translate(None, bytes(range(128, 256))))
    if num_beyond_ascii > num_bad or num_high > 0.25 * len(visible):
        raise NotText("bad_encoding")
    try:
        return data.decode("cp1252")
    except UnicodeDecodeError as error:
        raise NotText("bad_encoding") from error


def _refuse_markup(text: str) -> None:
    match = _MARKUP.match(text[:4000].encode(errors="replace"))
    if match and (match.group(1) or text.lstrip().startswith(("<?xml", "<mediawiki"))):
        raise NotText("html" if match.group(1) else "xml")
