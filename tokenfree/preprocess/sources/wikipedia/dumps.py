"""What a dump's head tells (format, encoding, site), and the parts that it is cut into."""

from __future__ import annotations

import codecs
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from fsspec.core import url_to_fs

from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.records.input_split import Format, InputSplit
from tokenfree.preprocess.records.wiki_site import UNKNOWN_DATABASE, Site
from tokenfree.preprocess.sources.inputs.compression import Block, Damage, Source, read_blocks
from tokenfree.preprocess.sources.inputs.files import InputFile, open_input
from tokenfree.preprocess.sources.inputs.languages import WIKIMEDIA_LANGUAGES, wikimedia_database
from tokenfree.preprocess.sources.inputs.stream_formats import BZ2_HEADER, HEADER_BYTES, stored_format

HEAD_BYTES = 1_000_000  # decompressed, of each dump, to learn how well it compresses
MAX_HEAD_BYTES = 16_000_000  # a dump has its first page before
PROBE_BYTES = 64_000_000  # a bz2 file without a second stream before is taken for one stream
_REFUSED = {
    b"7z\xbc\xaf'\x1c": ("a 7z archive", "7z x -so {path} | bzip2 > {stem}.bz2"),
    b"PK\x03\x04": ("a zip archive", "unzip -p {path} | bzip2 > {stem}.bz2"),
    b"Rar!": ("a RAR archive", "unrar p -inul {path} | bzip2 > {stem}.bz2"),
}
_BYTE_ORDER_MARKS = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be", b"<\0": "utf-16-le", b"\0<": "utf-16-be"}
_DECLARATION = re.compile(rb"<\?xml[^>]*?\bencoding=[\"']([\w.:-]+)[\"']")
_ENCODINGS = re.compile(r"iso8859-\d+|cp125\d|koi8-[ru]|gbk|gb18030|gb2312|big5|euc_jp|euc_kr|shift_jis")
_PAGE = re.compile(r"<page[\s>]")
_ROOT = re.compile(r"<mediawiki\b(?:[^<>]*?\bversion=\"(\d{1,4})\.(\d{1,4})\")?")
_OFFSET = re.compile(rb"(?m)^(\d{1,15}):")


@dataclass(frozen=True)
class DumpHead:
    """What the first blocks of a dump tell; `ratio` is decompressed bytes per stored byte."""

    format: Format
    encoding: str
    site: Site
    rooted: bool
    needs_ns: bool
    ratio: float


def is_dump_name(name: str) -> bool:
    """Whether a file in a folder is taken for a dump: `.xml` in its name and no index, checksum or stub of one."""
    return (
        ".xml" in name and "-index" not in name and "-stub" not in name and not name.endswith(("sum", ".txt", ".rss"))
    )


def split_dump(file: InputFile, language: str | None, split_bytes: int) -> list[InputSplit]:
    """The parts of a dump, of about `split_bytes` decompressed bytes each.

    Raises:
        UserError: it is no dump, or one that cannot be read in a stream.
    """
    head = read_head(file, language)
    cuts = [0, *_cuts(file, head, split_bytes), file.size]
    return [
        InputSplit(
            kind="wikipedia",
            format=head.format,
            inputs=(file.path,),
            names=(file.name,),
            versions=(file.version,),
            languages=(head.site.language,),
            start=start,
            end=end,
            size=max(1, round((end - start) * head.ratio)),
            site=head.site,
            encoding=head.encoding,
            rooted=head.rooted,
            needs_ns=head.needs_ns,
        )
        for start, end in pairwise(cuts)
    ]


def read_head(file: InputFile, language: str | None) -> DumpHead:
    """What a dump tells as far as its first page (and some on).

    Raises:
        UserError: the file holds no page of a dump, or is in a format or an encoding that is not known.
    """
    path = file.path
    if file.size == 0:
        raise UserError(f"wikipedia: {path} is empty; download it again")
    with open_input(path) as opened:
        magic = opened.read(HEADER_BYTES)
    for signature, (what, remedy) in _REFUSED.items():
        if magic.startswith(signature):
            command = remedy.format(path=path, stem=path.rpartition(".")[0])
            raise UserError(f"wikipedia: {path} is {what}, which cannot be read in a stream; unpack it: {command}")
    stored = stored_format(magic)
    start, damaged, consumed = b"", False, 0
    for event in read_blocks(path, stored, 0, file.size):
        if isinstance(event, Block):
            start, consumed = start + event.data, event.position
        damaged |= isinstance(event, Damage)
        if len(start) >= HEAD_BYTES and (len(start) >= MAX_HEAD_BYTES or b"<page" in start.replace(b"\0", b"")):
            break
    encoding = _encoding(start[:1000], path)
    text = start.decode(encoding, errors="replace")
    page = _PAGE.search(text)
    xml = text[: page.start()] if page else text
    root = _ROOT.search(xml)
    if not page:
        raise UserError(f"wikipedia: {path} {_no_page(damaged, root is not None, file.name, stored)}")
    version = (int(root.group(1)), int(root.group(2))) if root and root.group(1) else None
    return DumpHead(
        format=stored,
        encoding=encoding,
        site=_site(file.name, xml, language),
        rooted=root is not None,
        needs_ns=version is not None and version >= (0, 6),
        ratio=len(start) / max(1, consumed),
    )


def _no_page(damaged: bool, rooted: bool, name: str, stored: Format) -> str:
    if damaged:
        return "is damaged and no page of it can be read; download it again"
    if rooted:
        return "is a MediaWiki dump without a page; leave it out or download it again"
    suffix = name.rpartition(".")[2]
    if suffix in ("bz2", "gz", "xz", "zst") and suffix != stored:
        return f"is no {suffix} file; download it again"
    return "is no MediaWiki XML dump; give a file such as enwiki-latest-pages-articles.xml.bz2"


def _encoding(start: bytes, path: str) -> str:
    for mark, encoding in _BYTE_ORDER_MARKS.items():
        if start.startswith(mark):
            return encoding
    declared = _DECLARATION.search(start)
    name = declared.group(1).decode() if declared else "utf-8"
    try:
        encoding = codecs.lookup(name).name
    except LookupError:
        encoding = name
    if encoding in ("utf-8", "ascii", "utf-16"):  # a declaration that can be read as ASCII is not in UTF-16
        return "utf-8"
    if not _ENCODINGS.fullmatch(encoding):
        raise UserError(f"wikipedia: {path} declares the encoding {name}, which is not known; convert it to UTF-8")
    return encoding


def _site(file_name: str, xml: str, language: str | None) -> Site:
    """The file's name wins over the dump's head, which in excerpts and converted dumps is often another wiki's."""
    base = file_name.rpartition("/")[2]
    known = wikimedia_database(base)
    database, told = known or (None, None)
    site = Site.from_siteinfo(xml, database=database, language=language or told)
    if not (language or told):
        site = replace(site, language=WIKIMEDIA_LANGUAGES.get(site.language.lower(), site.language))
    if site.database == UNKNOWN_DATABASE:
        site = replace(site, database=re.sub(r"[^\w-]+", "_", base.partition(".")[0]) or UNKNOWN_DATABASE)
    return site


def _cuts(file: InputFile, head: DumpHead, split_bytes: int) -> list[int]:
    """Where the parts after the first begin. Readers find pages and streams by themselves, so any position is right."""
    step = max(1, round(split_bytes / head.ratio))
    num_parts = math.ceil(file.size / step)
    if num_parts < 2 or head.encoding != "utf-8" or head.format not in ("xml", "bz2"):
        return []
    if head.format == "bz2":
        cuts = _index_cuts(file, step)
        if cuts:
            return cuts
        with open_input(file.path) as opened:
            if not Source(opened, 1).seek_header(BZ2_HEADER, PROBE_BYTES):
                return []
    return [file.size * part // num_parts for part in range(1, num_parts)]


def _index_cuts(file: InputFile, step: int) -> list[int]:
    """Starts of streams, about `step` bytes apart, from the index beside a dump; none if there is none that fits."""
    cuts: list[int] = []
    start = last = 0
    for offset in _index_offsets(file.path):
        if offset < last or offset >= file.size:
            return []  # the index of another dump
        if offset - start > step and last > start:
            cuts.append(last)
            start = last
        last = offset
    if last - start > 0 and file.size - start > step:
        cuts.append(last)
    sample = cuts[:: max(1, len(cuts) // 16)]
    with open_input(file.path) as opened:
        return cuts if all(BZ2_HEADER.match(Source(opened, cut).peek()) for cut in sample) else []


def _index_offsets(path: str) -> Iterator[int]:
    fs, inner = url_to_fs(path)
    folder, slash, name = inner.rpartition("/")
    plain = re.sub(r"multistream(\d*)\.xml", r"multistream-index\1.txt", name)
    plain = plain if plain != name else name.replace(".xml", "-index.txt", 1)
    for candidate in (plain, plain.removesuffix(".bz2")):
        index = folder + slash + candidate
        if candidate != name and fs.exists(index):
            yield from _parse_index(str(fs.unstrip_protocol(index)), fs.size(index))
            return


def _parse_index(path: str, size: int) -> Iterator[int]:
    """The offsets of the lines `offset:page id:title`; those of one stream's pages are equal."""
    rest = b""
    last = -1
    for event in read_blocks(path, "bz2" if path.endswith(".bz2") else "xml", 0, size):
        if not isinstance(event, Block):
            return
        lines, _, rest = (rest + event.data).rpartition(b"\n")
        for offset in map(int, _OFFSET.findall(lines)):
            if offset != last:
                yield offset
                last = offset
