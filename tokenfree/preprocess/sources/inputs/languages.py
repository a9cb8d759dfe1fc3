"""Language codes: ISO 639 for folder names of books, and Wikimedia's own codes, which differ here and there."""

import re

# ISO 639-1 codes, each with its ISO 639-3 code: BCP 47 prefers the shorter one.
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
# Further ISO 639-3 codes: those of languages that have a Wikipedia.
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

# Wikimedia codes that are not, or not quite, BCP 47. https://meta.wikimedia.org/wiki/Special_language_codes
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
# Codes that are far likelier to be an English word when a folder or a file has them for its name.
_WORDS = frozenset(["ban", "bar", "bug", "fat", "got", "new", "pap", "sat", "shy", "war"])
LANGUAGE_TAG = re.compile(r"[A-Za-z]{2,3}(?:-[A-Za-z0-9]{1,8})*")  # the shape of BCP 47
_TAG = re.compile(r"([a-z]{2,3})((?:[-_](?:[A-Z][a-z]{3}|[A-Z]{2}))*)")


def wikimedia_language(code: str) -> str | None:
    """BCP 47 of a Wikimedia language code (`zh_min_nan`, `simple`, `de`); None for what is no language (`commons`)."""
    code = code.replace("_", "-")
    return WIKIMEDIA_LANGUAGES.get(code) or (code if code in LANGUAGES else None)


def wikimedia_database(file_name: str) -> tuple[str, str] | None:
    """Database and BCP 47 language that a dump's file name tells (`swwiki-20260101-...`), None where it tells none."""
    match = _DATABASE.match(file_name)
    language = wikimedia_language(match.group(1)) if match else None
    return (match.group().replace("-", "_"), language) if match and language else None


def language_tag(name: str) -> str | None:
    """BCP 47 of a folder name such as `de`, `deu`, `pt_BR` or `zh-Hant`, None where it is no language code."""
    match = _TAG.fullmatch(name)
    if not match:
        return None
    code = SHORT_CODES.get(match.group(1), match.group(1))
    return code + match.group(2).replace("_", "-") if code in LANGUAGES - _WORDS else None
