"""Dates, numbers and units as templates write them, for the rules."""

import re

from tokenfree.preprocess.wikitext.markup import GONE
from tokenfree.preprocess.wikitext.parser_functions import MONTHS, grouped
from tokenfree.preprocess.wikitext.templates import get, positional


def _month(number: str, language: str) -> str:
    names = MONTHS.get(language, MONTHS["en"]).split()
    return (
        names[int(number) - 1]
        if number.isascii() and number.isdigit() and 1 <= int(number[:3]) <= 12
        else number
    )


def _number_of(month: str) -> str:
    names = MONTHS["en"].split()
    return str(names.index(month) + 1) if month in names else month


def written_date(year: str, month: str, day: str, language: str, *, day_first: bool = False) -> str:
    """Return a date in words, as the language writes it. The month or the day may be missing."""
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
    day_first = day_first or language != "en"
    orders = {"de": f"{day}. {name} {year}", **dict.fromkeys(("es", "pt"), f"{day} de {name} de {year}")}
    return orders.get(language, f"{day} {name} {year}" if day_first else f"{name} {day}, {year}")


def date(arguments: dict[str, str], language: str) -> str:
    """`{{birth date|1900|1|2|df=y}}` and others that give year, month, day."""
    values = positional(arguments)
    day_first = get(arguments, "df").lower() in ("y", "yes", "true", "1")
    if not values:
        return ""
    if not values[0][:1].isdigit() or len(values) == 1 or len(values[0]) < 3:
        return " ".join(values[:3])
    return written_date(
        values[0], values[1], values[2] if len(values) > 2 else "", language, day_first=day_first
    )


def day_month_year(arguments: dict[str, str], language: str) -> str:
    """`{{ДН|2|10|1906|19|9}}`: day, month, year, then the day and month of the old calendar, which are left out."""
    values = [*positional(arguments)[:3], "", ""]
    if not values[0]:
        return ""
    return (
        written_date(values[2], values[1], values[0], language).strip()
        if values[2]
        else " ".join(values).strip()
    )


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
    alt_text = get(arguments, "alt")
    if alt_text:
        return alt_text
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


def old_style(arguments: dict[str, str]) -> str:
    """`{{OldStyleDate|12 May|1700|1 May}}`: "12 May [O.S. 1 May] 1700"."""
    values = [*positional(arguments)[:3], "", "", ""]
    old = f" [O.S. {values[2]}]" if values[2] else ""
    return f"{values[0]}{old} {values[1]}".strip()


def century(arguments: dict[str, str], words: str, suffix: str = "") -> str:
    """`{{s-|XVII}}`: "XVIIe siècle"; `{{séc|XVIII}}`: "século XVIII" with words in front and no suffix."""
    numeral = get(arguments, "1").upper()
    return " ".join((numeral + suffix, words) if suffix else (words, numeral)) if numeral else ""


_LINK = re.compile(r"\[\[(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]")

_RANGES = {
    "-": "–", "–": "–", "—": "–", "to": " to ", "to(-)": " to ", "and": " and ", "or": " or ", "by": " by ",
    "x": " × ", "×": " × ", "xx": " × ", "*": " × ", "+/-": " ± ", "±": " ± ", "+": " + ", ",": ", ", "/": "/",
    "and(-)": " and ", "thru": " through ", "through": " through ", "till": " till ", "to about": " to about ",
    "থেকে": " থেকে ",
}  # fmt: skip
_UNITS = {
    "c": "°C", "f": "°F", "°c": "°C", "°f": "°F", "k": "K", "km2": "km²", "m2": "m²", "cm2": "cm²", "mm2": "mm²",
    "m3": "m³", "cm3": "cm³", "km3": "km³", "dm3": "dm³", "mm3": "mm³", "sqmi": "sq mi", "sqft": "sq ft",
    "sqkm": "km²", "sqm": "m²", "sqin": "sq in", "sqyd": "sq yd", "mi2": "sq mi", "ft2": "sq ft", "in2": "sq in",
    "cuft": "cu ft", "cuyd": "cu yd", "cumi": "cu mi", "cuin": "cu in", "ft3": "cu ft", "kph": "km/h",
    "kmh": "km/h", "m/s2": "m/s²", "km/km2": "/km²", "pd/km2": "/km²", "pd/sqmi": "/sq mi", "/km2": "/km²",
    "/sqmi": "/sq mi", "inhg": "inHg", "usgal": "US gal", "impgal": "imp gal", "lbf.ft": "lbf⋅ft", "nm": "nm",
    "nmi": "nmi", "kn": "kn", "u.s.gal": "US gal", "m3/s": "m³/s", "cuft/s": "cu ft/s", "kg/m3": "kg/m³",
    "g/cm3": "g/cm³", "kg/m2": "kg/m²", "acre": "acres", "foot": "feet", "mile": "miles", "long": "long tons",
    "short": "short tons", "lt": "long tons", "st": "short tons", "tonne": "tonnes", "metre": "metres",
    "meter": "meters",
}  # fmt: skip


# The word of a range where the wiki's language is not English.
_TO = {
    "vi": "đến",
    "uk": "до",
    "ru": "до",
    "bn": "থেকে",
    "de": "bis",
    "fr": "à",
    "es": "a",
    "pt": "a",
    "nl": "tot",
}
_COMPOUND = frozenset((("ft", "in"), ("lb", "oz"), ("st", "lb"), ("mi", "yd"), ("yd", "ft"), ("mi", "ch")))


def format_number(arguments: dict[str, str], language: str) -> str:
    """formatnum and its likes: `{{formatnum:1000}}`, `{{nts|1000}}`."""
    value = get(arguments, "1", GONE).replace(GONE, "")
    is_grouped = get(arguments, "2").upper() not in ("R", "NOSEP")
    return grouped(value, language) if is_grouped else value.replace(",", "")


def convert(arguments: dict[str, str], language: str) -> str:
    """`{{convert|5|to|10|km|mi}}`: the source quantity, "5 to 10 km"; the converted one is left out."""
    values = positional(arguments)[:20]
    text = ""
    position = 0
    while position + 1 < len(values):
        text += _number(values[position], language)
        link = _RANGES.get(values[position + 1])
        if link is None:
            break
        text += f" {_TO[language]} " if link == " to " and language in _TO else link
        position += 2
    if position + 1 >= len(values):
        return text + (_number(values[position], language) if position < len(values) else "")
    unit = values[position + 1]
    text = _with_unit(text, unit, adjective=arguments.get("adj", "").strip() == "on")
    following = values[position + 2 : position + 4]
    if (
        len(following) == 2
        and following[0].replace(".", "", 1).isdecimal()
        and (unit, following[1]) in _COMPOUND
    ):
        text += f" {following[0]} {following[1]}"
    return text


def _number(value: str, language: str) -> str:
    value = value.strip(" '" + GONE)
    # convert takes numbers with commas, and fractions as 5+1/2 or 5//8
    return (
        grouped(value.replace(",", "") if language == "en" else value, language)
        .replace("+", " ")
        .replace("//", "/")
    )


def _with_unit(text: str, unit: str, adjective: bool = False) -> str:
    unit = _LINK.sub(r"\1", unit)
    symbol = _UNITS.get(unit.lower(), unit)
    separator = "-" if adjective and len(symbol) > 4 else " "
    return text + ("" if symbol.startswith("/") else separator) + symbol


def value(arguments: dict[str, str], language: str) -> str:
    """`{{val|0.99985|0.2|e=3|u=A}}`: "0.99985 ± 0.2 × 10^3 A"."""
    numbers = positional(arguments)
    text = get(arguments, "p") + "".join(grouped(number, language) for number in numbers[:1])
    if len(numbers) > 1:
        text += numbers[1] if numbers[1].startswith("(") else f" ± {grouped(numbers[1], language)}"
    exponent = get(arguments, "e")
    if exponent:
        text += f" × 10{exponent}" if numbers else f"10{exponent}"
    text += get(arguments, "s")
    unit = get(arguments, "u", "ul")
    if unit:
        text += unit if unit in "°%" else f" {unit}"
    divisor = get(arguments, "up", "upl")
    return f"{text}/{divisor}" if divisor else text


def fraction(arguments: dict[str, str], slash: str = "⁄") -> str:
    """`{{frac|3|1|2}}` is 3 1⁄2, `{{frac|1|2}}` 1⁄2, `{{frac|2}}` 1⁄2."""
    parts = positional(arguments)
    if not parts:
        return ""
    *whole, above, below = parts[:3] if len(parts) > 1 else ("1", parts[0])
    return " ".join([*whole, f"{above}{slash}{below}"])


def quantity(arguments: dict[str, str], language: str) -> str:
    """French unité, nombre and tmp: `{{unité|814|km|2}}` is 814 km², other pairs alike; also `{{unité|814 km}}`."""
    values = positional(arguments)
    if not values:
        return ""
    number, _, unit = values[0].partition(" ")
    if unit and not unit[0].isdigit():
        return f"{grouped(number, language)} {unit} {' '.join(values[1:])}".rstrip()
    number = values[0].replace(" ", "")
    amount = grouped(number, language)
    units = values[1:]
    if not units:
        return amount
    if len(units) == 1:
        return f"{amount} {units[0]}"
    joined = ""
    for index in range(0, len(units), 2):
        power = units[index + 1] if index + 1 < len(units) else ""
        power = {"2": "²", "3": "³"}.get(power, power)
        joined += ("/" if joined and power.startswith("-") else "") + units[index] + power.replace("-1", "")
    return f"{amount} {joined}"
