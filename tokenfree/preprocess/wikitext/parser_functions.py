"""MediaWiki's parser functions and variables, such as `{{#if:}}`, `{{lc:}}` and `{{PAGENAME}}`.

The expander of templates calls them with the page and unexpanded arguments. What depends on the day, on users
or on other pages' content shows nothing.
"""

import math
import operator
import re
import urllib.parse
from collections.abc import Callable, Sequence
from typing import Any

from tokenfree.preprocess.wikitext.markup import GONE, LITERAL, literal, resolve_entities

# A page in which a call is expanded, with its methods `expand` and `exists` (templates.PageExpansion), and a frame.
Page = Any
Frame = Any
Arguments = Sequence[tuple[Any, Any]]  # name (None for a numbered one) and value, neither expanded
Function = Callable[[Page, Frame, str, Arguments], str]


class NeedsLuaError(Exception):
    """A call needs a Lua module, which is not run, or data from another wiki."""


_ERROR_CLASS = re.compile(
    r'<(?:strong|span|p|div)\s[^<>]*?\bclass\s*=\s*"(?:[^"\s<>]*\s+)*error(?:\s[^"<>]*)?"'
)
_SPACE = " \t\n\r\v\f\xa0" + GONE


def error(message: str) -> str:
    return f'<strong class="error">{message}</strong>'


def raw_argument(page: Page, frame: Frame, arguments: Arguments, index: int) -> str:
    """Return an argument of a function as it was written, expanded and trimmed, or nothing if it is missing."""
    if index >= len(arguments):
        return ""
    name, value = arguments[index]
    text = page.expand(value, frame)
    return (text if name is None else f"{page.expand(name, frame)}={text}").strip(_SPACE)


def _decoded(text: str) -> str:
    return resolve_entities(text).strip(_SPACE)


_NUMERIC = re.compile(r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*", re.ASCII)


def is_same(left: str, right: str) -> bool:
    """Compare as PHP does: numbers by their value."""
    if left == right:
        return True
    are_numbers = _NUMERIC.fullmatch(left[:40]) and _NUMERIC.fullmatch(right[:40])
    return bool(are_numbers) and float(left[:40]) == float(right[:40])


def _if(page: Page, frame: Frame, first: str, arguments: Arguments) -> str:
    return raw_argument(page, frame, arguments, 0 if first.strip(_SPACE) else 1)


def _ifeq(page: Page, frame: Frame, first: str, arguments: Arguments) -> str:
    equal = is_same(_decoded(first), _decoded(raw_argument(page, frame, arguments, 0)))
    return raw_argument(page, frame, arguments, 1 if equal else 2)


def _iferror(page: Page, frame: Frame, first: str, arguments: Arguments) -> str:
    if _ERROR_CLASS.search(first):
        return raw_argument(page, frame, arguments, 0)
    return raw_argument(page, frame, arguments, 1) if len(arguments) > 1 else first.strip(_SPACE)


def _ifexpr(page: Page, frame: Frame, first: str, arguments: Arguments) -> str:
    try:
        value = evaluate(first)
    except ValueError as problem:
        return error(str(problem))
    return raw_argument(page, frame, arguments, 0 if value else 1)


def _ifexist(page: Page, frame: Frame, first: str, arguments: Arguments) -> str:
    return raw_argument(page, frame, arguments, 0 if page.exists(first) else 1)


def _switch(page: Page, frame: Frame, first: str, arguments: Arguments) -> str:
    subject = _decoded(first)
    matched = default_next = False
    default: Any = None
    for name, value in arguments:
        if name is None:
            test = _decoded(page.expand(value, frame))
            matched = matched or is_same(test, subject)
            default_next = default_next or test == "#default"
            continue
        test = name if matched else _decoded(page.expand(name, frame))
        if matched or is_same(test, subject):
            return page.expand(value, frame).strip(_SPACE)
        if default_next or test == "#default":
            default, default_next = value, False
    if arguments and arguments[-1][0] is None and not default_next:
        default = arguments[-1][1]
    return "" if default is None else page.expand(default, frame).strip(_SPACE)


def _expr(page: Page, frame: Frame, first: str, arguments: Arguments) -> str:
    try:
        value = evaluate(first)
    except ValueError as problem:
        return error(str(problem))
    return "" if value is None else written(value)


def written(value: float) -> str:
    """Return a number as PHP prints it, with 14 digits."""
    if abs(value) < (2**63 if isinstance(value, int) else 1e15) and value == int(value):
        return str(int(value))
    text = format(value, ".14G")
    mantissa, exponent, power = text.partition("E")
    if not exponent:
        return text
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{power[0]}{power[1:].lstrip('0')}"


_TOKEN = re.compile(r"\s*(?:(\d+\.?\d*|\.\d+)|([a-zA-Z]+)|(<=|>=|<>|!=|[-+*/^()=<>\u2212])|(\S))")
_WORDS: dict[str, float] = {"pi": math.pi}


def _divided(left: float, right: float) -> float:
    if not right:
        raise ValueError("Division by zero.")
    exact = isinstance(left, int) and isinstance(right, int) and left % right == 0
    return left // right if exact else left / right


def _remainder(left: float, right: float) -> float:
    if not int(right):
        raise ValueError("Division by zero.")
    return int(math.fmod(int(left), int(right)))


def _rounded(value: float, digits: float) -> float:
    """Round half away from zero, as PHP does."""
    places = max(-30, min(30, int(digits)))
    scaled = abs(value) * 10.0**places
    nearest = math.floor(scaled + 0.5 + scaled * 1e-15) * (-1 if value < 0 else 1)
    return nearest / 10**places if places > 0 else nearest * 10**-places


def _power(left: float, right: float) -> float:
    result = float(left) ** right
    if isinstance(result, complex):
        raise ValueError("Invalid argument for ^.")
    exact = isinstance(left, int) and isinstance(right, int) and right >= 0 and abs(result) < 2**53
    return int(result) if exact else result


_UNARY: dict[str, Callable[[float], float]] = {
    "not": lambda value: int(not value),
    "sin": math.sin, "cos": math.cos, "tan": math.tan, "asin": math.asin, "acos": math.acos, "atan": math.atan,
    "exp": math.exp, "ln": math.log, "abs": abs, "floor": math.floor, "ceil": math.ceil,
    "trunc": lambda value: math.trunc(value) if math.isfinite(value) else value,
    "sqrt": math.sqrt, "neg": operator.neg, "pos": operator.pos,
}  # fmt: skip
_BINARY: dict[str, tuple[int, Callable[[Any, Any], float]]] = {
    "e": (10, lambda left, right: left * 10.0**right if right < 0 else left * 10 ** int(right)),
    "^": (8, _power), "*": (7, operator.mul), "/": (7, _divided), "div": (7, _divided), "mod": (7, _remainder),
    "fmod": (7, math.fmod), "+": (6, operator.add), "-": (6, operator.sub), "round": (5, _rounded),
    "=": (4, lambda left, right: int(left == right)), "!=": (4, lambda left, right: int(left != right)),
    "<>": (4, lambda left, right: int(left != right)), "<": (4, lambda left, right: int(left < right)),
    ">": (4, lambda left, right: int(left > right)), "<=": (4, lambda left, right: int(left <= right)),
    ">=": (4, lambda left, right: int(left >= right)), "and": (3, lambda left, right: int(bool(left and right))),
    "or": (2, lambda left, right: int(bool(left or right))),
}  # fmt: skip
_MAX_EXPRESSION = 2000  # characters


def evaluate(expression: str) -> float | None:
    """Return the value of an expression of #expr, or None if it is empty. Raises ValueError if it has none."""
    text = _decoded(expression).replace("\u2212", "-")
    if len(text) > _MAX_EXPRESSION:
        raise ValueError("Expression error: Too long.")
    values: list[float] = []
    operators: list[str] = []
    try:
        _read(text, values, operators)
        while operators:
            if operators[-1] == "(":
                raise ValueError("Expression error: Unclosed bracket.")
            _apply(values, operators.pop())
        if len(values) > 1 or any(isinstance(value, float) and not math.isfinite(value) for value in values):
            raise ValueError("Expression error: Unexpected number.")
    except (ArithmeticError, IndexError, OverflowError, TypeError) as problem:
        raise ValueError(f"Expression error: {problem}.") from None
    return values[0] if values else None


def _read(text: str, values: list[float], operators: list[str]) -> None:
    expecting = True  # an operand, not an operator
    for number, word, sign, other in _TOKEN.findall(text):
        token = (word or sign).lower()
        if other or (not expecting and (number or token in _WORDS or token in _UNARY or token == "(")):
            raise ValueError(f"Expression error: Unexpected {other or number or token}.")
        if number:
            values.append(float(number) if "." in number or len(number) > 18 else int(number))
            expecting = False
        elif expecting and (token in _WORDS or token == "e"):
            values.append(_WORDS.get(token, math.e))
            expecting = False
        elif expecting and (token in _UNARY or token in ("+", "-", "(")):
            operators.append({"+": "pos", "-": "neg"}.get(token, token))
        elif token == ")" and not expecting:
            while operators and operators[-1] != "(":
                _apply(values, operators.pop())
            if not operators:
                raise ValueError("Expression error: Unexpected closing bracket.")
            operators.pop()
        elif token in _BINARY and not expecting:
            precedence = _BINARY[token][0]
            while operators and operators[-1] != "(" and _precedence(operators[-1]) >= precedence:
                _apply(values, operators.pop())
            operators.append(token)
            expecting = True
        else:
            raise ValueError(f"Expression error: Unexpected {token}.")


def _precedence(name: str) -> int:
    return _BINARY[name][0] if name in _BINARY else 10 if name in ("neg", "pos") else 9


def _apply(values: list[float], name: str) -> None:
    if name in _UNARY:
        values.append(_UNARY[name](values.pop()))
        return
    right = values.pop()
    values.append(_BINARY[name][1](values.pop(), right))


_MAX_PARTS = 25


def _titleparts(page: Page, frame: Frame, first: str, arguments: Arguments) -> str:
    parts = first.strip(_SPACE).split("/", _MAX_PARTS - 1)
    count, offset = (_whole(raw_argument(page, frame, arguments, index)) for index in (0, 1))
    if offset > 0:
        offset -= 1
    chosen = parts[offset:] if offset >= 0 or -offset <= len(parts) else parts
    return "/".join(chosen[:count] if count else chosen)


def _whole(text: str) -> int:
    match = re.match(r"[+-]?\d{1,9}", text, re.ASCII)
    return int(match[0]) if match else 0


def _tag(page: Page, frame: Frame, first: str, arguments: Arguments) -> str:
    name = first.strip(_SPACE).lower()
    content = raw_argument(page, frame, arguments, 0)
    if name in LITERAL:
        return literal(name, content)
    attributes = "".join(
        f' {page.expand(key, frame).strip()}="{page.expand(value, frame).strip()}"'
        for key, value in arguments[1:] if key is not None
    )  # fmt: skip
    return f"<{name}{attributes}>{content}</{name}>" if name.isalnum() else ""


def _invoke(page: Page, frame: Frame, first: str, arguments: Arguments) -> str:
    # These modules show nothing or only a message to editors.
    if first.strip(_SPACE).lower().startswith(("check for ", "templatepar", "category handler", "unsubst")):
        return ""
    raise NeedsLuaError(first)


def _needs_data(page: Page, frame: Frame, first: str, arguments: Arguments) -> str:
    raise NeedsLuaError(first)


def _of_text(function: Callable[[str], str]) -> Function:
    return lambda page, frame, first, arguments: function(first)


def _first_letter(change: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: change(text[:1]) + text[1:]


def _ucfirst(page: Page, frame: Frame, first: str, arguments: Arguments) -> str:
    dotted = first[:1] == "i" and page.site.language in ("az", "kk-latn", "tr")
    return ("İ" if dotted else first[:1].upper()) + first[1:]


def _padded(left: bool) -> Function:
    def pad(page: Page, frame: Frame, first: str, arguments: Arguments) -> str:
        first = first.replace(GONE, "")
        length = min(500, _whole(raw_argument(page, frame, arguments, 0)))
        filler = raw_argument(page, frame, arguments, 1).replace(GONE, "") if len(arguments) > 1 else "0"
        missing = length - len(first)
        padding = (filler * (missing // max(1, len(filler)) + 1))[:missing] if missing > 0 and filler else ""
        return padding + first if left else first + padding

    return pad


def _formatnum(page: Page, frame: Frame, first: str, arguments: Arguments) -> str:
    how = raw_argument(page, frame, arguments, 0).upper()
    if how == "R":
        return ungrouped(first, page.site.language)
    return first if how == "NOSEP" else grouped(first, page.site.language.partition("-")[0])


def _ns(page: Page, frame: Frame, first: str, arguments: Arguments) -> str:
    key = first.strip().replace("_", " ")
    number = int(key) if re.fullmatch(r"-?\d{1,4}", key) else page.site.namespace_of(key + ":")
    return page.site.namespaces.get(number, ("",))[0]


_SLAVIC = ("ru", "uk", "be", "sr", "hr", "bs", "sh", "rue", "pl")
_ONE_FORM = (
    "ja",
    "zh",
    "ko",
    "vi",
    "th",
    "id",
    "ms",
    "fa",
    "tr",
    "hu",
    "ka",
    "lo",
    "my",
    "wuu",
    "yue",
    "bo",
    "km",
)


def plural_form(number: float, language: str) -> int:
    """Return the index of the form of a noun after a number (CLDR), for the rules of most wikis."""
    if language in _ONE_FORM:
        return 0
    last, teen = int(number) % 10, 11 <= int(number) % 100 <= 19
    if language in _SLAVIC:
        single = number == 1 if language == "pl" else last == 1 and not teen
        return 0 if single else 1 if 2 <= last <= 4 and not teen else 2
    if language == "lt":
        return 0 if last == 1 and not teen else 1 if last and not teen else 2
    if language in ("cs", "sk"):
        return 0 if number == 1 else 1 if 2 <= number <= 4 else 2
    return 0 if number == 1 or (number < 2 and language in ("fr", "pt", "hy", "hi", "bn")) else 1


def _plural(page: Page, frame: Frame, first: str, arguments: Arguments) -> str:
    number_text = ungrouped(first.strip(), page.site.language)
    number = abs(float(number_text)) if _NUMERIC.fullmatch(number_text[:40]) else 0.0
    forms = []
    for index, (name, value) in enumerate(arguments):
        if name is not None and is_same(page.expand(name, frame).strip(), number_text):
            return page.expand(value, frame).strip(_SPACE)
        if name is None:
            forms.append(index)
    if not forms:
        return ""
    form = plural_form(number, page.site.language.partition("-")[0])
    return raw_argument(page, frame, arguments, forms[min(form, len(forms) - 1)])


_ISO_DATE = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2}))?)?(?:[T ].*)?", re.ASCII)
MONTHS = {
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


def _time(page: Page, frame: Frame, first: str, arguments: Arguments) -> str:
    """Write a given date by a format of letters and text. The time of day and today's date show nothing."""
    date = _ISO_DATE.fullmatch(_decoded(raw_argument(page, frame, arguments, 0)))
    if date is None:
        return error("Error: Invalid time.") if arguments and raw_argument(page, frame, arguments, 0) else ""
    year, month, day = date[1], int(date[2] or 1), int(date[3] or 1)
    names = MONTHS.get(page.site.language.partition("-")[0])
    if not 1 <= month <= 12 or not 1 <= day <= 31 or (names is None and "F" in first):
        return error("Error: Invalid time.")
    name = names.split()[month - 1] if names else ""
    letters = {"Y": year, "y": year[2:], "n": str(month), "m": f"{month:02}", "F": name, "M": name[:3],
               "j": str(day), "d": f"{day:02}"}  # fmt: skip
    return re.sub(
        r'"([^"]*)"|x[gGnN]?|[A-Za-z]', lambda m: m[1] if m[1] is not None else letters.get(m[0], ""), first
    )


_DATE = re.compile(
    r"(-?\d{4})-(\d\d)-(\d\d)|(\d{1,2})[ _]([^\W\d_]+)(?:,? ?(\d{1,4}))?"
    r"|([^\W\d_]+)[ _](\d{1,2})(?:, ?(\d{1,4}))?"
)


def _formatdate(page: Page, frame: Frame, first: str, arguments: Arguments) -> str:
    """Write a date as the second argument asks; without it, as it is."""
    match, how = _DATE.fullmatch(first), raw_argument(page, frame, arguments, 0)
    names = MONTHS.get(page.site.language.partition("-")[0], MONTHS["en"]).split()
    lower = [name.lower() for name in names]
    if match is None or how not in ("mdy", "dmy", "ymd"):
        return first
    year, day = match[1] or match[6] or match[9] or "", int(match[3] or match[4] or match[8])
    word = (match[5] or match[7] or "").lower()
    month = int(match[2]) if match[2] else lower.index(word) + 1 if word in lower else 0
    if not 1 <= month <= 12:
        return first
    if year:
        year = str(int(year)) if int(year) > 0 else f"{1 - int(year)} BC"
    name = names[month - 1]
    orders = {
        "dmy": f"{day} {name} {year}",
        "ymd": f"{year} {name} {day}",
        "mdy": f"{name} {day}" + (f", {year}" if year else ""),
    }
    return orders[how].strip()


_DASHES = str.maketrans({" ": "_"})


def _page_of(part: Callable[[str], str]) -> Function:
    """A variable about the page's title, or about the title that is its argument."""
    return lambda page, frame, first, arguments: part(_title_of(page, first))


def _title_of(page: Page, first: str) -> str:
    title = first.strip(_SPACE).replace("_", " ") or page.title
    return title[:1].upper() + title[1:]


def _namespace(page: Page, frame: Frame, first: str, arguments: Arguments) -> str:
    title = _title_of(page, first)
    return title.partition(":")[0] if page.site.namespace_of(title) else ""


def _subject(talk: bool) -> Function:
    """The namespace of the article, or of its talk."""

    def value(page: Page, frame: Frame, first: str, arguments: Arguments) -> str:
        number = page.site.namespace_of(_title_of(page, first))
        return page.site.namespaces.get(number - number % 2 + talk, ("",))[0]

    return value


def _on(talk: bool) -> Function:
    """The full title of the article, or of its talk page."""
    space = _subject(talk)

    def value(page: Page, frame: Frame, first: str, arguments: Arguments) -> str:
        prefix = space(page, frame, first, arguments)
        return f"{prefix}:{_name(page, first)}" if prefix else _name(page, first)

    return value


def _name(page: Page, first: str) -> str:
    title = _title_of(page, first)
    return title.partition(":")[2].strip() if page.site.namespace_of(title) else title


def _of_name(part: Callable[[str], str]) -> Function:
    return lambda page, frame, first, arguments: part(_name(page, first))


def _in_url(function: Function) -> Function:
    return lambda *arguments: urllib.parse.quote(function(*arguments).translate(_DASHES), safe="/:!$()*,;@")


def _url(host: bool) -> Function:
    def value(page: Page, frame: Frame, first: str, arguments: Arguments) -> str:
        query = raw_argument(page, frame, arguments, 0)
        name = urllib.parse.quote(_title_of(page, first).translate(_DASHES), safe="/:!$()*,;@")
        path = f"/index.php?title={name}&{query}" if query else f"/wiki/{name}"
        return f"//{page.site.language}.wikipedia.org{path}" if host else path

    return value


def _urlencode(page: Page, frame: Frame, first: str, arguments: Arguments) -> str:
    first = first.replace(GONE, "")
    how = raw_argument(page, frame, arguments, 0).upper()
    if how == "WIKI":
        return urllib.parse.quote(first.translate(_DASHES), safe="/:!$()*,;@")
    return urllib.parse.quote(first, safe="") if how == "PATH" else urllib.parse.quote_plus(first)


def _interwiki(page: Page, frame: Frame, first: str, arguments: Arguments) -> str:
    title, *label = (raw_argument(page, frame, arguments, index) for index in range(len(arguments)))
    return f"[[:{first}:{title}|{label[0]}]]" if label else f"[[:{first}:{title}]]"


_SPACES = {
    "NAMESPACE": _namespace,
    "NAMESPACENUMBER": lambda page, frame, first, _: str(page.site.namespace_of(_title_of(page, first))),
    "SUBJECTSPACE": _subject(False), "ARTICLESPACE": _subject(False), "TALKSPACE": _subject(True),
    "SUBJECTPAGENAME": _on(False), "ARTICLEPAGENAME": _on(False), "TALKPAGENAME": _on(True),
    "FULLPAGENAME": _page_of(str), "PAGENAME": _of_name(str),
    "BASEPAGENAME": _of_name(lambda name: name.rpartition("/")[0] or name),
    "ROOTPAGENAME": _of_name(lambda name: name.partition("/")[0]),
    "SUBPAGENAME": _of_name(lambda name: name.rpartition("/")[2]),
}  # fmt: skip
# Variables that also take a title as an argument, in their English spelling and some local ones.
TITLES: dict[str, Function] = {**_SPACES, **{f"{name}E": _in_url(value) for name, value in _SPACES.items()}}
_LOCAL_TITLES = """
PAGENAME SEITENNAME NOMPAGE NOMBREDEPAGINA NOMBREDEPÁGINA NOMEDAPAGINA NOMEDAPÁGINA TITOLOPAGINA PAGINANAAM NAZWASTRONY
PAGENAME НАЗВАНИЕСТРАНИЦЫ НАЗВАСТОРІНКИ ページ名 頁名 页名 TÊNTRANG TRANG NAMASIDHALAMAN SIDNAMN SIDENAVN SAYFAADI
PAGENAME اسم_الصفحة نام‌صفحه שם_הדף NÁZEVSTRÁNKY NÁZOVSTRÁNKY OLDALNEVE LAPNEVE NUMEPAGINĂ SIVUNIMI 문서이름
FULLPAGENAME VOLLER_SEITENNAME NOMPAGECOMPLET NOMBREDEPÁGINACOMPLETA ПОЛНОЕНАЗВАНИЕСТРАНИЦЫ TÊNTRANGĐỦ
NAMESPACE NAMENSRAUM ESPACENOMMAGE ESPACIODENOMBRE ПРОСТРАНСТВОИМЁН KHÔNGGIANTÊN НАЗВАПРОСТОРУ
SUBPAGENAME UNTERSEITENNAME NOMSOUSPAGE НАЗВАНИЕПОДСТРАНИЦЫ TÊNTRANGPHỤ
"""
for _line in _LOCAL_TITLES.strip().split("\n"):
    _canonical, *_local = _line.split()
    TITLES.update(dict.fromkeys(_local, TITLES[_canonical]))

# Variables without an argument.
VARIABLES: dict[str, Callable[[Page], str]] = {
    "!": lambda page: "|",
    "=": lambda page: "=",
    "SITENAME": lambda page: "Wikipedia",
    "SERVERNAME": lambda page: f"{page.site.language}.wikipedia.org",
    "SERVER": lambda page: f"//{page.site.language}.wikipedia.org",
    "CONTENTLANGUAGE": lambda page: page.site.language,
    "CONTENTLANG": lambda page: page.site.language,
    "PAGELANGUAGE": lambda page: page.site.language,
    "USERLANGUAGE": lambda page: page.site.language,
    **{name: (lambda page, value=value: value(page, None, "", ())) for name, value in TITLES.items()},
}  # fmt: skip
# These change with the day or an edit.
_CLOCK = "YEAR MONTH MONTH1 MONTHNAME MONTHNAMEGEN MONTHABBREV DAY DAY2 DOW DAYNAME TIME HOUR WEEK TIMESTAMP"
_OTHERS = """
NUMBEROFARTICLES NUMBEROFPAGES NUMBEROFFILES NUMBEROFEDITS NUMBEROFUSERS NUMBEROFADMINS NUMBEROFACTIVEUSERS
REVISIONID REVISIONDAY REVISIONDAY2 REVISIONMONTH REVISIONMONTH1 REVISIONYEAR REVISIONTIMESTAMP REVISIONUSER
REVISIONSIZE CURRENTVERSION SCRIPTPATH STYLEPATH PAGEID NOEXTERNALLANGLINKS
"""
_EMPTY = (*_OTHERS.split(), *(f"{at}{name}" for at in ("CURRENT", "LOCAL") for name in _CLOCK.split()))
VARIABLES.update(dict.fromkeys(_EMPTY, lambda page: ""))

_RTL = "ar arc arz azb ckb dv fa glk he ks lrc mzn pnb ps sd ug ur yi"  # languages written from right to left


FUNCTIONS: dict[str, Function] = {
    "#if": _if, "#ifeq": _ifeq, "#iferror": _iferror, "#ifexpr": _ifexpr, "#ifexist": _ifexist, "#switch": _switch,
    "#expr": _expr, "#titleparts": _titleparts, "#tag": _tag, "#invoke": _invoke, "#property": _needs_data,
    "#statements": _needs_data, "#time": _time, "#timel": _time, "#formatdate": _formatdate, "#dateformat": _formatdate,
    "#language": _needs_data, "lc": _of_text(str.lower), "uc": _of_text(str.upper),
    "lcfirst": _of_text(_first_letter(str.lower)), "ucfirst": _ucfirst,
    "formatnum": _formatnum, "padleft": _padded(True), "padright": _padded(False), "plural": _plural, "ns": _ns,
    "nse": _in_url(_ns), "urlencode": _urlencode,
    "anchorencode": lambda page, frame, first, _: re.sub(
        r"%(?=[0-9A-Fa-f]{2})", "%25", re.sub(r"[ _]+", "_", first.strip(" _"))
    ),
    "#dir": lambda page, frame, first, _: "rtl" if (first or page.site.language).lower() in _RTL.split() else "ltr",
    "#interwikilink": _interwiki, "#interlanguagelink": lambda *_: "",
    "#contentmodel": lambda page, frame, first, _: "wikitext",
    **dict.fromkeys(("grammar", "gender"), lambda page, frame, _, arguments: raw_argument(page, frame, arguments, 0)),
    "bidi": _of_text(str), "#bcp47": _of_text(str),
    **dict.fromkeys(("localurl", "localurle"), _url(False)),
    **dict.fromkeys(("fullurl", "fullurle", "canonicalurl", "canonicalurle"), _url(True)),
    **dict.fromkeys(
        ("defaultsort", "defaultsortkey", "defaultcategorysort", "displaytitle", "filepath", "numberingroup",
         "protectionlevel", "pagesincategory", "#coordinates", "#section", "#lst", "#babel"), lambda *_: ""),
}  # fmt: skip
# Functions that give one of their arguments.
CONTROL = frozenset((_if, _ifeq, _iferror, _ifexpr, _ifexist, _switch))
_LOCAL_FUNCTIONS = """
#if #wenn #si #если #якщо #nếu #eğer #jeżeli #als #もし
#ifeq #wenngleich #сравнение #nếubằng
#switch #wechsle #переключатель #schalter
#expr #ausdruck #вычислить #biểuthức
#invoke #aufrufen #invoque #вызвать #викликати #gọi #呼び出す
lc kleinbuchstaben нижнийрегистр
uc grossbuchstaben верхнийрегистр
formatnum zahlenformat formatnombre форматироватьчисло зробитичисло
"""
for _line in _LOCAL_FUNCTIONS.strip().split("\n"):
    _canonical, *_local = _line.split()
    FUNCTIONS.update(dict.fromkeys(_local, FUNCTIONS[_canonical]))

_NUMBER = re.compile(r"([-−+]?)([0-9]+)(\.[0-9]+)?")
# Separators of thousands and decimals, and the fewest digits that are grouped (MediaWiki's Messages*.php).
_SEPARATORS = {
    language: style
    for style, languages in (
        ((".", ",", 4), "de nl id tr da ro hr sl el is gl az vi mk sr bs sh eu"),
        ((".", ",", 5), "es pt it ca"),
        (("\xa0", ",", 4), "uk ru be sv fi no nn cs sk lt lv et kk ky ltg hy ka ba"),
        (("\xa0", ",", 5), "pl bg hu"),
        (("\u202f", ",", 4), "fr"),
    )
    for language in languages.split()
}
_BENGALI_DIGITS = str.maketrans("0123456789", "০১২৩৪৫৬৭৮৯")


def grouped(number: str, language: str) -> str:
    """Return a plain number ("1234567.8") as the wiki's language writes it, and anything else as it is."""
    match = _NUMBER.fullmatch(number) if len(number) < 40 else None
    if match is None:
        return number
    sign, whole, fraction = match[1], match[2], match[3] or ""
    thousands, decimal, fewest = _SEPARATORS.get(language, (",", ".", 4))
    if len(whole) >= fewest:
        whole = _lakhs(whole) if language in ("bn", "hi") else f"{int(whole):,}".replace(",", thousands)
    text = sign + whole + fraction.replace(".", decimal)
    return text.translate(_BENGALI_DIGITS) if language == "bn" else text


def _lakhs(digits: str) -> str:
    head, tail = digits[:-3], digits[-3:]
    first = len(head) % 2
    pairs = [head[:first]] if first else []
    pairs += [head[i : i + 2] for i in range(first, len(head), 2)]
    return ",".join([*pairs, tail])


def ungrouped(number: str, language: str) -> str:
    """Return the plain number behind one that the wiki's language writes."""
    thousands, decimal, _ = _SEPARATORS.get(language.partition("-")[0], (",", ".", 4))
    return number.replace(thousands, "").replace(decimal, ".")
