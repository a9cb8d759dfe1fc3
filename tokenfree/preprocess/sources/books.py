"""Books and other plain documents: text files (one book each), JSON lines and Parquet tables."""

import codecs
import dataclasses
import math
import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

import charset_normalizer

from tokenfree.core.errors import UserError
from tokenfree.core.files import without_surrogates
from tokenfree.preprocess.config import PreprocessConfig, Reader, steps_of
from tokenfree.preprocess.records import Failure, Format, InputSplit, Page, StepFailure
from tokenfree.preprocess.sources.compression import Block, Damage
from tokenfree.preprocess.sources.files import LANGUAGE_TAG, InputFile, language_tag, open_input, read_range
from tokenfree.preprocess.sources.tables import (
    MAX_BOOK_BYTES,
    PACKED_RATIO,
    RAW_BYTES,
    TableColumns,
    check_json_lines,
    endings,
    is_packed,
    num_row_groups,
    parts_of,
    read_packed,
    read_table,
    table_split,
    unpacked_name,
)

_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark is a prefix of this one
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

# Measured on 690 texts in ten languages. With 200 or more bytes beyond ASCII, charset-normalizer got none
# wrong among these encodings and refused 29. With 50 to 100 such bytes it got 1 in 16 wrong, with fewer 1 in
# 4. It sometimes takes French and German in Windows-1252, of any length, for johab or Big5, so Windows-1252
# is tried first.
GUESSED_BYTES = 400  # twice the 200 bytes of that measurement
# Letters are as frequent as in some language; not defined for Japanese and Korean.
COHERENCE = 0.1
_WIDE = ("cp932", "euc_jp", "gb18030", "big5", "cp949")
_OTHERS = ("cp1251", "koi8_r", "koi8_u", "iso8859_5", "cp866", "mac_cyrillic", "cp1253", "iso8859_7",
           "cp1255", "cp1256", "iso8859_6", "cp874")  # fmt: skip


class NotText(ValueError):
    """A file that is not text.

    Its only argument is the reason: too_large, binary, html, xml or bad_encoding.
    """


def decode_book(data: bytes) -> str:
    """Return the text of a file, without its byte order mark.

    Raises NotText with the reason if it is not text. UTF-16 without a mark is recognized by the NULs of its
    ASCII characters. Bytes that are neither UTF-8 nor UTF-16 are decoded as Windows-1252 if they do not look
    like damaged UTF-8, have none of its undefined codes and are at most a quarter beyond ASCII.
    charset-normalizer finds the encodings of other scripts, in texts that are long enough for it to be sure.
    """
    if data.startswith(_BINARY):
        raise NotText("binary")
    marks = (pair for pair in _BYTE_ORDER_MARKS if data.startswith(pair[0]))
    mark, encoding = next(marks, (b"", _unmarked_encoding(data)))
    body = data[len(mark) :]
    sample = body[:SAMPLE_BYTES]
    if encoding == "utf-8" and len(sample) - len(sample.translate(None, _CONTROLS)) > 0.02 * len(sample):
        raise NotText("binary")
    text = _decode(body, encoding)
    # The spaces of EBCDIC.
    if text.count("@") > len(text) / 10:
        raise NotText("bad_encoding")
    match = _MARKUP.match(text[:4000].encode(errors="replace"))
    if match and (match.group(1) or text.lstrip().startswith(("<?xml", "<mediawiki"))):
        raise NotText("html" if match.group(1) else "xml")
    return text


def _unmarked_encoding(data: bytes) -> str:
    sample = data[:SAMPLE_BYTES]
    half = max(1, len(sample) // 2)
    even, odd = sample[0::2].count(0) / half, sample[1::2].count(0) / half
    if odd > 0.3 and even < 0.05:
        return "utf-16-le"
    return "utf-16-be" if even > 0.3 and odd < 0.05 else "utf-8"


def _decode(data: bytes, encoding: str) -> str:
    try:
        text = data.decode(encoding)
        return (_escaped_text(data) or text) if encoding == "utf-8" and text.isascii() else text
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
    if num_high <= 0.4 * len(visible) and (text := _latin_text(data)) is not None:
        return text
    if num_high < GUESSED_BYTES:
        raise NotText("bad_encoding")
    return _guess(data)


def _guess(data: bytes) -> str:
    best = charset_normalizer.from_bytes(data, cp_isolation=[*_WIDE, *_OTHERS]).best()
    if best is None or (best.encoding not in _WIDE and best.coherence < COHERENCE):
        raise NotText("bad_encoding")
    text = data.decode(best.encoding)
    beyond_ascii = [character for character in text[:SAMPLE_BYTES] if character > "\x7f"]
    # Hebrew of DOS looks like capitals in Cyrillic.
    if sum(map(str.isupper, beyond_ascii)) > len(beyond_ascii) / 2:
        raise NotText("bad_encoding")
    return text


# Wrong letters cost more than a missing text. An encoding of Latin script counts only if nearly all letters
# beyond ASCII are those of one language, because most mistakes show: Polish in Windows-1250 is no language in
# Windows-1252.
# Letters beyond ASCII of each language that Windows-1252 holds, and of others.
_WESTERN_LETTERS = """
àâæçèéêëîïôœùûüÿ äöüß áéíñóúü àáâãçéêíóôõúü àèéìíîòóùú áèéêëïíóöúü åäöé åæøéóòôèêâ áðéíóúýþæö áíóúýðæø äõöüšž
àçèéíïòóúü ëç áàéèíìóòúù
"""
_EASTERN_LETTERS = """
ąćęłńóśźż áčďéěíňóřšťúůýž áäčďéíĺľňóôŕšťúýž áéíóöőúüű ăâîşţ ăâîșț čćđšž čšž ąčęėįšųūž āčēģīķļņšūž çğıöşüâîû
ĉĝĥĵŝŭ ċġħżàèìòù
"""
_WESTERN = _WESTERN_LETTERS.split()
_EASTERN = _EASTERN_LETTERS.split()
# Letters of foreign words and names, which are frequent in some books.
_FOREIGN = frozenset("éèêàáçñíóöäü")
_MARKS = frozenset("“”‘’„‚«»‹›–—…•·§°©®™£€¿¡×½¼¾²³¹ªº¶\xa0\xad†")
_IN_WORD = re.compile(r"(?<=[a-z])([^\x00-\x7f’‘·–—…\xad])(?=[a-zªº¹²³¼½¾»¿À-ɏ])")
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]")
_CODE_PAGES = """
cp1250 iso8859_2 cp1254 iso8859_3 cp1257 iso8859_4 iso8859_10 iso8859_13 iso8859_16 mac_roman mac_latin2
mac_croatian mac_turkish cp437 cp850 cp852 cp775 cp857
"""
SAMPLE_CHARACTERS = 2_000_000
MIN_LETTERS = 30  # beyond ASCII, for all encodings except Windows-1252

_ESCAPES = re.compile(rb"\x1b\$[@AB()]|\x1b\.[AF]")
_ESCAPE_ENCODINGS = (
    "iso2022_kr",
    "iso2022_jp",
    "iso2022_jp_2",
    "iso2022_jp_2004",
    "iso2022_jp_3",
    "iso2022_jp_ext",
)
_HZ = re.compile(rb"~\{(?:[\x21-\x7d][\x21-\x7e])+~\}")


def _escaped_text(data: bytes) -> str | None:
    """Return the text of seven-bit bytes in ISO-2022 or HZ, or None if they are not in these."""
    names = _ESCAPE_ENCODINGS if _ESCAPES.search(data) else ("hz",) if _HZ.search(data) else ()
    return next(_decoded(data, names), None)


def _latin_text(data: bytes) -> str | None:
    """Return the text of bytes in Latin script, or None if no encoding or several give words of a language."""
    for text in _decoded(data, ["cp1252"]):
        sample = text[:SAMPLE_CHARACTERS]
        # An English book has letters beyond ASCII in words of many languages, a German one in French words.
        few = len(_BEYOND_ASCII.findall(sample)) < len(sample) / 200
        alphabets = ["".join(_WESTERN)] if few else _WESTERN
        if _strangeness(text, alphabets, _FOREIGN) <= 0.03:
            return text
    texts = {
        text
        for text in _decoded(data, _CODE_PAGES.split())
        if len(_BEYOND_ASCII.findall(text[:SAMPLE_CHARACTERS])) >= MIN_LETTERS
        and _strangeness(text, [*_WESTERN, *_EASTERN], frozenset()) <= 0.01
    }
    return texts.pop() if len(texts) == 1 else None


def _decoded(data: bytes, encodings: Sequence[str]) -> Iterator[str]:
    for name in encodings:
        try:
            yield data.decode(name)
        except UnicodeDecodeError:
            continue


def _strangeness(text: str, alphabets: Sequence[str], foreign: frozenset[str]) -> float:
    """Return the share of characters beyond ASCII that do not belong to the language that fits best."""
    text = text[:SAMPLE_CHARACTERS]
    counts = Counter(_BEYOND_ASCII.findall(text.lower()))
    # Capitals and symbols inside words are letters of another encoding.
    in_word = sum(not mark.isalpha() or mark.isupper() or mark in _MARKS for mark in _IN_WORD.findall(text))
    letters = {letter: number for letter, number in counts.items() if letter not in _MARKS}
    odd_letters = min(
        sum(
            number * (0.25 if letter in foreign else 1)
            for letter, number in letters.items()
            if letter not in alphabet
        )
        for alphabet in alphabets
    )
    # One odd letter is a misprint.
    return (odd_letters + in_word) / max(40, counts.total())


_START = re.compile(
    r"^[ \t]*\*{3} ?START OF TH(?:E|IS) PROJECT GUTENBERG[^*]{0,400}\*{3}.*$", re.MULTILINE | re.I
)
_OLD_START = re.compile(r"^\*END\*? ?THE SMALL PRINT!.*\*END\*.*$", re.MULTILINE)
# The end of the header in the format of 2003, which has the small print after the book.
_NAMED_START = re.compile(r"^\*+ ?This file should be named .*$", re.MULTILINE | re.I)
_END = re.compile(
    r"^[ \t]*(?:\*{3} ?END OF TH(?:E|IS) PROJECT GUTENBERG|End of (?:the |this )?Project Gutenberg|"
    r"Ende dieses Proje[kc]t Gutenberg|Fin (?:du|de) Proje[ct]+ Gutenberg)",
    re.MULTILINE | re.I,
)
_TITLE = re.compile(r"^Title:(.*)$", re.MULTILINE)
_CREDITS = re.compile(
    r"\s*\[?(?:(?:E-?text|This (?:Project Gutenberg )?(?:e-?text|e-?book|file)|HTML version)? ?(?:was |has been )?"
    r"(?:produced|prepared|transcribed|created|scanned|converted|digiti[sz]ed|proofread)(?: and \w+)? (?:by|from)\b|"
    r"Credits?:|Transcriber's Note|Corrected EDITIONS|Project Gutenberg (?:e-?texts|e-?books) are |"
    r"We are now trying to release|and the (?:Project Gutenberg )?Online Distributed Proofread|"
    r"(?:from (?:page )?)?images generously|Images of the original|Note: (?:Project Gutenberg|Images of the original|"
    r"The original |This (?:e-?text|e-?book|file) |There is an? ))",
    re.I,
)
_PARAGRAPH_BREAK = re.compile(r"\n[^\S\n]*(?:\n[^\S\n]*)+")
# Scripts without spaces between words: Thai, Lao, Burmese, Khmer, Chinese and Japanese; and Korean.
_UNSPACED = re.compile(
    r"[\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]"
)
_SHARED_MARKS = "‘’“”…—–·"  # used by Chinese and by others
# Characters; no page is set wider.
MAX_WRAP_WIDTH = 160
HEADER_CHARACTERS = 30_000
MAX_CREDITS = 10


def strip_gutenberg(text: str) -> tuple[str, str | None]:
    """Return the book without the header and footer of Project Gutenberg, and the title in the header or None."""
    start = _START.search(text, 0, HEADER_CHARACTERS)
    end = _END.search(text, start.end() if start else 0)
    if not start:
        limit = min(HEADER_CHARACTERS, end.start() if end else HEADER_CHARACTERS)
        start = _OLD_START.search(text, 0, limit) or _NAMED_START.search(text, 0, limit)
    if not start and not (end and "Project Gutenberg" in text[:HEADER_CHARACTERS]):
        return text, None
    title = _TITLE.search(text, 0, start.start()) if start else None
    body = text[start.end() if start else 0 : end.start() if end else len(text)].strip()
    for _ in range(MAX_CREDITS):
        credit, separator, rest = body.partition("\n\n")
        # A credit is a short paragraph. A longer one is the book, in a file without blank lines.
        if not _CREDITS.match(credit) or not separator or len(credit) > 1000:
            break
        body = rest.lstrip()
    return body, (title.group(1).strip() or None) if title else None


def paragraphs(text: str) -> str:
    """Return the text with one paragraph per line, and blank lines between paragraphs that the file separates.

    Lines that were wrapped at a page width are joined. Files with one paragraph or sentence per line keep
    their lines.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\f", "\n\n").strip("\n")
    width = wrap_width([len(line) for line in map(str.strip, text.split("\n")) if line])
    blocks = [
        [line for line in map(str.strip, block.split("\n")) if line] for block in _PARAGRAPH_BREAK.split(text)
    ]
    return "\n\n".join("\n".join(_unwrap(lines, width) if width else lines) for lines in blocks if lines)


def wrap_width(lengths: list[int]) -> int | None:
    """Return the width, in characters, at which lines of these lengths were wrapped, or None if they were not.

    Wrapped lines crowd just below the width: over a third of them have at least 80% of the length of the 95th
    percentile (over half in real books, including verse and dialogue). Of sentences and paragraphs, about a
    tenth do.
    """
    if len(lengths) < 20:
        return None
    ordered = sorted(lengths)
    width = ordered[int(0.95 * (len(ordered) - 1))]
    num_full = sum(length >= 0.8 * width for length in ordered)
    # A few lines may stick out, as tables do, but wrapped prose has almost no lines beyond twice the width.
    num_beyond = sum(length > 2 * width for length in ordered)
    wrapped = width <= MAX_WRAP_WIDTH and num_full > len(ordered) / 3 and num_beyond < len(ordered) / 100
    return width if wrapped else None


def _unwrap(lines: list[str], width: int) -> list[str]:
    """Join lines, except those that end well before the width although the next word had room: verse and lists."""
    joined = [lines[0]]
    for previous, line in pairwise(lines):
        first_word = 1 if _UNSPACED.match(line) else len(line.split(None, 1)[0])
        if len(previous) + 1 + first_word < 0.7 * width:
            joined.append(line)
        else:
            joined[-1] += _glue(previous, line) + line
    return joined


def _glue(left: str, right: str) -> str:
    """Return what joins two lines: nothing in scripts without spaces or after a hyphen, else a space."""
    # The character next to quotation marks shows their script.
    last, first = left.rstrip(_SHARED_MARKS)[-1:], right.lstrip(_SHARED_MARKS)[:1]
    if _UNSPACED.match(last) and _UNSPACED.match(first) and not ("\uac00" <= last <= "\ud7af"):
        return ""
    hyphenated = left[-1] == "-" and left[-2:-1].isalpha() and right[0].isalpha()
    return "" if hyphenated else " "


JSON_LINES = (".jsonl", ".ndjson", ".jsonlines", ".jl", ".json")
DETECTED = "detected"  # the encoding of a split of text files
_FORMATS: dict[str, Format] = {".txt": "text", ".parquet": "parquet", **dict.fromkeys(JSON_LINES, "jsonl")}
UNDETERMINED = "und"
# Of files that are not texts.
_NOT_BOOKS = (".zip", ".tar", ".tgz", ".7z", ".csv", ".tsv", ".arrow")


def is_book_name(name: str) -> bool:
    """Return True if a file in a folder is read as a book.

    Indexes of dumps and `.json` (mostly settings) are not.
    """
    content, packed = endings(name)
    return content != ".json" and _form(content, packed) is not None and "multistream-index" not in name


def _form(content: str, packed: str) -> Format | None:
    return None if content == ".parquet" and packed else _FORMATS.get(content)


def check_book_name(file: InputFile) -> None:
    """Raise UserError if a file that the user named has an ending other than that of text, JSON lines or Parquet."""
    content, packed = endings(file.name)
    if content in _NOT_BOOKS or (content == ".parquet" and packed):
        raise UserError(
            f"books: {file.path}: *{content}{packed} is not read. Unpack archives; give the folder of a table to "
            "--hf-dataset, or write it as *.parquet or *.jsonl"
        )


def split_books(
    files: Sequence[InputFile], columns: TableColumns, config: PreprocessConfig
) -> list[InputSplit]:
    """Return splits of at most about `split_bytes`: groups of text files in order, parts of tables, other files."""
    language, split_bytes, encoding = config.language, config.split_bytes, config.encoding or DETECTED
    languages, suffixes = _languages(files, language), suffixes_of(config)
    splits: list[InputSplit] = []
    group: list[InputFile] = []
    for file in files:
        if file.name.endswith(suffixes):
            split = _text_split([file], languages, encoding)
            splits.append(dataclasses.replace(split, format="custom", language_given=language is not None))
            continue
        form = _form(*endings(file.name)) or "text"
        if form != "text":
            splits += _parts(file, form, columns, languages[file.path], language is not None, split_bytes)
            continue
        if group and sum(map(_num_bytes, group)) + _num_bytes(file) > split_bytes:
            splits.append(_text_split(group, languages, encoding))
            group = []
        group.append(file)
    return [*splits, _text_split(group, languages, encoding)] if group else splits


def suffixes_of(config: PreprocessConfig) -> tuple[str, ...]:
    return tuple(reader.suffix for reader in steps_of(config).readers)


def _num_bytes(file: InputFile) -> int:
    return file.size * PACKED_RATIO if is_packed(file.name) else file.size


def _text_split(files: Sequence[InputFile], languages: dict[str, str], encoding: str) -> InputSplit:
    size = sum(map(_num_bytes, files))
    return InputSplit(
        kind="books",
        format="text",
        inputs=tuple(file.path for file in files),
        names=tuple(file.name for file in files),
        versions=tuple(file.version for file in files),
        languages=tuple(languages[file.path] for file in files),
        end=size,
        size=size,
        encoding=encoding,
    )


def _parts(
    file: InputFile,
    form: Format,
    columns: TableColumns,
    language: str,
    language_is_fixed: bool,
    split_bytes: int,
) -> Iterator[InputSplit]:
    length, size = file.size, _num_bytes(file)
    if form == "jsonl":
        check_json_lines(file, columns)
    else:
        length = num_row_groups(file, columns)
    num_parts = min(1 if is_packed(file.name) else math.ceil(size / split_bytes), length)
    split = table_split(file, form, columns, language, language_is_fixed=language_is_fixed)
    yield from parts_of(split, num_parts, length, math.ceil(size / max(1, num_parts)))


def _languages(files: Sequence[InputFile], language: str | None) -> dict[str, str]:
    """Return the language by path: that of the job, else of the folder's name, else of the file's prefix.

    Prefixes count only if all files of a folder have one, so that `my_antonia.txt` is not taken for Burmese.
    """
    prefixes: dict[str, set[str | None]] = {}
    for file in files:
        prefixes.setdefault(posixpath.dirname(file.path), set()).add(_prefix_language(file.path))
    tags = {}
    for file in files:
        folder = posixpath.dirname(file.path)
        by_prefix = None if None in prefixes[folder] else _prefix_language(file.path)
        tags[file.path] = language or language_tag(posixpath.basename(folder)) or by_prefix or UNDETERMINED
    return tags


def _prefix_language(path: str) -> str | None:
    prefix, underscore, _ = posixpath.basename(path).partition("_")
    return language_tag(prefix) if underscore and len(prefix) == 2 else None


def read_books(split: InputSplit, readers: Sequence[Reader] = ()) -> Iterator[Page | Failure]:
    """Yield the books of a split, in order. `readers` are those that the job adds.

    A file or line that is not a book becomes a failure with its name.
    """
    if split.format == "custom":
        yield from _read_custom(split, readers)
    elif split.format == "text":
        for path, name, language in zip(split.inputs, split.names, split.languages, strict=True):
            yield from (
                _read_packed(path, name, language, split.encoding)
                if is_packed(path)
                else _read_text(path, name, language, split.encoding)
            )
    else:
        yield from read_table(split)


def _read_text(path: str, name: str, language: str, encoding: str) -> Iterator[Page | Failure]:
    with open_input(path) as file:
        data = b"".join(read_range(file, 0, MAX_BOOK_BYTES + 1))
    yield parse_book(data, name, language, encoding)


def _read_custom(split: InputSplit, readers: Sequence[Reader]) -> Iterator[Page | Failure]:
    """Yield the documents of a file. An exception of the reader is a failure, and ends the file."""
    name, language = split.names[0], split.languages[0]
    reader = next(reader for reader in readers if name.endswith(reader.suffix))
    try:
        for document in reader.documents(split.inputs[0]):
            is_tagged = not split.language_given and LANGUAGE_TAG.fullmatch(document.language)
            yield Page(
                id=f"books:{name}:{without_surrogates(document.id)}",
                language=document.language if is_tagged else language,
                title=without_surrogates(document.title),
                text=without_surrogates(document.text),
            )
    except Exception as error:
        # The input cannot be read now, but perhaps later.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        yield StepFailure(f"books:{name}", f"{reader.name}: {type(error).__name__}", "", error)


def _read_packed(path: str, name: str, language: str, encoding: str) -> Iterator[Page | Failure]:
    """Yield a compressed book.

    A book cut off by damage is a failure; garbage after a book is an additional failure.
    """
    data, damage = bytearray(), None
    for event in read_packed(path):
        if isinstance(event, Block):
            data += event.data
        damage = event if isinstance(event, Damage) else None
        if damage is not None or len(data) > MAX_BOOK_BYTES:
            break
    if damage is not None and damage.reason != "trailing_garbage":
        yield Failure(f"books:{name}", damage.reason, data[:RAW_BYTES].decode(errors="replace"))
        return
    yield parse_book(bytes(data), name, language, encoding)
    if damage is not None:
        yield Failure(f"books:{name}:bytes {damage.offset}", damage.reason, "")


def parse_book(data: bytes, name: str, language: str, encoding: str = DETECTED) -> Page | Failure:
    """Return the book of a text file, or a failure with a reason: too_large, binary, html, xml or bad_encoding."""
    try:
        if len(data) > MAX_BOOK_BYTES:
            raise NotText("too_large")
        text = decode_book(data) if encoding == DETECTED else data.decode(encoding)
    except (NotText, UnicodeError) as error:
        reason = str(error) if isinstance(error, NotText) else "bad_encoding"
        return Failure(f"books:{name}", reason, data[:RAW_BYTES].decode(errors="replace"))
    body, title = strip_gutenberg(text.replace("\r\n", "\n").replace("\r", "\n"))
    stem = posixpath.splitext(posixpath.basename(unpacked_name(name)))[0]
    return Page(id=f"books:{name}", language=language, title=title or stem, text=paragraphs(body))
