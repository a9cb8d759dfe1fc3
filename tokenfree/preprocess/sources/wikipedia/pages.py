"""A dump's part to pages: page XML to title, text and what else one needs, a `Failure` for each page that is broken."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tokenfree.preprocess.records.document import Failure
from tokenfree.preprocess.records.input_split import InputSplit
from tokenfree.preprocess.records.page import Page
from tokenfree.preprocess.records.wiki_site import Site
from tokenfree.preprocess.sources.inputs.compression import read_blocks
from tokenfree.preprocess.sources.wikipedia.page_scanner import Loss, as_utf8, scan_pages

_TITLE = re.compile(r"<title\b[^<>]*>([^<]*)</title>")
_NAMESPACE = re.compile(r"<ns>\s*(-?\d{1,9})\s*</ns>")
_ID = re.compile(r"<id>\s*(\d{1,20})\s*</id>")
_TEXT = re.compile(r"<text(?:\s[^<>]*)?/?>")
_MODEL = re.compile(r"<model>([^<]*)</model>")
_CDATA = "<![CDATA["
_NUMERIC_ENTITY = re.compile(r"&#(?:x([0-9a-fA-F]{1,8})|([0-9]{1,8}));")
_REDIRECT = re.compile(r"\s*#\s*redirect\b", re.IGNORECASE)


def read_pages(split: InputSplit) -> Iterator[Page | Failure]:
    """The pages that start in the split, in the order of the file; damage and broken pages come as failures."""
    assert split.site is not None
    events = read_blocks(split.inputs[0], split.format, split.start, split.end)
    if split.encoding != "utf-8":
        events = as_utf8(events, split.encoding)
    for found in scan_pages(events, split.rooted):
        if isinstance(found, Loss):
            yield _failure(found, split.site)
        else:
            yield parse_page(found.data, split.site, needs_ns=split.needs_ns)


def parse_page(data: bytes, site: Site, *, needs_ns: bool = True) -> Page | Failure:
    """The last revision of one `<page>` element in UTF-8, or why there is none.

    Reasons: bad_encoding, missing_title, missing_ns (only if it `needs_ns`; older dumps tell the namespace by the title
    alone), missing_id, missing_text. An empty `<text/>` is an empty text.
    """
    try:
        xml = data.decode()
    except UnicodeDecodeError:
        xml = data.decode(errors="replace")
        return Failure(_page_id(xml, site), "bad_encoding", xml)
    revision = xml.rfind("<revision")
    head = xml[: xml.find("<revision")] if revision >= 0 else xml
    title_match, namespace, page_id = _TITLE.search(head), _NAMESPACE.search(head), _ID.search(head)
    opening = _TEXT.search(xml, revision) if revision >= 0 else None
    closing = xml.find("</text>", opening.end()) if opening else -1
    empty = opening is not None and opening.group().endswith("/>")
    reasons = {
        "missing_title": title_match is None,
        "missing_ns": namespace is None and needs_ns,
        "missing_id": page_id is None,
        "missing_text": not empty and closing < 0,
    }
    reason = next((name for name, holds in reasons.items() if holds), None)
    if reason or not (title_match and page_id and opening):
        return Failure(_page_id(xml, site), reason or "missing_text", xml)
    title = unescape(title_match.group(1)).strip()
    text = "" if empty else unescape(xml[opening.end() : closing])
    # Content model: before the text in present dumps, after it in those of 2012 to 2013.
    model = _MODEL.search(xml, revision, opening.start()) or _MODEL.search(xml, max(closing, opening.end()))
    return Page(
        id=_page_id(xml, site),
        language=site.language,
        title=title,
        text=text,
        namespace=int(namespace.group(1)) if namespace else site.namespace_of(title),
        redirect="<redirect" in head or _REDIRECT.match(text) is not None,
        model=model.group(1).strip() if model else "wikitext",
        site=site,
        kind="wikitext",
    )


def unescape(raw: str) -> str:
    """Character data as XML means it: line ends, the five entities, numbers; others, such as a bomb's, stay.

    Numbers of what is no character (surrogates, NUL, beyond Unicode) become U+FFFD.
    """
    if "\r" in raw:
        raw = raw.replace("\r\n", "\n").replace("\r", "\n")
    if _CDATA in raw:
        before, *sections = raw.split(_CDATA)
        return unescape(before) + "".join(map(_unescape_section, sections))
    if "&" not in raw:
        return raw
    if "&#" in raw:
        raw = _NUMERIC_ENTITY.sub(_character, raw)
    raw = raw.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", '"').replace("&apos;", "'")
    return raw.replace("&amp;", "&")  # last, so that `&amp;lt;` stays `&lt;`


def _unescape_section(section: str) -> str:
    inside, closed, outside = section.partition("]]>")
    return inside + unescape(outside) if closed else _CDATA + unescape(section)


def _character(match: re.Match[str]) -> str:
    number = int(match.group(1), 16) if match.group(1) else int(match.group(2))
    if number == 0 or 0xD800 <= number <= 0xDFFF or number > 0x10FFFF:
        return "\ufffd"
    # `&` would otherwise be taken for the start of an entity by what follows.
    return "&amp;" if number == 0x26 else chr(number)


def _page_id(xml: str, site: Site) -> str:
    """`database:page:revision`, with `?` for what a broken page does not tell."""
    revision = xml.rfind("<revision")
    page_id = _ID.search(xml, 0, xml.find("<revision") if revision >= 0 else len(xml))
    revision_id = _ID.search(xml, revision) if revision >= 0 else None
    return ":".join([site.database, *(match.group(1) if match else "?" for match in (page_id, revision_id))])


def _failure(loss: Loss, site: Site) -> Failure:
    raw = loss.data.decode(errors="replace")
    name = _page_id(raw, site) if loss.offset is None else f"{site.database}:bytes {loss.offset}"
    return Failure(name, loss.reason, raw)
