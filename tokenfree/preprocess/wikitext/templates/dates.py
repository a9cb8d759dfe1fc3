"""Template rules for dates and years: birth date, start date, as of, circa, and those of other languages."""

from tokenfree.preprocess.wikitext.templates.arguments import get, positional

_MONTHS = {
    "en": "January February March April May June July August September October November December",
    "uk": "січня лютого березня квітня травня червня липня серпня вересня жовтня листопада грудня",
    "ru": "января февраля марта апреля мая июня июля августа сентября октября ноября декабря",
    "be": "студзеня лютага сакавіка красавіка мая чэрвеня ліпеня жніўня верасня кастрычніка лістапада снежня",
    "fr": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
    "de": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
    "pl": "stycznia lutego marca kwietnia maja czerwca lipca sierpnia września października listopada grudnia",
    "es": "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
    "pt": "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro",
    "it": "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
    "nl": "januari februari maart april mei juni juli augustus september oktober november december",
    "bn": "জানুয়ারি ফেব্রুয়ারি মার্চ এপ্রিল মে জুন জুলাই আগস্ট সেপ্টেম্বর অক্টোবর নভেম্বর ডিসেম্বর",
}


def _month(number: str, language: str) -> str:
    """The name of a month; the argument itself if it is not a number of one."""
    names = _MONTHS.get(language, _MONTHS["en"]).split()
    return names[int(number) - 1] if number.isascii() and number.isdigit() and 1 <= int(number[:3]) <= 12 else number


def _number_of(month: str) -> str:
    """The number of a month given by its English name, as templates filled in by translation tools have it."""
    names = _MONTHS["en"].split()
    return str(names.index(month) + 1) if month in names else month


def written_date(year: str, month: str, day: str, language: str, *, day_first: bool = False) -> str:
    """A date in words, as the language writes it; the month, or the day, may be missing."""
    if not month:
        return year
    month = _number_of(month)
    if language in ("ja", "zh"):
        return f"{year}年{month.lstrip('0')}月" + (f"{day.lstrip('0')}日" if day else "")
    if language == "vi":
        return (f"{day} " if day else "") + f"tháng {month.lstrip('0')} năm {year}"
    name = _month(month, language)
    if not day:
        return f"{name} {year}"
    day = day.lstrip("0") or day
    if language == "es" or language == "pt":
        return f"{day} de {name} de {year}"
    if language == "de":
        return f"{day}. {name} {year}"
    return f"{name} {day}, {year}" if language == "en" and not day_first else f"{day} {name} {year}"


def date(arguments: dict[str, str], language: str) -> str:
    """`{{birth date|1900|1|2|df=y}}` and others that give year, month, day."""
    values = positional(arguments)
    day_first = get(arguments, "df").lower() in ("y", "yes", "true", "1")
    if not values:
        return ""
    if not values[0][:1].isdigit() or len(values) == 1 or len(values[0]) < 3:
        return " ".join(values[:3])
    return written_date(values[0], values[1], values[2] if len(values) > 2 else "", language, day_first=day_first)


def day_month_year(arguments: dict[str, str], language: str) -> str:
    """`{{ДН|2|10|1906|19|9}}`: day, month, year, then the day and month of the old calendar, which are left out."""
    values = [*positional(arguments)[:3], "", ""]
    if not values[0]:
        return ""
    if not values[1] and not values[2]:
        return values[0]
    return written_date(values[2], values[1], values[0], language).strip() if values[2] else " ".join(values).strip()


def french_date(arguments: dict[str, str]) -> str:
    """`{{date|22 mai 2016}}` or `{{date|22|mai|2016|en sport}}`."""
    parts = [part for part in positional(arguments)[:3] if part]
    if len(parts) > 1 and parts[1].isdigit():
        parts[1] = _month(parts[1], "fr")
    return " ".join(parts)


def hour(arguments: dict[str, str]) -> str:
    """`{{heure|4|30}}`: "4 h 30"."""
    parts = positional(arguments)
    return f"{parts[0]} h {parts[1]}".rstrip() if len(parts) > 1 else f"{parts[0]} h" if parts else ""


def as_of(arguments: dict[str, str], language: str, words: str = "As of") -> str:
    """`{{as of|2013|4|lc=y}}`: "as of April 2013"."""
    shown = get(arguments, "alt")
    if shown:
        return shown
    values = [*positional(arguments)[:3], "", "", ""]
    lower = get(arguments, "lc").lower() in ("y", "yes", "on", "true", "1")
    if get(arguments, "since"):
        words = "Since"
    if not values[0]:
        return ""
    written = written_date(values[0], values[1], values[2], language, day_first=True)
    return f"{words.lower() if lower else words} {written}"


def circa(arguments: dict[str, str], prefix: str = "c. ") -> str:
    """`{{circa|1300|1320}}`: "c. 1300 – c. 1320"; `{{circa}}`: "c."."""
    years = [year for year in positional(arguments)[:2] if year]
    return " – ".join(prefix + year for year in years) if years else prefix


def reign(arguments: dict[str, str], prefix: str = "r. ") -> str:
    """`{{reign|1900|1910}}`: "r. 1900–1910"."""
    return prefix + "–".join(year for year in positional(arguments)[:2] if year)


def old_style(arguments: dict[str, str]) -> str:
    """`{{OldStyleDate|12 May|1700|1 May}}`: "12 May [O.S. 1 May] 1700"."""
    values = [*positional(arguments)[:3], "", "", ""]
    old = f" [O.S. {values[2]}]" if values[2] else ""
    return f"{values[0]}{old} {values[1]}".strip()


def century(arguments: dict[str, str], words: str, suffix: str = "") -> str:
    """`{{s-|XVII}}`: "XVIIe siècle"; `{{séc|XVIII}}`: "século XVIII" with words in front and no suffix."""
    numeral = get(arguments, "1").upper()
    if not numeral:
        return ""
    return f"{numeral}{suffix} {words}" if suffix else f"{words} {numeral}"
