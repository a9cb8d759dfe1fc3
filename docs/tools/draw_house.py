"""Draws docs/images/house.svg from the code: `python -m docs.tools.draw_house` after rooms or imports have changed."""

import html
from collections.abc import Iterator, Sequence

from docs.tools.house import STATIONS, Room, Wing, house
from tests.conftest import REPOSITORY

PICTURE = REPOSITORY / "docs" / "images" / "house.svg"
WIDTH, MARGIN, GAP, PAD = 1060, 16, 8, 10
INK, FAINT, PAPER = "#1f2933", "#52606d", "#ffffff"
LOOK = {  # line and ground of each package
    "preprocess": ("#1d6b4a", "#e6f3ec"),
    "pipelines": ("#a75a0c", "#fcefdd"),
    "train": ("#2452a4", "#e7eefa"),
    "workflows": ("#85347f", "#f6e8f4"),
}
NARROW, WIDE = set("iljtfrI.,:;'|!()[]/ "), set("mwMWY@=")
LEGEND = (
    "A room imports only from floors below; the coloured line names those rooms of its package. "
    "Dots: who imports it from above."
)
SIDE = 232  # the width of the smaller one of two packages that stand side by side
ROOF = 58


def picture() -> str:
    """The picture as SVG: the house with its four packages, and below it the data's way through the rooms."""
    wings, inner, y = house(), WIDTH - 2 * MARGIN, MARGIN + ROOF
    parts = list(_roof(y))
    y += _add(parts, wings["workflows"], MARGIN, y, inner) + GAP
    small, large = wings["pipelines"], wings["train"]
    beside = inner - SIDE - GAP
    high = max(_height(small, SIDE), _height(large, beside))
    _add(parts, small, MARGIN, y, SIDE, high)
    y += _add(parts, large, MARGIN + SIDE + GAP, y, beside, high) + GAP
    y += _add(parts, wings["preprocess"], MARGIN, y, inner) + 22
    parts += _legend(MARGIN, y)
    y += 50
    parts.append(_text(MARGIN, y, "The data's way through it", 18, bold=True))
    way, high = _way(MARGIN, y + 16, inner)
    height = y + 16 + high + MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" '
        f'height="{height:.0f}" font-family="Helvetica, Arial, sans-serif">\n'
        "<title>The packages of tokenfree, their rooms, and the way of the data through them</title>\n"
        f'<rect width="100%" height="100%" fill="{PAPER}"/>\n' + "\n".join([*parts, *way]) + "\n</svg>\n"
    )


def _roof(y: float) -> Iterator[str]:
    line, ground = LOOK["workflows"]
    points = f"{MARGIN},{y - 6} {WIDTH / 2},{y - ROOF} {WIDTH - MARGIN},{y - 6}"
    yield f'<polygon points="{points}" fill="{ground}" stroke="{line}" stroke-opacity="0.55" stroke-linejoin="round"/>'
    yield _text(WIDTH / 2 - _long("tokenfree", 18, bold=True) / 2, y - 16, "tokenfree", 18, line, bold=True)


def _legend(x: float, y: float) -> Iterator[str]:
    yield _text(x, y, LEGEND, 12, FAINT)
    x += _long(LEGEND, 12) + 14
    for name in ("pipelines", "train", "workflows"):
        yield _dot(x, y - 4, name)
        yield _text(x + 9, y, name, 12, LOOK[name][0])
        x += _long(name, 12) + 20


def _add(parts: list[str], wing: Wing, x: float, y: float, width: float, height: float = 0.0) -> float:
    """Add a package's panel, the top floor first, and return its height; floors grow where it is to be higher."""
    line, ground = LOOK[wing.name]
    floors, natural = _floors(wing, width), _height(wing, width)
    height = max(height, natural)
    more = (height - natural) / len(floors)
    parts += [_box(x, y, width, height, ground, line, 10), _text(x + PAD, y + 24, f"{wing.name}/", 17, line, bold=True)]
    beside = _long(f"{wing.name}/", 17, bold=True) + 2 * PAD
    parts.append(_text(x + beside, y + 23, "on " + ", ".join(wing.libraries), 11, FAINT))
    at = y + 34
    for floor in floors:
        high = _floor_height(floor, width) + more
        left = x + PAD
        for room, wide in zip(floor, _widths(floor, width), strict=True):
            parts += _room(room, left, at, wide, high, line)
            left += wide + GAP
        at += high + GAP
    return height


def _floors(wing: Wing, width: float) -> list[Sequence[Room]]:
    """From the top; in a narrow panel each room is a floor of its own."""
    if width > 2 * SIDE:
        return [*reversed(wing.floors)]
    return [(room,) for floor in reversed(wing.floors) for room in floor]


def _height(wing: Wing, width: float) -> float:
    return 34 + sum(_floor_height(floor, width) + GAP for floor in _floors(wing, width)) + PAD - GAP


def _widths(floor: Sequence[Room], width: float) -> list[float]:
    """Of the rooms on a floor: those with floors of their own have more to say."""
    shares = [1.5 if room.inside else 1.0 for room in floor]
    return [(width - 2 * PAD - GAP * (len(floor) - 1)) * share / sum(shares) for share in shares]


def _floor_height(floor: Sequence[Room], width: float) -> float:
    rows = (len(_lines(room, wide)) for room, wide in zip(floor, _widths(floor, width), strict=True))
    return 26 + 15 * max(rows) + 6


def _lines(room: Room, width: float) -> list[tuple[str, bool]]:
    """What stands in a room's box under its name: (text, whether it tells of imports)."""
    wide = width - 2 * PAD
    lines = [(line, False) for line in _wrapped(room.holds, wide, 12)]
    lines += [(line, False) for line in (_wrapped(room.inside, wide, 12) if room.inside else [])]
    if room.stands_on:
        lines += [(line, True) for line in _wrapped("on " + ", ".join(room.stands_on), wide, 11)]
    return lines


def _room(room: Room, x: float, y: float, width: float, height: float, line: str) -> Iterator[str]:
    yield _box(x, y, width, height, PAPER, line, 6)
    yield _text(x + PAD, y + 20, room.name, 14, INK, bold=True)
    for number, user in enumerate(reversed(room.used_by)):
        yield _dot(x + width - PAD - 13 * number, y + 15, user)
    for number, (text, imports) in enumerate(_lines(room, width)):
        yield _text(x + PAD, y + 37 + 15 * number, text, 11 if imports else 12, line if imports else FAINT)


def _way(x: float, y: float, width: float) -> tuple[list[str], float]:
    """The stations of the data in a row under the names of the packages that they lie in, with arrows between."""
    arrow = 22.0
    box = (width - arrow * (len(STATIONS) - 1)) / len(STATIONS)
    texts = [_wrapped(what, box - 2 * PAD, 12) for *_, what, _ in STATIONS]
    stops = [_wrapped(", ".join(rooms), box - 2 * PAD, 12) for *_, rooms in STATIONS]
    most = max(map(len, texts))
    height = 34 + 15 * most + 15 * max(map(len, stops)) + PAD
    parts, top, before = [], y + 20, ""
    for index, (name, package, _, _) in enumerate(STATIONS):
        left = x + index * (box + arrow)
        line, ground = LOOK[package]
        if package != before:
            end = index + sum(other == package for _, other, _, _ in STATIONS)
            parts.append(_text(left, y + 6, f"{package}/", 14, line, bold=True))
            start = left + _long(f"{package}/", 14, bold=True) + 8
            stop = x + end * (box + arrow) - arrow
            parts.append(f'<path d="M{start:.1f} {y + 2:.1f}H{stop:.1f}" stroke="{line}" stroke-opacity="0.55"/>')
        before = package
        parts += [_box(left, top, box, height, ground, line, 10), _text(left + PAD, top + 22, name, 14, bold=True)]
        parts += [_text(left + PAD, top + 41 + 15 * row, text, 12, FAINT) for row, text in enumerate(texts[index])]
        parts += [
            _text(left + PAD, top + 45 + 15 * (most + row), text, 12, line) for row, text in enumerate(stops[index])
        ]
        if index:
            parts.append(_arrow(left - arrow + 4, left - 4, top + height / 2))
    return parts, height + 20


def _arrow(start: float, tip: float, y: float) -> str:
    head = f"M{tip - 6:.1f} {y - 5:.1f}L{tip:.1f} {y:.1f}L{tip - 6:.1f} {y + 5:.1f}"
    return (
        f'<path d="M{start:.1f} {y:.1f}H{tip:.1f}{head}" fill="none" stroke="{INK}" stroke-width="1.6" '
        'stroke-linecap="round" stroke-linejoin="round"/>'
    )


def _box(x: float, y: float, width: float, height: float, fill: str, line: str, round_by: float) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{round_by}" fill="{fill}" '
        f'stroke="{line}" stroke-opacity="0.55"/>'
    )


def _text(x: float, y: float, text: str, size: int, colour: str = INK, *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}"{weight}>{html.escape(text)}</text>'


def _dot(x: float, y: float, package: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{LOOK[package][0]}"/>'


def _long(text: str, size: int, *, bold: bool = False) -> float:
    """About how many pixels a text takes in the widest of the usual fonts."""
    ems = sum(0.35 if c in NARROW else 0.95 if c in WIDE else 0.72 if c.isupper() else 0.62 for c in text)
    return size * ems * (1.1 if bold else 1.0)


def _wrapped(text: str, width: float, size: int) -> list[str]:
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and _long(longer, size) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
