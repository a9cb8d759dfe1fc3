"""Templates that have local names, or that mean something else in one language than elsewhere."""

from functools import partial

from tokenfree.preprocess.wikitext.templates import dates, numbers, phrases
from tokenfree.preprocess.wikitext.templates.arguments import get
from tokenfree.preprocess.wikitext.templates.braces import Rule
from tokenfree.preprocess.wikitext.templates.phrases import abbreviated, around, constant, first, named, second

_CENTURIES = "II III IV V VI VII VIII IX X XI XII XIII XIV XV XVI XVII XVIII XIX XX XXI"


def _ordinal(numeral: str, arguments: dict[str, str]) -> str:
    """French {{84e|congrès}}: "84e congrès"."""
    return f"{numeral} {first(arguments)}".rstrip()


# Names that mean the same wherever they occur.
SHARED: list[tuple[Rule, str]] = [
    # Ukrainian, Russian, Belarusian
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
    (partial(dates.day_month_year, language="uk"), "дн|дс|дн2|дс2|дата|нар.|пом.|дн3"),
    (phrases.quotation, "цитата|начало цитаты|цитата2|врізка цитата|велика цитата|цитата+"),
    (second, "мова"),
    # Japanese
    (named("label", "1"), "仮リンク"),
    (
        first,
        """
        要出典範囲|いつ範囲|高線|indent|誰範囲|要検証範囲|下げ核|上げ核|jis2004フォント|jis90フォント|補助漢字フォント|拡張漢字|漢字
        環境依存文字|機種依存文字|unicodeフォント|明確化範囲|独自研究範囲|疑問点範囲|縦書き|傍点|ルビなし
        jisx0213
        """,
    ),
    (phrases.reading, "読み仮名|読み仮名 ruby不使用|読み仮名_ruby不使用|よみがな"),
    (phrases.ruby, "ふりがな|ルビ|フリガナ"),
    (phrases.quotation, "quotation2|引用|引用文"),
    # Vietnamese
    (partial(dates.as_of, language="vi", words="Tính đến"), "tính đến|tính đến năm|cho đến"),
    (phrases.quotation, "pull quote|trích dẫn|cquote2|khung trích dẫn nội dòng|lời dẫn"),
    (first, "lá cờ|nôm|lit|nhỏ|không xuống dòng"),
    # Bengali
    (around("আনু. "), "আনুমানিক|আনু."),
    (first, "পতাকা|ছোট|নোব্রেক|গণিত|পতাকাদেশ|নোর‍্যাপ"),
    (partial(dates.as_of, language="bn", words="অনুযায়ী"), "অনুযায়ী"),
    (phrases.quotation, "উক্তি|উদ্ধৃতি|ব্লকউদ্ধৃতি|উক্তি২"),
    (second, "ভাষা"),
    (around("আইএসবিএন "), "আইএসবিএন"),
    # Chinese
    (named("3", "1"), "綠連|绿链|绿连|內部連結|link-wd|le2|ilh"),
    (phrases.quotation, "引言|引用文字|引文"),
    (phrases.ruby, "注音|拼音"),
    # German
    (around("„", "“"), "„"),
    (phrases.quotation, "zitat|zitat-de"),
    (first, "zahl ohne umbruch|polytonisch|arabisch|hebräisch"),
    (around("", " m"), "höhe"),
    # French
    (partial(numbers.quantity, language="fr"), "unité|nombre|unite|nb|unité/2|tmp|température"),
    (second, "langue|en langue"),
    (constant("Ier"), "ier"),
    (constant("Ire"), "ire"),
    (constant("1er"), "1er"),
    (constant("1re"), "1re|1ère"),
    (constant("2d"), "2d"),
    (constant("2de"), "2de"),
    (constant("°"), "degré|degrés"),
    (dates.hour, "heure"),
    (around("", " €"), "euro|euros|unité euro"),
    (around("– ", " –"), "incise|tiret"),
    (around("« ", " »"), "guillemets|citation étrangère"),
    (
        first,
        "latin|latine|grec ancien|petites capitales|petit|exp|nom|souligner|romain",
    ),
    (named("texte", "fr", "trad", "1"), "lien|lien non traduit"),
    (partial(dates.date, language="fr"), "date de naissance|date de décès|date rapide"),
    (around("av. J.-C."), "av jc"),
    (constant("av. J.-C."), "av. j.-c.|-jc|avjc"),
    (constant("apr. J.-C."), "apr. j.-c.|apjc"),
    (partial(dates.century, words="siècle", suffix="e"), "s-|sap"),
    (partial(dates.century, words="siècle av. J.-C.", suffix="e"), "av jc s|s-av|sav"),
    *[(partial(_ordinal, f"{n}e"), f"{n}e") for n in range(2, 101)],
    *[
        (constant(f"{numeral}e siècle"), f"{numeral.lower()}e siècle|{numeral.lower()}e s")
        for numeral in _CENTURIES.split()
    ],
    # Spanish, Portuguese, Catalan, Italian
    (partial(dates.century, words="século"), "séc"),
    (partial(dates.century, words="segle"), "segle"),
    (partial(dates.century, words="siglo"), "siglo"),
    (first, "versaleta"),
    (constant("\xa0"), "esd"),
    (named("ch", "1"), "hn"),
    (phrases.quotation, "cita|citat|citação|citazione|citato"),
    # Dutch, Polish, Hungarian, Finnish, Turkish, Arabic, Persian, Hebrew
    (
        first,
        """
        k-de|k-en|k-fr|k-ru|k-sv|k-la|k-es|k-it|kardeş şehir|ألمانية|إنجليزية|فرنسية|آلمانی|انگلیسی|فرانسوی
        لغة-أل
        """,
    ),
    (named("3", "2", "1"), "אנ"),
]  # fmt: skip


def _cited(arguments: dict[str, str]) -> str:
    """French {{citation|text}} is a quotation; with the arguments of a bibliography it is a reference."""
    return "" if "url" in arguments or "titre" in arguments else f"« {first(arguments)} »" if first(arguments) else ""


def _german_quote(arguments: dict[str, str]) -> str:
    text = get(arguments, "1", "text")
    return f"„{text}“" if text else ""


# Names that mean something else in other languages.
LOCAL: dict[str, list[tuple[Rule, str]]] = {
    "fr": [
        (_cited, "citation|cita|quote"),
        (dates.french_date, "date|date sport|jour"),
        (partial(dates.century, words="siècle", suffix="e"), "s"),
        (partial(dates.century, words="siècle", suffix="e"), "s2-"),
        (constant(""), ","),
        (first, "t|ind"),
    ],
    "uk": [(first, "s|comment"), (named("2", "1"), "iw|iw2|ніт"), (around("нар. "), "нар.")],
    "ru": [
        (first, "s|comment|число"),
        (named("2", "1"), "iw|iw2"),
        (partial(dates.day_month_year, language="ru"), "дата|дн|дс|дата рождения|дата смерти"),
    ],
    "be": [(first, "s"), (named("2", "1"), "iw|нп")],
    "ja": [(first, "en|fr|de|el|la|it|es|ru|zh|ko|ar|pt|nl")],
    "de": [(_german_quote, '"'), (numbers.height, "körpergröße")],
    "vi": [(first, "s")],
    "lt": [(first, "vok|de|en|ru|pl|fr|lat")],
}

# Families of templates named by what stands before their first hyphen.
PREFIXES: dict[str, Rule] = {
    "lang-": abbreviated,
    "vol-": abbreviated,
    "langue-": abbreviated,
    "idioma-": abbreviated,
    "lingua-": abbreviated,
    "язык-": abbreviated,
    "мова-": abbreviated,
    "dil-": abbreviated,
}
