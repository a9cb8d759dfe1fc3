"""Rules for templates that show text, by their English and local names. All other templates are dropped."""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache, partial

from tokenfree.preprocess.wikitext import template_values as show
from tokenfree.preprocess.wikitext.markup import PHONETIC
from tokenfree.preprocess.wikitext.templates import Lookup, Rule, get, positional

_CENTURIES = "II III IV V VI VII VIII IX X XI XII XIII XIV XV XVI XVII XVIII XIX XX XXI"


def _ordinal(numeral: str, arguments: dict[str, str]) -> str:
    """French {{84e|congrès}}: "84e congrès"."""
    return f"{numeral} {show.first(arguments)}".rstrip()


# Names that mean the same wherever they occur.
SHARED: list[tuple[Rule, str]] = [
    # Ukrainian, Russian, Belarusian
    (
        show.named("треба", "текст", "2", "є", "1"),
        """
        нп|нп3|нп5|не перекладено|нп2|не переведено|не переведено 3|не переведено 5
        """,
    ),
    (show.first, "s.|ш|перекреслено|верхнє|нижнє|число|comment|підказка|велике|мала|мале|підпис"),
    (show.constant("°C"), "градус цельсія|градус цельсия|град. цельсія"),
    (show.constant("К."), "к."),
    (show.constant("М."), "м."),
    (show.constant("Л."), "л."),
    (show.constant("СПб."), "спб.|спб"),
    (show.constant("нар."), "нар|н|н."),
    (show.second, "langi"),
    (show.constant("пом."), "пом"),
    (partial(show.day_month_year, language="uk"), "дн|дс|дн2|дс2|дата|нар.|пом.|дн3"),
    (show.quotation, "цитата|начало цитаты|цитата2|врізка цитата|велика цитата|цитата+"),
    (show.second, "мова"),
    # Japanese
    (show.named("label", "1"), "仮リンク"),
    (
        show.first,
        """
        要出典範囲|いつ範囲|高線|indent|誰範囲|要検証範囲|下げ核|上げ核|jis2004フォント|jis90フォント|補助漢字フォント|拡張漢字|漢字
        環境依存文字|機種依存文字|unicodeフォント|明確化範囲|独自研究範囲|疑問点範囲|縦書き|傍点|ルビなし
        jisx0213
        """,
    ),
    (show.reading, "読み仮名|読み仮名 ruby不使用|読み仮名_ruby不使用|よみがな"),
    (show.ruby, "ふりがな|ルビ|フリガナ"),
    (show.quotation, "quotation2|引用|引用文"),
    # Vietnamese
    (partial(show.as_of, language="vi", words="Tính đến"), "tính đến|tính đến năm|cho đến"),
    (show.quotation, "pull quote|trích dẫn|cquote2|khung trích dẫn nội dòng|lời dẫn"),
    (show.first, "lá cờ|nôm|lit|nhỏ|không xuống dòng"),
    # Bengali
    (show.around("আনু. "), "আনুমানিক|আনু."),
    (show.first, "পতাকা|ছোট|নোব্রেক|গণিত|পতাকাদেশ|নোর‍্যাপ"),
    (partial(show.as_of, language="bn", words="অনুযায়ী"), "অনুযায়ী"),
    (show.quotation, "উক্তি|উদ্ধৃতি|ব্লকউদ্ধৃতি|উক্তি২"),
    (show.second, "ভাষা"),
    (show.around("আইএসবিএন "), "আইএসবিএন"),
    # Chinese
    (show.named("3", "1"), "綠連|绿链|绿连|內部連結|link-wd|le2|ilh"),
    (show.quotation, "引言|引用文字|引文"),
    (show.ruby, "注音|拼音"),
    # German
    (show.around("„", "“"), "„"),
    (show.quotation, "zitat|zitat-de"),
    (show.first, "zahl ohne umbruch|polytonisch|arabisch|hebräisch"),
    (show.around("", " m"), "höhe"),
    # French
    (partial(show.quantity, language="fr"), "unité|nombre|unite|nb|unité/2|tmp|température"),
    (show.second, "langue|en langue"),
    (show.constant("Ier"), "ier"),
    (show.constant("Ire"), "ire"),
    (show.constant("1er"), "1er"),
    (show.constant("1re"), "1re|1ère"),
    (show.constant("2d"), "2d"),
    (show.constant("2de"), "2de"),
    (show.constant("°"), "degré|degrés"),
    (show.hour, "heure"),
    (show.around("", " €"), "euro|euros|unité euro"),
    (show.around("– ", " –"), "incise|tiret"),
    (show.around("« ", " »"), "guillemets|citation étrangère"),
    (
        show.first,
        "latin|latine|grec ancien|petites capitales|petit|exp|nom|souligner|romain",
    ),
    (show.named("texte", "fr", "trad", "1"), "lien|lien non traduit"),
    (partial(show.date, language="fr"), "date de naissance|date de décès|date rapide"),
    (show.around("av. J.-C."), "av jc"),
    (show.constant("av. J.-C."), "av. j.-c.|-jc|avjc"),
    (show.constant("apr. J.-C."), "apr. j.-c.|apjc"),
    (partial(show.century, words="siècle", suffix="e"), "s-|sap"),
    (partial(show.century, words="siècle av. J.-C.", suffix="e"), "av jc s|s-av|sav"),
    *[(partial(_ordinal, f"{n}e"), f"{n}e") for n in range(2, 101)],
    *[
        (show.constant(f"{numeral}e siècle"), f"{numeral.lower()}e siècle|{numeral.lower()}e s")
        for numeral in _CENTURIES.split()
    ],
    # Spanish, Portuguese, Catalan, Italian
    (partial(show.century, words="século"), "séc"),
    (partial(show.century, words="segle"), "segle"),
    (partial(show.century, words="siglo"), "siglo"),
    (show.first, "versaleta"),
    (show.constant("\xa0"), "esd"),
    (show.named("ch", "1"), "hn"),
    (show.quotation, "cita|citat|citação|citazione|citato"),
    # Dutch, Polish, Hungarian, Finnish, Turkish, Arabic, Persian, Hebrew
    (
        show.first,
        """
        k-de|k-en|k-fr|k-ru|k-sv|k-la|k-es|k-it|kardeş şehir|ألمانية|إنجليزية|فرنسية|آلمانی|انگلیسی|فرانسوی
        لغة-أل
        """,
    ),
    (show.named("3", "2", "1"), "אנ"),
]  # fmt: skip


def _cited(arguments: dict[str, str]) -> str:
    """French {{citation|text}} is a quotation; with the arguments of a bibliography it is a reference."""
    text = show.first(arguments)
    return f"« {text} »" if text and "url" not in arguments and "titre" not in arguments else ""


# Names that mean something else in other languages.
LOCAL: dict[str, list[tuple[Rule, str]]] = {
    "fr": [
        (_cited, "citation|cita|quote"),
        (show.french_date, "date|date sport|jour"),
        (partial(show.century, words="siècle", suffix="e"), "s|s2-"),
        (show.constant(""), ","),
        (show.first, "t|ind"),
    ],
    "uk": [(show.first, "s|comment"), (show.named("2", "1"), "iw|iw2|ніт"), (show.around("нар. "), "нар.")],
    "ru": [
        (show.first, "s|comment|число"),
        (show.named("2", "1"), "iw|iw2"),
        (partial(show.day_month_year, language="ru"), "дата|дн|дс|дата рождения|дата смерти"),
    ],
    "be": [(show.first, "s"), (show.named("2", "1"), "iw|нп")],
    "ja": [(show.first, "en|fr|de|el|la|it|es|ru|zh|ko|ar|pt|nl")],
    "de": [(show.around("„", "“"), '"'), (show.height, "körpergröße")],
    "vi": [(show.first, "s")],
    "lt": [(show.first, "vok|de|en|ru|pl|fr|lat")],
}

# Families of language templates, of which only the text shows, by the part of the name before the first
# hyphen.
_PREFIXES = frozenset(("lang-", "vol-", "langue-", "idioma-", "lingua-", "язык-", "мова-", "dil-"))
_NBSP = "\xa0"

# Rule and names, in lower case and separated by "|" or line breaks.
_COMMON: list[tuple[Rule, str]] = [
    (
        show.first,
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
        show.second,
        """
        lang|script|color|colour|font color|fontcolor|fontsize|font|coloured text|colored text
        background color|langx|llang|wikt-lang|wiktlang|rtl lang|font-size
        font size|nativename|native name
        """,
    ),
    (show.last, "transl|transliteration|translit|xlit|tlit"),
    (
        show.around(PHONETIC, PHONETIC),
        "ipa|ipa2|ipa link|ipalink|ipablink|ipaslink|ipaplink|api|afi|vr|আধ্বব|мфа|国際音声記号",
    ),
    (show.joined(""), "gaps|linktext|chem|chem2|ce|nuclide|nuclide2|isotope|su"),
    (show.joined(" · "), "hlist|hlist comma|hlisti"),
    (
        show.joined("\n"),
        "ubl|unbulleted list|ublist|bulleted list|blist|unbulletedlist|ordered list|numbered list",
    ),
    (show.joined(", "), "comma separated entries|cslist"),
    (show.joined(" § "), "slink|section link"),
    (show.chinese, "zh|zh-full|zh full|chinese"),
    (show.nihongo, "nihongo|nihongo2|korean|nihongo krt|nihongo core"),
    (show.ruby, "ruby|ruby-ja|furigana"),
    (show.music, "music"),
    (show.any_ship, "ship"),
    (
        show.quotation,
        """
        quote|quotation|blockquote|bquote|cquote|long quotation|bq|centered pull quote|epigraph
        verse translation|bible quote|quote without source
        """,
    ),
    (show.height, "height"),
    (show.duration, "duration"),
    (show.power_of_ten, "e|x10^|10^x"),
    (show.around("10"), "10^"),
    (show.fraction, "frac|fraction|fract"),
    (partial(show.fraction, slash="/"), "sfrac|sfraction|tfrac|dfrac|cfrac"),
    (show.around("√"), "sqrt|radic|radical"),
    (show.around("⟨", "⟩"), "angbr|angle brackets|angbr ipa|grapheme|orthography"),
    (show.around("(", ")"), "par"),
    (show.around("[", "]"), "brackets"),
    (show.around("⟨", "|"), "bra"),
    (show.around("US$"), "us$|usd|us dollar"),
    (show.around("£"), "gbp|£|pound sterling|british pound"),
    (show.around("€"), "eur|€"),
    (show.around("₹"), "inr|₹|indian rupee"),
    (show.around("¥"), "jpy|¥|cny|jp¥"),
    (show.around("A$"), "aud|a$"),
    (show.around("C$"), "cad|ca$"),
    (show.around("ISBN "), "isbn|isbn2|isbnt"),
    (show.around("ISSN "), "issn"),
    (show.around("OCLC "), "oclc"),
    (show.around("RFC "), "ietf rfc|rfc"),
    (show.around("HD "), "hd"),
    (show.named("2", "1"), "url|official url|hyperlink"),
    (
        show.named("lt", "label", "display", "1"),
        """ill|interlanguage link|interlanguage link multi|ill2|illm|link-interwiki|interwiki link
        not translated""",
    ),
    (show.named("3", "1"), "le|link-en|link-de|link-fr|link-ja|link-ru|link-es|link-it|link-ko|liu"),
    (show.named("4", "3", "2"), "tsl|translink|internal link helper"),
    (show.named("2"), "interlang|see wikipedia"),
    (show.named("3"), "langwithname|rtl-langwithname"),
    (show.named("hangul", "1"), "ko-hhrm"),
    (show.constant("’s"), "'s|‘s"),
    (show.constant("'"), "'|apostrophe|`|-'"),
    (show.constant('"'), '"|-"|"-'),
    (show.constant("' \""), "' \"|'\""),
    (show.constant("\" '"), "\" '|\"'"),
    (
        show.constant(" – "),
        "snd|snds|spnd|sndash|spaced ndash|spaced en dash|dash|spaced endash|ndash spaced|spndash",
    ),
    (show.constant("–"), "ndash|en dash|endash"),
    (show.constant("—"), "mdash|mdashb|em dash|emdash|—"),
    (show.constant(" — "), "spaced mdash|spaced em dash|smd"),
    (show.constant("−"), "minus|mns"),
    (show.constant("×"), "times"),
    (show.constant("±"), "pm|+-|plusminus"),
    (show.constant("π"), "pi"),
    (
        show.constant(_NBSP),
        """
        nbsp|space|spaces|spc|sp|nbsp;|nnbsp|thinsp|thin space|hairsp|hair space|figure space|nbspc|0|ensp
        emsp|quad
        """,
    ),
    (show.constant(" · "), "·|middot|dot|dotsep|•|bull|bullet|*|.|,|bold middot"),
    (show.constant("|"), "!|pipe"),
    (show.constant("||"), "!!"),
    (show.constant("{|"), "(!"),
    (show.constant("\n|}\n"), "!)|end|s-end"),
    (show.constant("="), "="),
    (show.constant("["), "!(|lsqb|lbracket"),
    (show.constant("]"), ")!|rsqb|rbracket"),
    (show.constant("†"), "dagger|†"),
    (show.constant("‡"), "double-dagger|ddagger"),
    (show.constant("*"), "asterisk"),
    (show.constant("#"), "hash|hash-tag|number sign"),
    (show.constant("…"), "...|ellipsis"),
    (show.constant("ʻ"), "okina|ʻ"),
    (show.constant("ʼ"), "hamza|ayin"),
    (show.constant("⇌"), "eqm"),
    (show.constant("CO2"), "co2"),
    (show.constant("C3"), "c3"),
    (show.constant("C4"), "c4"),
    (show.constant("C"), "carbon"),
    (show.constant("H"), "hydrogen"),
    (show.constant("N"), "nitrogen"),
    (show.constant("O"), "oxygen"),
    (
        show.constant(""),
        """
        anchor|audio|sfn|sfnp|sfnm|efn|refn|r|rp|note|ref|coord|respell|ipac-en|audio-ipa|pron-en|dead link|cite web
        cite book|cite news|cite journal|citation|isbn needed|clear|main|see also|further|details|portal|commons
        """,
    ),
    (show.constant("→"), "rarr|arrow"),
    (show.constant("¢"), "cent"),
    (show.constant("a.k.a."), "aka|a.k.a."),
    (show.constant("Anno Domini"), "anno domini"),
    (show.constant("BCE"), "bce"),
    (partial(show.circa), "circa|c.|ca.|approx"),
    (partial(show.circa, prefix="fl. "), "fl.|floruit|fl"),
    (partial(show.circa, prefix="b. "), "b.|born"),
    (partial(show.circa, prefix="d. "), "d.|died"),
    (show.reign, "r.|reign"),
    (show.old_style, "oldstyledate|old style date|oldstyledatedy|oldstyledateny"),
    (show.french_date, "date-|dmy"),
]

_BY_LANGUAGE: list[tuple[Callable[..., str], str]] = [
    (
        show.convert,
        """
        convert|cvt|conv|conversie|রূপান্তর|konversi|convertir|переведення|перевести|chuyển đổi|đổi|換算|변환
        railgauge|track gauge
        """,
    ),
    (
        show.format_number,
        """
        formatnum:|formatnum|formatnumber|nts|number table sorting|szám|fmtn|fmtnum
        зробитичисло:|formatzahl
        """,
    ),
    (show.value, "val"),
    (
        show.date,
        """
        birth date|birth-date|birth date and age|birth-date and age|death date|death-date|death date and age
        start date|end date|start-date|end-date|start date and age|film date|dts|bda|dda|dob|birth year
        birth year and age|release date|start and end dates|date table sorting
        launch date|event date|дата народження|дата смерті|ngày sinh|ngày mất|生年月日|死亡年月日
        ngày bắt đầu|ngày phát hành|জন্ম তারিখ|মৃত্যু তারিখ|শুরুর তারিখ
        """,
    ),
    (show.as_of, "as of|asof"),
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
    """`{{USA}}` shows a flag and a name. The code takes the place of the name."""
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
        table[name] = show.ship(name.upper())
    for rule, names in (*_COMMON, *SHARED):
        table.update(dict.fromkeys(_entries(names), rule))
    for function, names in _BY_LANGUAGE:
        for name in _entries(names):
            table[name] = partial(function, language=base)
    for rule, names in LOCAL.get(base, ()):
        table.update(dict.fromkeys(_entries(names), rule))
    shows_text, shows_nothing = show.named("1", "text"), show.constant("")

    def lookup(name: str) -> Rule | None:
        rule = table.get(name)
        if rule is None and "-" in name:
            prefix = name[: name.index("-") + 1]
            return shows_text if prefix in _PREFIXES else shows_nothing if prefix == "ipa-" else None
        return rule

    return lookup


_LANGUAGE_CODE = re.compile(r"[a-z]{2,3}(?:-[A-Za-z]{2,8})?")
_NO_TEXT = re.compile(r"https?://|.*\.(?:jpe?g|png|svg|gif)\b|\d*px$", re.IGNORECASE)
# A unit after a number, or the ending of an ordinal.
_AFTER_NUMBER = re.compile(r"(?:\d[ \xa0]?|\b[IVXLCDM]+)$")
# Where a sentence goes on: notes and references follow the word or the mark that they are about.
_AT_WORD = re.compile(r"(?:^|[\s(（\[«“„‘\"\u3000-\u9fff\uac00-\ud7a3—–-]|\w['’])'*$")


def guess(name: str, arguments: dict[str, str], before: str) -> str:
    """Return what an unknown template in running text most likely shows, after the text `before` it."""
    values = positional(arguments)
    if not values:
        return name if not arguments and _AFTER_NUMBER.search(before) else ""
    if not _AT_WORD.search(before):
        return ""
    if len(values) > 1 and _LANGUAGE_CODE.fullmatch(values[0]):
        values = values[1:]
    return "" if _NO_TEXT.match(values[0]) else values[0]
