"""What functions.py tries: functions of a byte string that raise where a promise of `preprocess` is broken."""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

# Markup and marks of each target, which random bytes would hardly ever make.
XML_TOKENS = (
    "<page>|</page>|<revision>|</revision>|<text>|</text>|<text xml:space='preserve'/>|<title>|</title>|<ns>0</ns>"
    "|<id>7</id>|</mediawiki>|<mediawiki>"
    "|<redirect title='x'/>|&amp;|&lt;|&#x0;|&#55296;|&lol;|<![CDATA[|]]>|<page|\0|\ufeff"
)
WIKI_TOKENS = (
    "{{¦}}¦{{{¦}}}¦[[¦]]¦[¦]¦{|¦|}¦|-¦|¦||¦!!¦=¦==¦''¦'''¦'''''¦<!--¦-->¦<ref>¦</ref>¦<ref name=a/>¦<nowiki>¦</nowiki>"
    "¦<pre>¦</pre>¦<math>¦</math>¦<br/>¦<div¦>¦</div>¦[[File:a.png|thumb|¦[[Category:¦{{convert|5|km|mi}}"
    "¦{{val|1.5|e=3|u=m}}¦{{lang|fr|x}}¦{{formatnum:1000}}¦{{!}}¦{{=}}¦#REDIRECT¦*¦#¦:¦;¦\n¦----¦&nbsp;¦&#0;¦&#x1F600;"
    "¦__TOC__¦-{¦}-¦-{zh-hans:a;zh-hant:b}-¦~~~~¦http://a.b/c ¦[http://a.b c]¦\x02¦\x02" "0\x02¦\x04¦\x05¦\x07"
)  # fmt: skip
TEXT_TOKENS = (
    "\u0301|\u200d|\u200c|\ufe0f|👩‍🚀|🏳️‍🌈|e\u0301|ﬁ|ß|İ|ǅ|中|文。|ไทย|한국|नमस्ते|עִבְרִית|العربية|aB|HTMLParser|▁|▅|<unk>|<0x41>|\0|\x85"
    "|\u2028|\u3000|\xa0|\u200b|\ufeff|\uffff|\U0010ffff|\U0001d54f|\n|\r\n|\t|  |.|...|?!|“|”|_|-|ab12CD"
)
CPU_SECONDS = 2.0  # allowed for any input, and this for each megabyte:
CPU_SECONDS_PER_MB = 10.0


class BrokenPromise(AssertionError):
    """What a target saw."""


@dataclass(frozen=True)
class Target:
    """`check` raises for a byte string that breaks a promise; `seeds` make inputs, `tokens` are put into them."""

    check: Callable[[bytes], object]
    seeds: Callable[[Sequence[bytes]], list[bytes]]
    tokens: Sequence[bytes]


class Maker(Protocol):
    """Builds a target from pages of XML."""

    def __call__(self, pages: Sequence[bytes]) -> Target: ...


def expect(holds: bool, message: str) -> None:
    """Raise BrokenPromise unless it holds."""
    if not holds:
        raise BrokenPromise(message)


def timed(check: Callable[[bytes], object]) -> Callable[[bytes], object]:
    """The check, and that it takes CPU time in proportion to its input."""

    def run(data: bytes) -> None:
        start = time.process_time()
        check(data)
        used = time.process_time() - start
        allowed = CPU_SECONDS + CPU_SECONDS_PER_MB * len(data) / 1e6
        expect(used <= allowed, f"{used:.1f} CPU seconds for {len(data)} bytes")

    return run


def make_reader(pages: Sequence[bytes]) -> Target:
    """A dump gives the same pages however it is cut, or one UserError."""
    from tokenfree.core.errors import UserError
    from tokenfree.preprocess.config import PreprocessConfig
    from tokenfree.preprocess.records import Failure
    from tokenfree.preprocess.sources.splits import plan_splits, read_split

    path = Path(tempfile.mkdtemp(prefix="tokenfree-fuzz-")) / "enwiki-fuzz.xml"

    def read(split_bytes: int) -> list[tuple[str, str, str]]:
        config = PreprocessConfig(wikipedia=(str(path),), split_bytes=split_bytes)
        found = []
        for split in plan_splits(config):
            for page in read_split(split):
                page.text.encode()  # a page that cannot be written would lose its shard
                lost = isinstance(page, Failure)
                found.append((page.id, page.reason if lost else page.title, "" if lost else page.text))
        return found

    def check(data: bytes) -> None:
        path.write_bytes(data)
        try:
            whole = read(1 << 25)
        except UserError as error:
            expect("\n" not in str(error) and bool(str(error)), f"an error of several lines: {error}")
            return
        parts = read(max(1000, len(data) // 3))
        pages_alone = [[row for row in rows if row[2]] for rows in (whole, parts)]
        expect(pages_alone[0] == pages_alone[1], f"{len(whole)} pages in one split, {len(parts)} in several")

    def seeds(pages: Sequence[bytes]) -> list[bytes]:
        head = b'<mediawiki version="0.11" xml:lang="en"><siteinfo><dbname>enwiki</dbname></siteinfo>\n'
        dumps = [head + b"".join(pages[i : i + 3]) + b"</mediawiki>\n" for i in range(0, min(len(pages), 60), 3)]
        streams = [bz2.compress(head) + b"".join(map(bz2.compress, pages[:3])) + bz2.compress(b"</mediawiki>")]
        return [*dumps, *streams, *(pack(dumps[0]) for pack in (bz2.compress, gzip.compress, lzma.compress))]

    return Target(timed(check), seeds, encode_tokens(XML_TOKENS, "|"))


def make_cleaner(pages: Sequence[bytes]) -> Target:
    """Any wikitext gives text that can be written, without marks of the passes and not much longer than it was."""
    from tokenfree.preprocess.records import Site
    from tokenfree.preprocess.wikitext.cleaner import clean

    sites = [
        Site.from_siteinfo(f'<mediawiki xml:lang="{language}">', database=f"{language}wiki", language=language)
        for language in ("en", "de", "fr", "ja", "zh", "uk", "vi", "bn", "ltg", "und")
    ]
    controls = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")

    def check(data: bytes) -> None:
        wikitext = data.decode(errors="ignore")
        text = clean(wikitext, sites[len(wikitext) % len(sites)])
        text.encode()
        found = controls.search(text)
        expect(found is None, f"control character {found[0]!r} in the text" if found else "")
        expect(len(text) <= 4 * len(wikitext) + 1000, f"{len(text)} characters of {len(wikitext)}")

    return Target(timed(check), wikitexts, encode_tokens(WIKI_TOKENS, "¦"))


def make_words(pages: Sequence[bytes]) -> Target:
    """Words are in order, cut at characters, of at most 128 bytes, and cover what is not white space."""
    from tokenfree.preprocess.text.words import MAX_WORD_BYTES, word_spans

    def check(data: bytes) -> None:
        text = data.decode(errors="ignore")
        encoded = text.encode()
        starts, ends = (values.tolist() for values in word_spans(text))
        expect(len(starts) == len(ends), "as many starts as ends")
        expect(starts == sorted(starts) and all(a <= b for a, b in zip(ends, starts[1:], strict=False)), "order")
        expect(all(0 < end - start <= MAX_WORD_BYTES for start, end in zip(starts, ends, strict=True)), "length")
        words = [encoded[start:end].decode() for start, end in zip(starts, ends, strict=True)]  # fails inside one
        expect(not any(character.isspace() for word in words for character in word), "white space in a word")
        expect("".join(words) == "".join(text.split()), "words do not cover the text")

    return Target(timed(check), plain_texts, encode_tokens(TEXT_TOKENS, "|"))


def make_aligner(pages: Sequence[bytes]) -> Target:
    """`Vocabulary.encode_batch` gives the ids of SentencePiece and the spans of its protos, whatever the model."""
    import sentencepiece

    from tokenfree.preprocess.config import VocabularyConfig
    from tokenfree.preprocess.features.vocabulary import Vocabulary, train_vocabulary

    texts = [text.decode() for text in plain_texts(pages)]
    configs = [
        VocabularyConfig(size=4000, character_coverage=0.98),
        VocabularyConfig(size=4000, character_coverage=0.98, byte_fallback=False),
        VocabularyConfig(size=4000, character_coverage=0.98, byte_fallback=False, algorithm="bpe"),
    ]
    vocabularies = [Vocabulary.load(train_vocabulary(texts, config, 0)) for config in configs]
    processors = [sentencepiece.SentencePieceProcessor(model_proto=each.model) for each in vocabularies]

    def check(data: bytes) -> None:
        parts = data.decode(errors="ignore")[:60_000].split("\x1e")
        for vocabulary, processor in zip(vocabularies, processors, strict=True):
            for part, found in zip(parts, vocabulary.encode_batch(parts), strict=True):
                ours = list(zip(*(column.tolist() for column in found), strict=True))
                expect(ours == spans_of_protos(processor, part), f"spans of {part[:60]!r}")

    return Target(timed(check), plain_texts, (*encode_tokens(TEXT_TOKENS, "|"), b"\x1e"))


def spans_of_protos(processor: object, text: str) -> list[tuple[int, int, int]]:
    """Ids and spans of the visible part of each piece, character by character from SentencePiece's byte offsets."""
    at_byte = [index for index, character in enumerate(text) for _ in character.encode()] + [len(text)]
    spans = []
    for piece in processor.encode(text.replace("\n", " "), return_type="proto").pieces:  # pyright: ignore
        start, end = at_byte[piece.begin], at_byte[piece.end]
        if piece.begin == piece.end and processor.is_byte(piece.id):  # pyright: ignore  only the last byte has a width
            end = start + 1
        while start < end and text[start].isspace():
            start += 1
        while start < end and text[end - 1].isspace():
            end -= 1
        if start < end:
            spans.append((piece.id, start, end))
    return spans


def wikitexts(pages: Sequence[bytes]) -> list[bytes]:
    """The text of each page."""
    from tokenfree.preprocess.sources.wikipedia import unescape

    found = [re.search(rb"<text[^>]*>(.*)</text>", page, re.DOTALL) for page in pages]
    return [unescape(match[1].decode()).encode() for match in found if match]


def plain_texts(pages: Sequence[bytes]) -> list[bytes]:
    """The same without most of the markup, some of it joined."""
    plain = [re.sub(rb"[{}\[\]|'=<>]+", b" ", text) for text in wikitexts(pages)]
    choose = random.Random(0)
    return [*plain, *(b"\x1e".join(choose.sample(plain, k=min(3, len(plain)))) for _ in plain[:20])]


def encode_tokens(tokens: str, separator: str) -> tuple[bytes, ...]:
    """The tokens in UTF-8."""
    return tuple(token.encode() for token in tokens.split(separator) if token)


TARGETS: dict[str, Maker] = {
    "reader": make_reader,
    "cleaner": make_cleaner,
    "words": make_words,
    "aligner": make_aligner,
}
