"""Bytes of a book file to text: Unicode, Windows-1252 or an encoding of another script; or why it is no text."""

from __future__ import annotations

import codecs
import contextlib
import re

import charset_normalizer

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

# Of 690 texts with 200 and more bytes beyond ASCII, in ten languages, charset-normalizer got none wrong among these
# encodings and refused 29; with 50 to 100 such bytes it got each sixteenth wrong, with fewer each fourth. It takes
# French and German in Windows-1252, of any length, for johab and Big5 now and then: hence ours before it.
GUESSED_BYTES = 400  # twice that
COHERENCE = 0.1  # that the letters are as frequent as in some language; not known of Japanese and Korean
_WIDE = ("cp932", "euc_jp", "gb18030", "big5", "cp949")
_OTHERS = ("cp1250", "cp1251", "koi8_r", "koi8_u", "iso8859_5", "cp866", "mac_cyrillic", "cp1253", "iso8859_7",
           "cp1255", "cp1256", "iso8859_6", "cp874")  # fmt: skip


class NotText(ValueError):
    """A file that is no text; its only argument is the reason: binary, html, xml, bad_encoding."""


def decode_book(data: bytes) -> str:
    """The text of a file, without byte order mark.

    UTF-16 without a mark is told by the NULs of its ASCII characters. What is neither UTF-8 nor UTF-16, and shows no
    sign that it is UTF-8 with a few bytes damaged, is taken for Windows-1252 (Latin-1 with quotation marks) where that
    is plausible: no code that it leaves undefined, at most a quarter of the characters beyond ASCII. charset-normalizer
    finds the encodings of other scripts, in texts that are long enough for it to be sure. Any other is a bad_encoding.

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
    if num_beyond_ascii > num_bad:
        raise NotText("bad_encoding")
    if num_high <= 0.25 * len(visible):
        with contextlib.suppress(UnicodeDecodeError):
            return data.decode("cp1252")
    if num_high < GUESSED_BYTES:
        raise NotText("bad_encoding")
    return _guess(data)


def _guess(data: bytes) -> str:
    best = charset_normalizer.from_bytes(data, cp_isolation=[*_WIDE, *_OTHERS]).best()
    if best is None or (best.encoding not in _WIDE and best.coherence < COHERENCE):
        raise NotText("bad_encoding")
    return data.decode(best.encoding)


def _refuse_markup(text: str) -> None:
    match = _MARKUP.match(text[:4000].encode(errors="replace"))
    if match and (match.group(1) or text.lstrip().startswith(("<?xml", "<mediawiki"))):
        raise NotText("html" if match.group(1) else "xml")
