"""Template rules for numbers and units: formatnum, convert, val, fractions, powers of ten."""

import re

from tokenfree.preprocess.wikitext.markup.marks import GONE
from tokenfree.preprocess.wikitext.templates.arguments import get, positional

_NUMBER = re.compile(r"([-−+]?)([0-9]+)(\.[0-9]+)?")
_LINK = re.compile(r"\[\[(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]")

# Separators of thousands and decimals, and the fewest digits that are grouped (MediaWiki's Messages*.php).
_DOT = (".", ",", 4)
_SPACE = ("\xa0", ",", 4)
_SEPARATORS = {
    **dict.fromkeys(
        ("de", "nl", "id", "tr", "da", "ro", "hr", "sl", "el", "is", "gl", "az", "vi", "mk", "sr", "bs", "sh", "eu"),
        _DOT,
    ),
    **dict.fromkeys(("es", "pt", "it", "ca"), (".", ",", 5)),
    **dict.fromkeys(
        ("uk", "ru", "be", "sv", "fi", "no", "nn", "cs", "sk", "lt", "lv", "et", "kk", "ky", "ltg", "hy", "ka", "ba"),
        _SPACE,
    ),
    **dict.fromkeys(("pl", "bg", "hu"), ("\xa0", ",", 5)),
    "fr": ("\u202f", ",", 4),
}
_BENGALI_DIGITS = str.maketrans("0123456789", "০১২৩৪৫৬৭৮৯")


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
_TO = {"vi": "đến", "uk": "до", "ru": "до", "bn": "থেকে", "de": "bis", "fr": "à", "es": "a", "pt": "a", "nl": "tot"}
_COMPOUND = frozenset((("ft", "in"), ("lb", "oz"), ("st", "lb"), ("mi", "yd"), ("yd", "ft"), ("mi", "ch")))


def grouped(number: str, language: str) -> str:
    """A plain number ("1234567.8") as the wiki's language writes it; what is not one stays as it is."""
    match = _NUMBER.fullmatch(number) if len(number) < 40 else None
    if match is None:
        return number
    sign, whole, fraction = match[1], match[2], match[3] or ""
    thousands, decimal, fewest = _SEPARATORS.get(language, (",", ".", 4))
    if len(whole) >= fewest:
        whole = _lakhs(whole) if language in ("bn", "hi") else f"{int(whole):,}".replace(",", thousands)
    shown = sign + whole + fraction.replace(".", decimal)
    return shown.translate(_BENGALI_DIGITS) if language == "bn" else shown


def _lakhs(digits: str) -> str:
    """Indian grouping: the last three digits, then pairs."""
    head, tail = digits[:-3], digits[-3:]
    first = len(head) % 2
    pairs = [head[:first]] if first else []
    pairs += [head[i : i + 2] for i in range(first, len(head), 2)]
    return ",".join([*pairs, tail])


def format_number(arguments: dict[str, str], language: str) -> str:
    """formatnum and its likes: `{{formatnum:1000}}`, `{{nts|1000}}`."""
    value = get(arguments, "1", GONE).replace(GONE, "")
    if arguments.get("2", "").strip().upper() in ("R", "NOSEP"):
        return value.replace(",", "")
    return grouped(value, language)


def convert(arguments: dict[str, str], language: str) -> str:
    """`{{convert|5|to|10|km|mi}}`: the source quantity, "5 to 10 km"; the converted one is left out."""
    values = positional(arguments)[:20]
    shown = ""
    position = 0
    while position + 1 < len(values):
        shown += _number(values[position], language)
        link = _RANGES.get(values[position + 1])
        if link is None:
            break
        shown += f" {_TO[language]} " if link == " to " and language in _TO else link
        position += 2
    if position + 1 >= len(values):
        return shown + (_number(values[position], language) if position < len(values) else "")
    unit = values[position + 1]
    shown = _with_unit(shown, unit, adjective=arguments.get("adj", "").strip() == "on")
    following = values[position + 2 : position + 4]
    if len(following) == 2 and _NUMBER.fullmatch(following[0]) and (unit, following[1]) in _COMPOUND:
        shown += f" {following[0]} {following[1]}"
    return shown


def _number(value: str, language: str) -> str:
    value = value.strip(" '" + GONE)
    # convert takes numbers with commas, and fractions as 5+1/2 or 5//8
    return grouped(value.replace(",", "") if language == "en" else value, language).replace("+", " ").replace("//", "/")


def _with_unit(shown: str, unit: str, adjective: bool = False) -> str:
    unit = _LINK.sub(r"\1", unit)
    symbol = _UNITS.get(unit.lower(), unit)
    if symbol.startswith("/"):
        return shown + symbol
    return f"{shown}-{symbol}" if adjective and len(symbol) > 4 else f"{shown} {symbol}"


def value(arguments: dict[str, str], language: str) -> str:
    """`{{val|0.99985|0.2|e=3|u=A}}`: "0.99985 ± 0.2 × 10^3 A"."""
    numbers = positional(arguments)
    shown = get(arguments, "p") + "".join(grouped(number, language) for number in numbers[:1])
    if len(numbers) > 1:
        shown += numbers[1] if numbers[1].startswith("(") else f" ± {grouped(numbers[1], language)}"
    exponent = get(arguments, "e")
    if exponent:
        shown += f" × 10{exponent}" if numbers else f"10{exponent}"
    shown += get(arguments, "s")
    unit = get(arguments, "u", "ul")
    if unit:
        shown += unit if unit in "°%" else f" {unit}"
    divisor = get(arguments, "up", "upl")
    return f"{shown}/{divisor}" if divisor else shown


def fraction(arguments: dict[str, str], slash: str = "⁄") -> str:
    """`{{frac|3|1|2}}` is 3 1⁄2, `{{frac|1|2}}` 1⁄2, `{{frac|2}}` 1⁄2."""
    parts = positional(arguments)
    if len(parts) >= 3:
        return f"{parts[0]} {parts[1]}{slash}{parts[2]}"
    if len(parts) == 2:
        return f"{parts[0]}{slash}{parts[1]}"
    return f"1{slash}{parts[0]}" if parts else ""


def power_of_ten(arguments: dict[str, str]) -> str:
    """`{{e|7}}` after a number: "×10^7" with a plain exponent, as text copied from the page has it."""
    return f" × 10{get(arguments, '1')}"


def quantity(arguments: dict[str, str], language: str) -> str:
    """French unité, nombre and tmp: `{{unité|814|km|2}}` is 814 km², other pairs alike; also `{{unité|814 km}}`."""
    values = positional(arguments)
    if not values:
        return ""
    number, _, unit = values[0].partition(" ")
    if unit and not unit[0].isdigit():
        return f"{grouped(number, language)} {unit} {' '.join(values[1:])}".rstrip()
    number = values[0].replace(" ", "")
    shown = grouped(number, language)
    units = values[1:]
    if not units:
        return shown
    if len(units) == 1:
        return f"{shown} {units[0]}"
    joined = ""
    for index in range(0, len(units), 2):
        power = units[index + 1] if index + 1 < len(units) else ""
        power = {"2": "²", "3": "³"}.get(power, power)
        joined += ("/" if joined and power.startswith("-") else "") + units[index] + power.replace("-1", "")
    return f"{shown} {joined}"


def height(arguments: dict[str, str]) -> str:
    """`{{height|ft=6|in=2}}`: "6 ft 2 in"; `{{height|m=1.88}}`: "1.88 m"."""
    units = ("m", "cm", "ft", "in", "ftin")
    return " ".join(f"{arguments[unit].strip()} {unit}" for unit in units if arguments.get(unit, "").strip())


def duration(arguments: dict[str, str]) -> str:
    """`{{duration|m=3|s=20}}`: "3:20"."""
    parts = positional(arguments) or [arguments.get(unit, "").strip() for unit in ("h", "m", "s")]
    return ":".join(part for part in parts if part)
