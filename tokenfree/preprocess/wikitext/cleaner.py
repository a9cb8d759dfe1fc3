"""Clean wikitext: all passes in order, and the one over links, `[[internal]]` and `[http://external labelled]`."""

import re
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import unquote

from tokenfree.preprocess.records import Site
from tokenfree.preprocess.wikitext import markup
from tokenfree.preprocess.wikitext.template_rules import guess, rules_for
from tokenfree.preprocess.wikitext.templates import Definitions, PageExpansion, absolute


def clean(wikitext: str, site: Site, *, title: str = "", templates: Mapping[str, str] | None = None) -> str:
    """Return the text of an article as readers see it: paragraphs, section titles and list items, one per line.

    Templates are expanded by `templates`, which maps full titles to wikitext; others by rules and a guess. Tables,
    files, references, formulas and boxes are left out. White space inside lines is left for `normalize` to
    tidy. Time and memory are linear in the length of any page and of what its templates give.
    """
    return clean_page(wikitext, page_of(site, title, Definitions.of_titles(templates or {}, site)))


def page_of(site: Site, title: str, definitions: Definitions) -> PageExpansion:
    return PageExpansion(site, title, definitions, rules_for(site.language), guess)


def clean_page(wikitext: str, page: PageExpansion) -> str:
    text = markup.strip_controls(wikitext)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = f"\n{text}\n"
    if "<" in text:
        text = markup.set_aside(text)
    if "{{" in text:
        text = page.replace(text)
    text = markup.drop_tables(text)
    # A single character that is rare is found many times as fast as two.
    if ("{" in text and "{{" in text) or ("}" in text and "}}" in text):
        text = _STRAY_BRACES.sub(lambda match: match[1] or _between(match), text)
    if page.site.language.partition("-")[0] in markup.CONVERTED and "-{" in text:
        text = markup.choose_variant(text)
    text = replace_links(text, hidden_prefixes(page.site), page.title)
    text = markup.mark_titles(text)
    text = markup.strip_tags(text)
    text = markup.strip_line_marks(text)
    text = markup.strip_quotes(text)
    text = markup.resolve_entities(text)
    return markup.tidy(text)


FILE = 6
CATEGORY = 14

_EXTENSIONS = "jpg jpeg png svg gif tif tiff webp ogg oga ogv webm wav mp3 mid flac opus pdf djvu xcf stl"
MEDIA_EXTENSIONS = tuple(f".{extension}" for extension in _EXTENSIONS.split())

# The language codes of Wikipedias (meta.wikimedia.org/wiki/List_of_Wikipedias), closed ones included.
_LANGUAGES = """
aa ab ace ady af ak als alt am ami an ang anp ar arc ary arz as ast atj av avk awa ay az azb ba ban bar bat-smg bbc
bcl be be-tarask be-x-old bew bg bh bho bi bjn blk bm bn bo bpy br bs bug bxr ca cbk-zam cdo ce ceb ch cho chr chy ckb
co cr crh cs csb cu cv cy da dag de dga din diq dsb dtp dty dv dz ee el eml en eo es et eu ext fa fat ff fi fiu-vro fj
fo fon fr frp frr fur fy ga gag gan gcr gd gl glk gn gom gor got gpe gsw gu guc gur guw gv ha hak haw he hi hif ho hr
hsb ht hu hy hyw hz ia iba id ie ig igl ii ik ilo inh io is it iu ja jam jbo jv ka kaa kab kbd kbp kcg kg kge ki kj kk
kl km kn ko koi kr krc ks ksh ku kus kv kw ky la lad lb lbe lez lfn lg li lij lld lmo ln lo lrc lt ltg lv lzh mad mai
map-bms mdf mg mh mhr mi min mk ml mn mni mnw mo mos mr mrj ms mt mus mwl my myv mzn na nah nan nap nds nds-nl ne new
ng nia nl nn no nov nqo nr nrm nso nv ny nyn oc olo om or os pa pag pam pap pcd pcm pdc pfl pi pih pl pms pnb pnt ps
pt pwn qu rm rmy rn ro roa-rup roa-tara ru rue rup rw sa sah sat sc scn sco sd se sg sgs sh shi shn si simple sk skr
sl sm smn sn so sq sr srn ss st stq su sv sw szl szy ta tay tcy tdd te tet tg th ti tk tl tly tn to tpi tr trv ts tt
tum tw ty tyv udm ug uk ur uz ve vec vep vi vls vo vro wa war wo wuu xal xh xmf yi yo yue za zea zgh zh zh-cfr
zh-classical zh-min-nan zh-yue zu
"""
LANGUAGE_CODES = frozenset(_LANGUAGES.split())


@lru_cache(maxsize=64)
def hidden_prefixes(site: Site) -> frozenset[str]:
    """Return the folded prefixes of links without text, of all wikis because some dumps have another's siteinfo."""
    local = (name for number in (FILE, CATEGORY) for name in site.namespaces.get(number, ()))
    hidden = {*markup.wiki_words("file"), *markup.wiki_words("category"), *LANGUAGE_CODES}
    hidden.update(markup.folded(name.replace("_", " ").strip()) for name in local if name)
    hidden.discard("media")  # [[Media:x.ogg|label]] is a plain link
    return frozenset(hidden)


# Innermost links only: the label holds single brackets at most (a bounded number: no unbounded state in the
# matcher).
_INTERNAL = re.compile(r"\[\[([^\[\]|\n]*)(?:\|([^\[\]]*(?:(?:\[(?!\[)|\](?!\]))[^\[\]]*){0,8}))?\]\]")
# An address and the spaces behind it are taken whole: a label can hold the same characters, so that a matcher
# free to give some of them back would try each place, in quadratic time, where the closing bracket is
# missing.
_ADDRESS = r"(?:\[[0-9a-f:.]+\])?[^\s\[\]<>\"]*(?![^\s\[\]<>\"])[ \t\xa0]*(?![ \t\xa0])"
_EXTERNAL = re.compile(
    rf"\[(?:(?:https?|ftps?|ircs?|gopher)://|(?:mailto|news|sip|tel|magnet):|//)(?=[^\s\]<>\"]){_ADDRESS}"
    r"([^\[\]\n]*(?:\[[^\[\]\n]*){0,4})\]",
    re.IGNORECASE,
)
_EXTERNAL_START = re.compile(r"\[[/hHfmn]")  # on a page without any, links of rare schemes stay
_EXTERNAL_IMAGE = re.compile(r"(?<!\S)https?://[^\s\[\]<>\"]{1,500}\.(?:gif|png|jpe?g)(?!\S)", re.IGNORECASE)
_IMAGE_END = re.compile(r"\.(?:gif|png|jpe?g)(?!\S)", re.IGNORECASE)
_ADDRESS_START = re.compile(r"(?:https?:|ftp:)?//", re.IGNORECASE)
# A caption may hold links, a label may hold files: more levels than this are not found in articles.
_MAX_DEPTH = 6


def replace_links(text: str, hidden: frozenset[str], title: str = "") -> str:
    """Replace links by their labels, and links with a prefix in `hidden` by nothing, on the page `title`.

    Remove unmatched brackets.
    """

    def shown(target: str, label: str | None) -> str:
        if ":" in target or target.startswith("//"):
            return _shown_with_prefix(target, label, hidden)
        if label is None:
            return _shown_title(absolute(target, title) if target.startswith("../") else target)
        return label or _without_parenthesis(target)

    for _ in range(_MAX_DEPTH):
        # Text, target, label, text, ...: unlike `sub`, without an object for each match.
        parts = _INTERNAL.split(text)
        if len(parts) == 1:
            break
        parts[1::3] = [
            label if label and ":" not in target and target[:2] != "//" else shown(target, label)
            for target, label in zip(parts[1::3], parts[2::3], strict=True)
        ]
        del parts[2::3]
        text = "".join(parts)
        if "[" not in text or "[[" not in text:
            break
    if "[" in text and _EXTERNAL_START.search(text):
        text = _EXTERNAL.sub(lambda link: link[1], text)
    if "://" in text and _IMAGE_END.search(text):
        text = _EXTERNAL_IMAGE.sub(markup.GONE, text)
    return _STRAY_BRACKETS.sub(_between, text) if "[" in text or "]" in text else text


# Brackets that are none of a link are removed, and stay between words as a space. Braces whose content has a
# brace where the name of a template would be, as in `{{}, {1, 2}}`, are text.
_STRAY_BRACES = re.compile(
    r"((?<!\{)\{\{(?!\{)[^{}|\n]{0,60}(?:\}(?!\})|\{(?!\{))[^\n]{0,200}?\}\})|\{\{+|\}\}+"
)
_STRAY_BRACKETS = re.compile(r"[\[\]](?:(?<=\[)\[+|(?<=\])\]+)")


def _between(match: re.Match[str]) -> str:
    text, start, end = match.string, match.start(), match.end()
    return " " if start and text[start - 1].isalnum() and text[end : end + 1].isalnum() else ""


def _shown_with_prefix(target: str, label: str | None, hidden: frozenset[str]) -> str:
    if _ADDRESS_START.match(target):
        # One bracket too many around an external link.
        return (target if label is None else f"{target}|{label}").partition(" ")[2]
    prefix, _, rest = target.partition(":")
    prefix = markup.folded(prefix.replace("_", " ").strip())
    if prefix:
        if prefix in hidden:
            # A thumbnail stands apart from the text around it.
            return " " + markup.GONE if label and "thumb" in label[:100] else markup.GONE
        if target.rstrip().lower().endswith(MEDIA_EXTENSIONS) and prefix != "media":
            return markup.GONE
        if label is None:
            return _shown_title(target)
        return label or _without_parenthesis(rest)
    # [[:Category:Name]] shows its target; [[:fr:Name|]] its last part.
    return label or (target[1:] if label is None else rest.rpartition(":")[2])


_APOSTROPHES = re.compile(r"(?<=\w)''(?=\w)")
_ENCODED = re.compile(r"%[0-9A-Fa-f]{2}")
_NO_TITLE = re.compile(r"%[0-9A-Fa-f]{2}|^[^#]*[<>\[\]{}|]")


def _shown_title(title: str) -> str:
    """Return a title as a link without a label shows it: apostrophes are none of bold or italic."""
    if "%" in title and _ENCODED.search(title):
        decoded = unquote(title, errors="ignore")
        title = title if _NO_TITLE.search(decoded) else decoded
    return _APOSTROPHES.sub("&#39;&#39;", title) if "''" in title else title


def _without_parenthesis(title: str) -> str:
    """The pipe trick: [[Mercury (planet)|]] shows Mercury."""
    title = title.strip()
    if title.endswith((")", "）")):
        opening = max(title.rfind("("), title.rfind("（"))
        if opening > 0:
            return title[:opening].rstrip()
    return title
