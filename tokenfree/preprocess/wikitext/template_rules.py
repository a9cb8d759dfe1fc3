"""Rules for templates without a usable definition: those that need Lua, and those of dumps without definitions.

Rules with local names run on the wikis of that language, those with English names on all. Other calls show what
`guess` makes of them.
"""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache, partial

from tokenfree.preprocess.wikitext.markup import PHONETIC
from tokenfree.preprocess.wikitext.template_values import (
    as_of,
    century,
    circa,
    convert,
    date,
    day_month_year,
    format_number,
    fraction,
    french_date,
    hour,
    old_style,
    quantity,
    value,
)
from tokenfree.preprocess.wikitext.templates import Lookup, Rule, get, positional, show_nothing

Arguments = dict[str, str]


def first(arguments: Arguments) -> str:
    return get(arguments, "1", "text", "content", "quote", "code")


def second(arguments: Arguments) -> str:
    """The second argument: `{{lang|fr|mot}}`; without it the named text, else nothing."""
    return get(arguments, "2", "text", "texte")


def last(arguments: Arguments) -> str:
    """The last argument by position: `{{transl|ar|ALA|alif}}`."""
    values = positional(arguments)
    return values[-1] if values else ""


def constant(text: str) -> Rule:
    return lambda arguments: text


def around(prefix: str, suffix: str = "") -> Rule:
    def rule(arguments: Arguments) -> str:
        text = first(arguments)
        return f"{prefix}{text}{suffix}" if text else ""

    return rule


def joined(separator: str) -> Rule:
    return lambda arguments: separator.join(value for value in positional(arguments) if value)


def named(*names: str) -> Rule:
    """A rule that gives the first argument present, in this order."""
    return lambda arguments: get(arguments, *names)


def nihongo(arguments: Arguments) -> str:
    """`{{nihongo|English|kanji|romaji|extra}}`: "English (kanji, romaji, extra)"."""
    values = [*positional(arguments)[:4], "", "", "", ""]
    inside = ", ".join(value for value in values[1:4] if value)
    return f"{values[0]} ({inside})" if values[0] and inside else values[0] or inside


def reading(arguments: Arguments) -> str:
    """Japanese 読み仮名: `{{読み仮名|物理学|ぶつりがく|physics}}` is 物理学（ぶつりがく、physics）."""
    values = positional(arguments)
    inside = "、".join(value for value in values[1:] if value)
    return f"{values[0]}（{inside}）" if inside else "".join(values[:1])


def phonetic(arguments: Arguments) -> str:
    """`{{IPA|de|bɛʁˈliːn}}`, or without the code of the language: a transcription."""
    values = positional(arguments)
    if len(values) > 1 and _LANGUAGE_CODE.fullmatch(values[0]):
        values = values[1:]
    return f"{PHONETIC}{values[0]}{PHONETIC}" if values and values[0] else ""


def harvard(arguments: Arguments) -> str:
    """`{{harvtxt|Artin|1970}}`: "Artin (1970)"."""
    *names, year = positional(arguments) or [""]
    return f"{' & '.join(names)} ({year})" if names else year


def ruby(arguments: Arguments) -> str:
    values = [*positional(arguments)[:2], "", ""]
    return f"{values[0]}（{values[1]}）" if values[1] else values[0]


def ship(prefix: str) -> Rule:
    """`{{HMS|Exeter|68}}`: "HMS Exeter (68)"; a third argument other than 1 leaves out the hull number."""

    def rule(arguments: Arguments) -> str:
        values = [*positional(arguments)[:3], "", "", ""]
        hull = f" ({values[1]})" if values[1] and values[2] in ("", "1") else ""
        name = values[0] if values[2] == "3" else f"{prefix} {values[0]}".strip()
        return f"{name}{hull}"

    return rule


def any_ship(arguments: Arguments) -> str:
    """`{{ship|French battleship|Bouvet||2}}`."""
    values = [*positional(arguments)[:3], "", "", ""]
    hull = f" ({values[2]})" if values[2] else ""
    return f"{values[0]} {values[1]}{hull}".strip()


def quotation(arguments: Arguments) -> str:
    """`{{quote|text|author|source}}`: the text, then who said it."""
    text = get(arguments, "text", "quote", "1", "цитата", "citation", "zitat", "texte")
    values = positional(arguments)
    others = values[1:3] if "text" not in arguments and "quote" not in arguments else values[:2]
    author = get(arguments, "author", "sign", "by", "автор", "auteur", "autor", "người nói")
    source = get(arguments, "source", "title", "nguồn")
    credit = ", ".join(
        part for part in ([author, source] if author or source else others) if part and "px" not in part
    )
    credit = credit.lstrip("-–— ")
    # MediaWiki shows it as a block, so it gets separate lines.
    return f"\n{text}\n— {credit}\n" if credit and text else f"\n{text}\n" if text else ""


def chinese(arguments: Arguments) -> str:
    """`{{zh|s=西沙群岛|t=西沙群島|p=Xīshā}}`: the forms, without labels."""
    names = ("c", "s", "t", "hv", "p", "w", "j", "l")
    values = [*positional(arguments), *(get(arguments, name) for name in names)]
    return ", ".join(dict.fromkeys(value for value in values if value))


_CENTURIES = "II III IV V VI VII VIII IX X XI XII XIII XIV XV XVI XVII XVIII XIX XX XXI"


def _ordinal(numeral: str, arguments: dict[str, str]) -> str:
    """French {{84e|congrès}}: "84e congrès"."""
    return f"{numeral} {first(arguments)}".rstrip()


def _cited(arguments: dict[str, str]) -> str:
    """French {{citation|text}} is a quotation; with the arguments of a bibliography it is a reference."""
    text = first(arguments)
    return f"« {text} »" if text and "url" not in arguments and "titre" not in arguments else ""


# With the codes of their languages. A later rule for a name wins.
_LOCAL: list[tuple[str, list[tuple[Rule, str]]]] = [
    ("en simple", [
        (lambda arguments: f" × 10{get(arguments, '1')}", "e|x10^|10^x"),
        (around("HD "), "hd"),
        (constant("CO2"), "co2"),
        (constant("C3"), "c3"),
        (constant("C4"), "c4"),
        (constant("C"), "carbon"),
        (constant("H"), "hydrogen"),
        (constant("N"), "nitrogen"),
        (constant("O"), "oxygen"),
        (partial(circa), "circa|c.|ca.|approx"),
        (partial(circa, prefix="fl. "), "fl.|floruit|fl"),
        (partial(circa, prefix="b. "), "b.|born"),
        (partial(circa, prefix="d. "), "d.|died"),
        (old_style, "oldstyledate|old style date|oldstyledatedy|oldstyledateny"),
        (around("US$"), "us$|usd|us dollar"),
        (around("A$"), "aud|a$"),
        (around("C$"), "cad|ca$"),
        (constant("a.k.a."), "aka|a.k.a."),
        (constant("Anno Domini"), "anno domini"),
        (constant("BCE"), "bce"),
        (any_ship, "ship"),
        (around("OCLC "), "oclc"),
        (around("RFC "), "ietf rfc|rfc"),
        (around("10"), "10^"),
        (harvard, "harvtxt|harvcoltxt"),
    ]),
    ("uk ru be", [
        (
            named("треба", "текст", "2", "є", "1"),
            """
            нп|нп3|нп5|не перекладено|нп2|не переведено|не переведено 3|не переведено 5
            """,
        ),
        (first, "s.|ш|перекреслено|верхнє|нижнє|число|comment|підказка|велике|мала|мале|підпис"),
        (constant("°C"), "градус цельсія|градус цельсия|град. цельсія"),
        (constant("К."), "к."),
        (constant("М."), "м."),
        (constant("Л."), "л."),
        (constant("СПб."), "спб.|спб"),
        (constant("нар."), "нар|н|н."),
        (second, "langi"),
        (constant("пом."), "пом"),
        (partial(day_month_year, language="uk"), "дн|дс|дн2|дс2|дата|нар.|пом.|дн3"),
        (quotation, "цитата|начало цитаты|цитата2|врізка цитата|велика цитата|цитата+"),
        (second, "мова"),
    ]),
    ("ja", [
        (named("label", "1"), "仮リンク"),
        (
            first,
            """
            要出典範囲|いつ範囲|高線|indent|誰範囲|要検証範囲|下げ核|上げ核|jis2004フォント|jis90フォント|補助漢字フォント|拡張漢字|漢字
            環境依存文字|機種依存文字|unicodeフォント|明確化範囲|独自研究範囲|疑問点範囲|縦書き|傍点|ルビなし
            jisx0213
            """,
        ),
        (reading, "読み仮名|読み仮名 ruby不使用|読み仮名_ruby不使用|よみがな"),
        (ruby, "ふりがな|ルビ|フリガナ"),
        (quotation, "quotation2|引用|引用文"),
    ]),
    ("vi", [
        (partial(as_of, language="vi", words="Tính đến"), "tính đến|tính đến năm|cho đến"),
        (quotation, "pull quote|trích dẫn|cquote2|khung trích dẫn nội dòng|lời dẫn"),
        (first, "lá cờ|nôm|lit|nhỏ|không xuống dòng"),
    ]),
    ("bn", [
        (around("আনু. "), "আনুমানিক|আনু."),
        (first, "পতাকা|ছোট|নোব্রেক|গণিত|পতাকাদেশ|নোর‍্যাপ"),
        (partial(as_of, language="bn", words="অনুযায়ী"), "অনুযায়ী"),
        (quotation, "উক্তি|উদ্ধৃতি|ব্লকউদ্ধৃতি|উক্তি২"),
        (second, "ভাষা"),
        (around("আইএসবিএন "), "আইএসবিএন"),
    ]),
    ("zh", [
        (named("3", "1"), "綠連|绿链|绿连|內部連結|link-wd|le2|ilh"),
        (quotation, "引言|引用文字|引文"),
        (ruby, "注音|拼音"),
    ]),
    ("de", [
        (around("„", "“"), "„"),
        (quotation, "zitat|zitat-de"),
        (first, "zahl ohne umbruch|polytonisch|arabisch|hebräisch"),
        (around("", " m"), "höhe"),
    ]),
    ("fr", [
        (partial(quantity, language="fr"), "unité|nombre|unite|nb|unité/2|tmp|température"),
        (second, "langue|en langue"),
        (constant("Ier"), "ier"),
        (constant("Ire"), "ire"),
        (constant("1er"), "1er"),
        (constant("1re"), "1re|1ère"),
        (constant("2d"), "2d"),
        (constant("2de"), "2de"),
        (constant("°"), "degré|degrés"),
        (hour, "heure"),
        (around("", " €"), "euro|euros|unité euro"),
        (around("– ", " –"), "incise|tiret"),
        (around("« ", " »"), "guillemets|citation étrangère"),
        (
            first,
            "latin|latine|grec ancien|petites capitales|petit|exp|nom|souligner|romain",
        ),
        (named("texte", "fr", "trad", "1"), "lien|lien non traduit"),
        (partial(date, language="fr"), "date de naissance|date de décès|date rapide"),
        (around("av. J.-C."), "av jc"),
        (constant("av. J.-C."), "av. j.-c.|-jc|avjc"),
        (constant("apr. J.-C."), "apr. j.-c.|apjc"),
        (partial(century, words="siècle", suffix="e"), "s-|sap"),
        (partial(century, words="siècle av. J.-C.", suffix="e"), "av jc s|s-av|sav"),
        *[(partial(_ordinal, f"{n}e"), f"{n}e") for n in range(2, 101)],
        *[
            (constant(f"{numeral}e siècle"), f"{numeral.lower()}e siècle|{numeral.lower()}e s")
            for numeral in _CENTURIES.split()
        ],
    ]),
    ("es pt ca it gl", [
        (partial(century, words="século"), "séc"),
        (partial(century, words="segle"), "segle"),
        (partial(century, words="siglo"), "siglo"),
        (first, "versaleta"),
        (constant("\xa0"), "esd"),
        (named("ch", "1"), "hn"),
        (quotation, "cita|citat|citação|citazione|citato"),
    ]),
    ("nl pl hu fi tr ar fa he", [
        (
            first,
            """
            k-de|k-en|k-fr|k-ru|k-sv|k-la|k-es|k-it|kardeş şehir|ألمانية|إنجليزية|فرنسية|آلمانی|انگلیسی|فرانسوی
            لغة-أل
            """,
        ),
        (named("3", "2", "1"), "אנ"),
    ]),
    ("fr", [
        (_cited, "citation|cita|quote"),
        (french_date, "date|date sport|jour|date de naissance-|date de décès-"),
        (nihongo, "japonais"),
        (partial(century, words="siècle", suffix="e"), "s|s2-"),
        (show_nothing, ","),
        (first, "t|ind"),
    ]),
    ("uk", [(first, "s|comment"), (named("2", "1"), "iw|iw2|ніт"), (around("нар. "), "нар.")]),
    ("ru", [
        (first, "s|comment|число"),
        (named("2", "1"), "iw|iw2"),
        (partial(day_month_year, language="ru"), "дата|дн|дс|дата рождения|дата смерти"),
    ]),
    ("be", [(first, "s"), (named("2", "1"), "iw|нп")]),
    ("ja", [(first, "en|fr|de|el|la|it|es|ru|zh|ko|ar|pt|nl")]),
    ("de", [(around("„", "“"), '"')]),
    ("vi", [(first, "s")]),
    ("lt", [(first, "vok|de|en|ru|pl|fr|lat")]),
    ("pt", [(nihongo, "japonês")]),
    ("hy", [(nihongo, "նիհոնգո")]),
]  # fmt: skip

# Families of language templates, of which only the text shows, by the part of the name before the first
# hyphen.
_PREFIXES = frozenset(("lang-", "vol-", "langue-", "idioma-", "lingua-", "язык-", "мова-", "dil-"))

# Rule and names, in lower case and separated by "|" or line breaks.
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
        phonetic,
        "ipa|ipa2|ipa link|ipalink|ipablink|ipaslink|ipaplink|api|afi|vr|আধ্বব|мфа|国際音声記号",
    ),
    (joined(""), "gaps|linktext|chem|chem2|ce|nuclide|nuclide2|isotope|su"),
    (joined(" · "), "hlist|hlist comma|hlisti"),
    (
        joined("\n"),
        "ubl|unbullet|unbulleted list|ublist|bulleted list|blist|unbulletedlist|ordered list|numbered list",
    ),
    (joined(", "), "comma separated entries|cslist"),
    (joined(" § "), "slink|section link"),
    (chinese, "zh|zh-full|zh full|chinese"),
    (nihongo, "nihongo|nihongo2|korean|nihongo krt|nihongo core"),
    (ruby, "ruby|ruby-ja|furigana"),
    (
        quotation,
        """
        quote|quotation|blockquote|bquote|cquote|long quotation|bq|centered pull quote|epigraph
        verse translation|bible quote|quote without source
        """,
    ),
    (fraction, "frac|fraction|fract"),
    (partial(fraction, slash="/"), "sfrac|sfraction|tfrac|dfrac|cfrac"),
    (around("√"), "sqrt|radic|radical"),
    (around("⟨", "⟩"), "angbr|angle brackets|angbr ipa|grapheme|orthography"),
    (around("(", ")"), "par"),
    (around("[", "]"), "brackets"),
    (around("⟨", "|"), "bra"),
    (around("£"), "gbp|£|pound sterling|british pound"),
    (around("€"), "eur|€"),
    (around("₹"), "inr|₹|indian rupee"),
    (around("¥"), "jpy|¥|cny|jp¥"),
    (around("ISBN "), "isbn|isbn2|isbnt"),
    (around("ISSN "), "issn"),
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
    (
        constant(" – "),
        "snd|snds|spnd|sndash|spaced ndash|spaced en dash|dash|spaced endash|ndash spaced|spndash",
    ),
    (constant("–"), "ndash|en dash|endash"),
    (constant("—"), "mdash|mdashb|em dash|emdash|—"),
    (constant(" — "), "spaced mdash|spaced em dash|smd"),
    (constant("−"), "minus|mns"),
    (constant("×"), "times"),
    (constant("±"), "pm|+-|plusminus"),
    (constant("π"), "pi"),
    (
        constant("\xa0"),
        """
        nbsp|space|spaces|spc|sp|nbsp;|nnbsp|thinsp|thin space|hairsp|hair space|figure space|nbspc|0|ensp
        emsp|quad
        """,
    ),
    (constant(" · "), "·|middot|dot|dotsep|•|bull|bullet|*|.|,|bold middot"),
    (constant("|"), "!|pipe"),
    (constant("||"), "!!"),
    (constant("{|"), "(!"),
    (constant("\n|}\n"), "!)|end|s-end"),
    (constant("="), "="),
    (constant("["), "!(|lsqb|lbracket"),
    (constant("]"), ")!|rsqb|rbracket"),
    (constant("†"), "dagger|†"),
    (constant("‡"), "double-dagger|ddagger"),
    (constant("*"), "asterisk"),
    (constant("#"), "hash|hash-tag|number sign"),
    (constant("…"), "...|ellipsis"),
    (constant("ʻ"), "okina|ʻ"),
    (constant("ʼ"), "hamza|ayin"),
    (constant("⇌"), "eqm"),
    (
        show_nothing,
        """
        anchor|audio|sfn|sfnp|sfnm|efn|refn|r|rp|note|ref|coord|respell|ipac-en|audio-ipa|pron-en|dead link|cite web
        cite book|cite news|cite journal|citation|isbn needed|clear|main|see also|further|details|portal|commons
        """,
    ),
    (constant("→"), "rarr|arrow"),
    (constant("¢"), "cent"),
    (french_date, "date-|dmy"),
]

_BY_LANGUAGE: list[tuple[Callable[..., str], str]] = [
    (
        convert,
        """
        convert|cvt|conv|conversie|রূপান্তর|konversi|convertir|переведення|перевести|chuyển đổi|đổi|換算|변환
        railgauge|track gauge
        """,
    ),
    (
        format_number,
        """
        formatnum:|formatnum|formatnumber|nts|number table sorting|szám|fmtn|fmtnum
        зробитичисло:|formatzahl
        """,
    ),
    (value, "val"),
    (
        date,
        """
        birth date|birth-date|birth date and age|birth-date and age|death date|death-date|death date and age
        start date|end date|start-date|end-date|start date and age|film date|dts|bda|dda|dob|birth year
        birth year and age|release date|start and end dates|date table sorting
        launch date|event date|дата народження|дата смерті|ngày sinh|ngày mất|生年月日|死亡年月日
        ngày bắt đầu|ngày phát hành|জন্ম তারিখ|মৃত্যু তারিখ|শুরুর তারিখ
        """,
    ),
    (as_of, "as of|asof"),
]  # fmt: skip

_SHIPS = "hms hmas hmcs hmnzs uss usns uscgc ss ms mv rms mt gts sms hmt rfa rv ins hnlms rnlb usat usrc hdms css jds"


def _entries(table: str) -> Iterator[str]:
    for line in table.split("\n"):
        yield from (name.strip() for name in line.split("|") if name.strip())


@lru_cache(maxsize=64)
def rules_for(language: str) -> Lookup:
    base = language.partition("-")[0]
    table: dict[str, Rule] = {}
    if base in ("en", "simple"):
        table.update((name, ship(name.upper())) for name in _SHIPS.split())
    for rule, names in _COMMON:
        table.update(dict.fromkeys(_entries(names), rule))
    for function, names in _BY_LANGUAGE:
        table.update(dict.fromkeys(_entries(names), partial(function, language=base)))
    for codes, rules in _LOCAL:
        for rule, names in rules if base in codes.split() else ():
            table.update(dict.fromkeys(_entries(names), rule))
    shows_text, shows_nothing = named("1", "text"), show_nothing

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
# Where a sentence continues: notes and references follow the word or the mark that they are about.
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
