"""Which templates show text, and what: the names of English Wikipedia, which most wikis have, and local ones.

A name that is in no table is dropped: boxes, references, pronunciations, maintenance notes, links to sister projects.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache, partial

from tokenfree.preprocess.wikitext.markup.marks import EQUALS, PHONETIC, PIPE
from tokenfree.preprocess.wikitext.templates import dates, numbers, phrases
from tokenfree.preprocess.wikitext.templates.arguments import get
from tokenfree.preprocess.wikitext.templates.braces import Lookup, Rule, first_rule
from tokenfree.preprocess.wikitext.templates.phrases import around, constant, first, joined, last, named, second
from tokenfree.preprocess.wikitext.templates.rules_local import LOCAL, PREFIXES, SHARED

_NBSP = "\xa0"

# Rule and names; names are lower case and parted by "|" or line breaks.
_COMMON: list[tuple[Rule, str]] = [
    (
        first,
        """
        nowrap|nobr|nowr|nobreak|nowraplinks|small|smaller|smallsup|large|larger|big|resize|nobold
        noitalic|em|strong|bold|code|mono|monospaced|tt|kbd|key|keypress|samp|var|mvar|math|bigmath|sup|sub
        sc|smallcaps|small caps|sc2|allcaps|lc|uc|abbr|abbrv|tooltip|hover title|visible anchor
        vanchor|iast|iast1|unicode|pie|polytonic|pinyin|wg|sic|typo|not a typo|notatypo
        as written|proper name|no italic|underline|uline|overline|strikethrough|del|ins|cjk
        lang-en-short|flag|flagcountry|flagu|citation needed span|clarify span|linktext
        nihongo foot|poem|poemquote|poem quote|rtl-lang|script/hebrew|script/arabic
        midsize|center|centre|align|big math|longitem|nastaliq|bdi|plainlist|flatlist|unbulleted|plain list
        columns-list|blockindent|block indent|angle bracket|strong emphasis
        bracket|dfn|ilq|larger text|hangul|delink
        """,
    ),
    (
        second,
        """
        lang|script|color|colour|font color|fontcolor|fontsize|font|coloured text|colored text
        background color|langx|llang|wikt-lang|wiktlang|rtl lang|font-size
        font size|nativename|native name
        """,
    ),
    (last, "transl|transliteration|translit|xlit|tlit"),
    (
        around(PHONETIC, PHONETIC),
        "ipa|ipa2|ipa link|ipalink|ipablink|ipaslink|ipaplink|api|afi|vr|আধ্বব|мфа|国際音声記号",
    ),
    (joined(""), "gaps|linktext|chem|chem2|ce|nuclide|nuclide2|isotope|su"),
    (joined(" · "), "hlist|hlist comma|hlisti"),
    (joined("\n"), "ubl|unbulleted list|ublist|bulleted list|blist|unbulletedlist|ordered list|numbered list"),
    (joined(", "), "comma separated entries|cslist"),
    (joined(" § "), "slink|section link"),
    (phrases.chinese, "zh|zh-full|zh full|chinese"),
    (phrases.nihongo, "nihongo|nihongo2|korean|nihongo krt|nihongo core"),
    (phrases.ruby, "ruby|ruby-ja|furigana"),
    (phrases.music, "music"),
    (phrases.any_ship, "ship"),
    (
        phrases.quotation,
        """
        quote|quotation|blockquote|bquote|cquote|long quotation|bq|centered pull quote|epigraph
        verse translation|bible quote|quote without source
        """,
    ),
    (numbers.height, "height"),
    (numbers.duration, "duration"),
    (numbers.power_of_ten, "e|x10^|10^x"),
    (around("10"), "10^"),
    (numbers.fraction, "frac|fraction|fract"),
    (partial(numbers.fraction, slash="/"), "sfrac|sfraction|tfrac|dfrac|cfrac"),
    (around("√"), "sqrt|radic|radical"),
    (around("⟨", "⟩"), "angbr|angle brackets|angbr ipa|grapheme|orthography"),
    (around("(", ")"), "par"),
    (around("[", "]"), "brackets"),
    (around("⟨", "|"), "bra"),
    (around("US$"), "us$|usd|us dollar"),
    (around("£"), "gbp|£|pound sterling|british pound"),
    (around("€"), "eur|€"),
    (around("₹"), "inr|₹|indian rupee"),
    (around("¥"), "jpy|¥|cny|jp¥"),
    (around("A$"), "aud|a$"),
    (around("C$"), "cad|ca$"),
    (around("ISBN "), "isbn|isbn2|isbnt"),
    (around("ISSN "), "issn"),
    (around("OCLC "), "oclc"),
    (around("RFC "), "ietf rfc|rfc"),
    (around("HD "), "hd"),
    (named("2", "1"), "url|official url|hyperlink"),
    (
        named("lt", "label", "display", "1"),
        """ill|interlanguage link|interlanguage link multi|ill2|illm|link-interwiki|interwiki link
        not translated""",
    ),
    (named("3", "1"), "le|link-en|link-de|link-fr|link-ja|link-ru|link-es|link-it|link-ko|liu"),
    (named("4", "3", "2"), "tsl|translink|internal link helper"),
    (named("2"), "interlang|see wikipedia"),
    (named("3"), "langwithname|rtl-langwithname"),
    (named("hangul", "1"), "ko-hhrm"),
    (constant("’s"), "'s|‘s"),
    (constant("'"), "'|apostrophe|`|-'"),
    (constant('"'), '"|-"|"-'),
    (constant("' \""), "' \"|'\""),
    (constant("\" '"), "\" '|\"'"),
    (constant(" – "), "snd|snds|spnd|sndash|spaced ndash|spaced en dash|dash|spaced endash|ndash spaced|spndash"),
    (constant("–"), "ndash|en dash|endash"),
    (constant("—"), "mdash|mdashb|em dash|emdash|—"),
    (constant(" — "), "spaced mdash|spaced em dash|smd"),
    (constant("−"), "minus|mns"),
    (constant("×"), "times"),
    (constant("±"), "pm|+-|plusminus"),
    (constant("π"), "pi"),
    (
        constant(_NBSP),
        """
        nbsp|space|spaces|spc|sp|nbsp;|nnbsp|thinsp|thin space|hairsp|hair space|figure space|nbspc|0|ensp
        emsp|quad
        """,
    ),
    (constant(" · "), "·|middot|dot|dotsep|•|bull|bullet|*|.|,|bold middot"),
    (constant(PIPE), "!|pipe"),
    (constant(PIPE + PIPE), "!!"),
    (constant(f"{{{PIPE}"), "(!"),
    (constant(f"\n{PIPE}}}\n"), "!)|end|s-end"),
    (constant(EQUALS), "="),
    (constant("["), "!("),
    (constant("]"), ")!"),
    (constant("["), "lsqb|lbracket"),
    (constant("]"), "rsqb|rbracket"),
    (constant("†"), "dagger|†"),
    (constant("‡"), "double-dagger|ddagger"),
    (constant("*"), "asterisk"),
    (constant("#"), "hash|hash-tag|number sign"),
    (constant("…"), "...|ellipsis"),
    (constant("ʻ"), "okina|ʻ"),
    (constant("ʼ"), "hamza|ayin"),
    (constant("⇌"), "eqm"),
    (constant("CO2"), "co2"),
    (constant("C3"), "c3"),
    (constant("C4"), "c4"),
    (constant("C"), "carbon"),
    (constant("H"), "hydrogen"),
    (constant("N"), "nitrogen"),
    (constant("O"), "oxygen"),
    (constant("→"), "rarr|arrow"),
    (constant("¢"), "cent"),
    (constant("a.k.a."), "aka|a.k.a."),
    (constant("Anno Domini"), "anno domini"),
    (constant("BCE"), "bce"),
    (partial(dates.circa), "circa|c.|ca.|approx"),
    (partial(dates.circa, prefix="fl. "), "fl.|floruit|fl"),
    (partial(dates.circa, prefix="b. "), "b.|born"),
    (partial(dates.circa, prefix="d. "), "d.|died"),
    (dates.reign, "r.|reign"),
    (dates.old_style, "oldstyledate|old style date|oldstyledatedy|oldstyledateny"),
    (dates.french_date, "date-|dmy"),
]

_BY_LANGUAGE: list[tuple[Callable[..., str], str]] = [
    (
        numbers.convert,
        """
        convert|cvt|conv|conversie|রূপান্তর|konversi|convertir|переведення|перевести|chuyển đổi|đổi|換算|변환
        railgauge|track gauge
        """,
    ),
    (
        numbers.format_number,
        """
        formatnum:|formatnum|formatnumber|nts|number table sorting|szám|fmtn|fmtnum
        зробитичисло:|formatzahl
        """,
    ),
    (numbers.value, "val"),
    (
        dates.date,
        """
        birth date|birth-date|birth date and age|birth-date and age|death date|death-date|death date and age
        start date|end date|start-date|end-date|start date and age|film date|dts|bda|dda|dob|birth year
        birth year and age|release date|start and end dates|date table sorting
        launch date|event date|дата народження|дата смерті|ngày sinh|ngày mất|生年月日|死亡年月日
        ngày bắt đầu|ngày phát hành|জন্ম তারিখ|মৃত্যু তারিখ|শুরুর তারিখ
        """,
    ),
    (dates.as_of, "as of|asof"),
]  # fmt: skip

_SHIPS = "hms hmas hmcs hmnzs uss usns uscgc ss ms mv rms mt gts sms hmt rfa rv ins hnlms rnlb usat usrc hdms css jds"
_COUNTRIES = """
afg ago alb alg and ang are arg arm atg aus aut aze bah ban bar bdi bel ben bfa bgd bgr bhr bhs bhu bih blr blz bol
bra brb brn btn bul bwa caf cam can che chi chl chn civ cmr cod cog col com cpv crc cri cro cub cyp cze den deu dji
dma dnk dom dza ecu egy eri esp est eth eur fin fji fra fro fsm gab gbr geo ger gha gib gin gmb gnb gnq grc grd gre
grl gtm gua guy hai hkg hnd hon hrv hti hun idn ina ind iri irl irn irq isl isr ita jam jor jpn kaz ken kgz khm kir
kna kor ksa kuw kwt lao lat lba lbn lbr lby lca lie lka lso ltu lux lva mac mar mas mco mda mdg mdv mex mgl mhl mkd
mli mlt mmr mne mng mon moz mrt mus mwi mya mys nam ned nep ner nga ngr nic nig nld nor npl nru nzl oma omn pak pan
par per phi phl plw png pol por prc pri prk prt pry pse pur qat rom rou rsa rus rwa sau sdn sen sgp sin slb sle slo
slv smr som srb sri srm ssd stp sud sui sur svk svn swe swi swz syc syr tan tcd tgo tha tjk tkm tls ton tpe tto tun
tur tuv twn tza uae uga ukr urs uru ury usa uzb vat vct ven vie vnm vut wsm yem yug zaf zam zim zmb zwe
"""


def _country(code: str, arguments: dict[str, str]) -> str:
    """`{{USA}}` stands for a flag and a name; the code is what can be told of the name."""
    return get(arguments, "1") or code


def _entries(table: str) -> Iterator[str]:
    for line in table.split("\n"):
        yield from (name.strip() for name in line.split("|") if name.strip())


@lru_cache(maxsize=64)
def rules_for(language: str) -> Lookup:
    """The lookup for the wikis of one language (`zh`, or `zh-min-nan`)."""
    base = language.partition("-")[0]
    table: dict[str, Rule] = {code: partial(_country, code.upper()) for code in _COUNTRIES.split()}
    for name in _SHIPS.split():
        table[name] = phrases.ship(name.upper())
    for rule, names in (*_COMMON, *SHARED):
        table.update(dict.fromkeys(_entries(names), rule))
    for function, names in _BY_LANGUAGE:
        for name in _entries(names):
            table[name] = partial(function, language=base)
    for rule, names in LOCAL.get(base, ()):
        table.update(dict.fromkeys(_entries(names), rule))
    return first_rule(table, PREFIXES)
