"""The constructs of docs/text_quality.md: description, wiki, page, and wikitext as it is in the page."""

DUMPS = {
    "en": "enwiki-2016-shortened.xml.bz2",
    "de": "minidumps/dewiki.xml.bz2",
    "fr": "minidumps/frwiki.xml.bz2",
    "uk": "ukwiki-20230501-excerpt.xml.bz2",
    "vi": "viwiki-20230501-excerpt-multistream.xml.bz2",
    "ja": "jawiki-20230501-excerpt.xml.bz2",
    "zh": "zhwiki-excerpt.xml",
    "bn": "bnwiki-20230501-excerpt.xml.bz2",
    "ltg": "ltgwiki-pages-articles.xml.bz2",
}

QUOTED = (
    'hingegen seien {{"|widernatürlich, künstlich gemacht und aus der [[Reflexion (Philosophie)|Reflexion]] '
    "entsprungen […] überall muß Ein Wille der leitende seyn.}}"
)
AUSTRIA = (
    "L''''Autriche''' ({{en langue|de|Österreich}} {{prononciation|De-Österreich.ogg}}), en forme longue"
)

SNIPPETS = [
    ("unit", "en", "Alaska", "about {{convert|60|mi|km}} southwest of Anchorage."),
    ("unit, local name", "bn", "উত্তর মহাসাগর", "প্রায় {{রূপান্তর|20|–|50|cm|in|abbr=on}} হিমায়িত"),
    ("range", "vi", "Lợn biển", "vận tốc khoảng {{convert|5|to|8|km/h|m/s}}."),
    ("number", "fr", "Berlin", "devrait remonter à {{formatnum:19000}}."),
    ("number, local name", "uk", "Україна", "міграції: −2,25 мігранта/{{nts|1000}}{{nbsp}}осіб (2015)"),
    ("number and unit", "fr", "Autriche", "[[Grossglockner]], qui s'élève à {{unité|3797|m}}."),
    ("measured value", "en", "Ampere", "revealed that this current is {{val|0.99985|u=A}}."),
    ("fraction", "en", "Alkane", ":CH<sub>4</sub> + {{frac|3|2}}&nbsp;O<sub>2</sub>"),
    ("temperature sign", "uk", "Київ", "температури січня −3,5&nbsp;{{градус Цельсія}}, липня"),
    ("height", "de", "Berlin", "[[Müggelberge|Große Müggelberg]] ({{Höhe|115|DE-NHN}}) im"),
    ("date", "fr", "Berlin", "la capitale de l'Allemagne le {{date|3|octobre|1990}}."),
    ("date, two calendars", "uk", "Леся Українка", "{{ДН|25|2|1871|13}}, [[Новоград-Волинський]]"),
    ("century", "fr", "Berlin", "artistique berlinoise depuis le {{s-|XVII}}."),
    ("as of", "en", "Afghanistan", "{{as of|2013}}, there are 16,000 schools across Afghanistan."),
    ("as of, local name", "vi", "Nga", "{{Tính đến|2006}}, Nga có tổng cộng"),
    ("formula as template", "en", "Alkali metal", "tetrahedral {{chem|Si|4|4-}} ions."),
    ("foreign word", "bn", "ক্যানবেরা", "'''ক্যানবেরা''' ({{lang-en|Canberra}}) [[অস্ট্রেলিয়া]]র"),
    ("foreign word, local name", "ltg", "Kaču saime", "'''Kaču saime''' ({{Vol-la|Felidae}}, {{Vol-lv|kaķu dzimta}},"),
    ("transliteration", "en", "Aikido", "the art of swordsmanship ({{transl|ja|''[[kenjutsu]]''}})."),
    ("pronunciation in brackets", "en", "Albedo", "'''Albedo''' ({{IPAc-en|æ|l|ˈ|b|iː|d|oʊ}}) or"),
    ("missing article", "ja", "地理学", "（{{仮リンク|第四紀氷河時代|en|Quaternary glaciation}}）の問題"),
    ("missing article", "zh", "文學", "{{le|文學編輯|Literary editor}}也可以對作者帶來類似的作用。"),
    ("reading", "ja", "生物", "{{読み仮名_ruby不使用|'''生き物'''|いきもの}}とも。"),
    ("script conversion", "zh", "气象学", "經過研究後，-{于}-爾班證明"),
    ("script conversion, choice", "zh", "生物学", "-{zh-hans:信息; zh-hant:資訊;}-領域"),
    ("quotation", "de", "Arthur Schopenhauer", QUOTED),
    ("file", "vi", "Ottawa", "[[Tập tin:Ottawaexpands.png|200px|trái|nhỏ|Lịch sử sáp nhập của Ottawa]]"),
    ("file, siteinfo of another wiki", "de", "Berlin", "[[Datei:Flag of Berlin.svg|rand|700x80px|Landesflagge]]"),
    ("other languages", "en", "Agricultural science", "[[fr:Agronomie]]"),
    ("apostrophe before bold", "fr", "Autriche", AUSTRIA),
]  # fmt: skip
