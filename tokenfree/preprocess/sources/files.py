"""Input files on any fsspec URL: expand paths, follow links, and find versions, hashes and language codes."""

import os
import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import IO, Any, ClassVar, cast

import fsspec
from fsspec.core import has_magic, url_to_fs
from fsspec.implementations.local import LocalFileSystem

from tokenfree.core.errors import JobError, UserError, first_line
from tokenfree.core.files import hash_stream
from tokenfree.core.storage import check_address, check_is_stored, missing_package

# ISO 639-1 codes, each with its ISO 639-3 code, because BCP 47 prefers the shorter one.
_TWO_AND_THREE = (
    "aa:aar ab:abk ae:ave af:afr ak:aka am:amh an:arg ar:ara as:asm av:ava ay:aym az:aze ba:bak be:bel bg:bul "
    "bi:bis bm:bam bn:ben bo:bod br:bre bs:bos ca:cat ce:che ch:cha co:cos cr:cre cs:ces cu:chu cv:chv cy:cym "
    "da:dan de:deu dv:div dz:dzo ee:ewe el:ell en:eng eo:epo es:spa et:est eu:eus fa:fas ff:ful fi:fin fj:fij "
    "fo:fao fr:fra fy:fry ga:gle gd:gla gl:glg gn:grn gu:guj gv:glv ha:hau he:heb hi:hin ho:hmo hr:hrv ht:hat "
    "hu:hun hy:hye hz:her ia:ina id:ind ie:ile ig:ibo ii:iii ik:ipk io:ido is:isl it:ita iu:iku ja:jpn jv:jav "
    "ka:kat kg:kon ki:kik kj:kua kk:kaz kl:kal km:khm kn:kan ko:kor kr:kau ks:kas ku:kur kv:kom kw:cor ky:kir "
    "la:lat lb:ltz lg:lug li:lim ln:lin lo:lao lt:lit lu:lub lv:lav mg:mlg mh:mah mi:mri mk:mkd ml:mal mn:mon "
    "mr:mar ms:msa mt:mlt my:mya na:nau nb:nob nd:nde ne:nep ng:ndo nl:nld nn:nno no:nor nr:nbl nv:nav ny:nya "
    "oc:oci oj:oji om:orm or:ori os:oss pa:pan pi:pli pl:pol ps:pus pt:por qu:que rm:roh rn:run ro:ron ru:rus "
    "rw:kin sa:san sc:srd sd:snd se:sme sg:sag sh:hbs si:sin sk:slk sl:slv sm:smo sn:sna so:som sq:sqi sr:srp "
    "ss:ssw st:sot su:sun sv:swe sw:swa ta:tam te:tel tg:tgk th:tha ti:tir tk:tuk tl:tgl tn:tsn to:ton tr:tur "
    "ts:tso tt:tat tw:twi ty:tah ug:uig uk:ukr ur:urd uz:uzb ve:ven vi:vie vo:vol wa:wln wo:wol xh:xho yi:yid "
    "yo:yor za:zha zh:zho zu:zul "
)
# Further ISO 639-3 codes: the languages that have a Wikipedia.
_THREE = (
    "ace ady alt ami ang ann anp arc ary arz ast atj avk awa ban bar bbc bcl bdr bew bjn blk bpy btm bug bxr cdo "
    "ceb cho chr chy ckb crh csb dag dga din diq dsb dtp dty egl ext fat fon frp frr fur gag gan gcr glk gom gor "
    "got gpe gsw guc gur guw hak haw hif hsb hyw iba igl ilo inh isv jam jbo kaa kab kaj kbd kbp kcg kge knc koi "
    "krc ksh kus lad lbe lez lfn lij lld lmo lrc ltg lzh mad mai mdf mhr min mnw mos mrj mus mwl myv mzn nah nan "
    "nap nds new nia nov nqo nrf nso nup olo pag pam pap pcd pcm pdc pfl pih pms pnb pnt pwn rki rmy rsk rue rup "
    "sah sat scn sco sgs shi shn shy skr smn srn stq syl szl szy tay tcy tdd tet tig tly tok tpi trv tum tyv udm "
    "vec vep vls vro war wuu xal xmf yue zea zgh zun "
)
SHORT_CODES = {pair[3:]: pair[:2] for pair in _TWO_AND_THREE.split()}  # deu -> de
LANGUAGES = frozenset(SHORT_CODES.values()) | frozenset(_THREE.split())

# Wikimedia codes that differ from BCP 47. https://meta.wikimedia.org/wiki/Special_language_codes
WIKIMEDIA_LANGUAGES = {
    "als": "gsw",
    "bat-smg": "sgs",
    "be-tarask": "be-tarask",
    "be-x-old": "be-tarask",
    "cbk-zam": "cbk",
    "eml": "egl",
    "fiu-vro": "vro",
    "map-bms": "jv-x-bms",
    "mo": "ro-Cyrl-MD",
    "nds-nl": "nds-NL",
    "no": "nb",
    "nrm": "nrf",
    "roa-rup": "rup",
    "roa-tara": "nap-x-tara",
    "simple": "en",
    "zh-classical": "lzh",
    "zh-min-nan": "nan",
    "zh-yue": "yue",
}
_DATABASE = re.compile(
    r"([a-z]{2,}(?:[_-][a-z]+)*?)"
    r"(?:wiki|wiktionary|wikibooks|wikinews|wikiquote|wikisource|wikiversity|wikivoyage)(?=[.-]|$)"
)
# Codes that are more likely an English word in the name of a folder or file.
_WORDS = frozenset(["ban", "bar", "bug", "fat", "got", "new", "pap", "sat", "shy", "war"])
LANGUAGE_TAG = re.compile(r"[A-Za-z]{2,3}(?:-[A-Za-z0-9]{1,8})*")  # the shape of BCP 47
_TAG = re.compile(r"([a-z]{2,3})((?:[-_](?:[A-Z][a-z]{3}|[A-Z]{2}))*)")


def wikimedia_database(file_name: str) -> tuple[str, str] | None:
    """Return the database and BCP 47 language in a dump's file name (`swwiki-20260101-...`), or None if it has none."""
    match = _DATABASE.match(file_name)
    if match is None:
        return None
    code = match[1].replace("_", "-")
    # `commons` is none.
    language = WIKIMEDIA_LANGUAGES.get(code) or (code if code in LANGUAGES else None)
    return None if language is None else (match[0].replace("-", "_"), language)


def language_tag(name: str) -> str | None:
    """Return the BCP 47 tag of a folder name such as `de`, `deu`, `pt_BR` or `zh-Hant`, or None for other names."""
    match = _TAG.fullmatch(name)
    if not match:
        return None
    code = SHORT_CODES.get(match.group(1), match.group(1))
    return code + match.group(2).replace("_", "-") if code in LANGUAGES - _WORDS else None


class LinksFollowed(LocalFileSystem):
    """Local files for one search that follows links inside folders, which fsspec skips.

    A link to a folder is entered once. A link to a folder above it is never entered, so that the search ends.
    """

    cachable: ClassVar[bool] = False  # it remembers one search

    def __init__(self) -> None:
        super().__init__()
        self._entered: set[str] = set()

    def ls(self, path: str, detail: bool = False, **kwargs: Any) -> list[Any]:
        """Return the sorted entries without links to folders above.

        Raises ValueError where fsspec skips a folder.
        """
        try:
            there = super().ls(path, detail=True, **kwargs)
        except PermissionError:
            raise ValueError(
                f"no right to look into the folder {path}; allow it, or give what else to read"
            ) from None
        infos = [self._followed(info, path) for info in sorted(there, key=lambda info: info["name"])]
        return [info if detail else info["name"] for info in infos if info is not None]

    def _followed(self, info: dict[str, Any], folder: str) -> dict[str, Any] | None:
        if not info["islink"] or not os.path.exists(info["name"]):
            return info
        target_info = self.info(info["name"])
        if target_info["type"] == "directory":
            target = os.path.realpath(info["name"])
            if target in self._entered or os.path.commonpath([target, os.path.realpath(folder)]) == target:
                return None
            self._entered.add(target)
        return target_info


_KINDS = {
    "wikipedia": "dumps (*.xml, *.xml.bz2, *.xml.gz, *.xml.xz or *.xml.zst)",
    "books": "books (*.txt or *.jsonl, also compressed, or *.parquet)",
}
READ_BYTES = 1 << 18  # a block of stored bytes, about the size of one bz2 block (900 kB of text)


@dataclass(frozen=True)
class InputFile:
    """One input file. `name` is its path below the folder or glob that found it.

    `size` is in bytes (of a dataset: in rows). `modified` is an ETag or a time of the store, or empty.
    """

    path: str
    name: str
    size: int
    modified: str

    @property
    def version(self) -> str:
        """String that changes with the content, as far as the store shows that without reading it."""
        return f"{self.size}:{self.modified}"


def open_input(path: str) -> IO[bytes]:
    """Return the file opened for reading, remote ones with blocks read ahead.

    Raises OSError if it cannot be opened.
    """
    fs, inner = url_to_fs(path)
    return fs.open(inner, "rb")  # pyright: ignore[reportReturnType]  fsspec's own file type is not an IO for pyright


def list_inputs(
    paths: Iterable[str], field: str, accepts_name: Callable[[str], bool], output: str | None = None
) -> list[InputFile]:
    """Return the files that `paths` (files, folders, globs, fsspec URLs) stand for, each once, sorted by path.

    Folders are searched recursively, and their links are followed. Folders and globs give only file names
    that are `accepts_name`, outside the directory `output`. Raises UserError if a path of `field` stands for
    no file or cannot be listed.
    """
    by_place: dict[str, InputFile] = {}
    for path in paths:
        check_address(path, field)
        try:
            files = _expand(path, field, accepts_name, output)
        except UserError:
            raise
        except ImportError as error:
            raise UserError(f"{field}: {path}: {missing_package(error)}") from None
        except Exception as error:  # remote file systems have their own classes, most of all for credentials
            raise UserError(f"{field}: cannot list {path}: {first_line(error)}") from error
        for file in files:
            check_address(file.path, field)
            # Two paths may find the same file. Which one counts must not depend on their order.
            place = _place(file.path)
            previous = by_place.get(place)
            if previous is None or _order(file, place) < _order(previous, place):
                by_place[place] = file
    files = sorted(by_place.values(), key=lambda file: file.path)
    # Two folders may have files of the same name.
    counts = Counter(file.name for file in files)
    return [replace(file, name=file.path) if counts[file.name] > 1 else file for file in files]


def _order(file: InputFile, place: str) -> tuple[bool, int, str, str]:
    return file.path != place, len(file.name), file.name, file.path


def _place(path: str) -> str:
    return os.path.realpath(path) if path.startswith("/") else path


def _expand(
    path: str, field: str, accepts_name: Callable[[str], bool], output: str | None
) -> list[InputFile]:
    # An unset shell variable; fsspec would take it for the working directory.
    if not path.strip():
        raise UserError(f"{field}: a path is empty; give {_KINDS[field]}, or a folder or glob of them")
    fs, inner = url_to_fs(path)
    # The cast keeps the static type of fs.
    if isinstance(cast(object, fs), LocalFileSystem):
        check_is_stored(inner, field)
        fs = cast(Any, LinksFollowed())
    is_glob = has_magic(inner) and not fs.exists(inner)
    if not is_glob and not fs.exists(inner):
        raise UserError(f"{field}: no such file: {path}; give {_KINDS[field]}, or a folder or glob of them")
    if not is_glob and not fs.isdir(inner):
        return [_input_file(fs, fs.info(inner), posixpath.dirname(inner))]
    if is_glob:
        root = posixpath.dirname(inner[: min(inner.find(sign) for sign in "*?[" if sign in inner)])
        listing = fs.glob(inner, detail=True)
    else:
        root = inner.rstrip("/")
        listing = fs.find(inner, detail=True)
    infos = [info for info in listing.values() if accepts_name(posixpath.basename(info["name"]))]
    for info in infos:
        if info.get("islink") and not os.path.exists(info["name"]):
            raise UserError(f"{field}: {info['name']} is a link that leads nowhere; remove it")
    files = [_input_file(fs, info, root) for info in infos if info["type"] == "file"]
    if not files:
        raise UserError(
            f"{field}: {path} {'matches no' if is_glob else 'is a folder without'} {_KINDS[field]}"
        )
    output_prefix = None if output is None else f"{_place(output.rstrip('/'))}/"
    others = [
        file for file in files if output_prefix is None or not _place(file.path).startswith(output_prefix)
    ]
    if not others:
        raise UserError(
            f"{field}: all files of {path} are in --output, which is not read: {output}. Give another one."
        )
    return others


def _input_file(fs: fsspec.AbstractFileSystem, info: Mapping[str, Any], root: str) -> InputFile:
    inner = str(info["name"])
    name = posixpath.relpath(inner, root) if root else inner.lstrip("/")
    # Object stores report an ETag, file systems a time.
    stamp = next(
        (info[key] for key in ("ETag", "etag", "mtime", "LastModified", "updated", "created") if key in info),
        "",
    )
    return InputFile(
        path=inner if isinstance(fs, LocalFileSystem) else str(fs.unstrip_protocol(inner)),
        name=name,
        size=int(info["size"] or 0),
        modified=str(stamp),
    )


def read_range(file: IO[bytes], start: int, end: int | None = None) -> Iterator[bytes]:
    """Yield the bytes `[start, end)` of an open file, block by block. `end` defaults to the end of the file."""
    file.seek(start)
    left = end - start if end is not None else None
    while left is None or left > 0:
        block = file.read(READ_BYTES if left is None else min(left, READ_BYTES))
        if not block:
            return
        if left is not None:
            left -= len(block)
        yield block


def hash_file_input(file: InputFile) -> tuple[int, str]:
    """Return the size in bytes and the SHA-256 (hex) of a file, read block by block.

    Raises OSError if the file cannot be read, and JobError if it changed since it was found or while it was
    read.
    """
    version = _look_again(file)
    with open_input(file.path) as opened:
        sha256 = hash_stream(opened)
        size = opened.tell()
    # A remote store may report other details in a listing than for a single file, so compare two single
    # reports.
    expected_version = file.version if isinstance(url_to_fs(file.path)[0], LocalFileSystem) else version
    changed = (file.size and size != file.size) or not expected_version == version == _look_again(file)
    if changed:
        raise JobError(f"{file.path}: changed while it was read; give the same command again")
    return size, sha256


def _look_again(file: InputFile) -> str:
    fs, inner = url_to_fs(file.path)
    fs.invalidate_cache()
    return _input_file(fs, fs.info(inner), "").version
