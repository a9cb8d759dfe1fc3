"""Five small inputs of preprocessing in every format: dumps and books, made of words drawn by a fixed generator."""

import bz2
import gzip
import json
import random
from pathlib import Path

WORDS = {
    "en": "the rain falls on quiet hills and old boats while seven geese argue about bread",
    "uk": "дощ падає на тихі пагорби поки сім гусей сперечаються про хліб і човни",
    "ja": "雨 が 静か な 丘 に 降り 七羽 の 雁 は パン を 論じる",
    "ar": "المطر يهطل على التلال الهادئة بينما تتجادل سبع إوزات حول الخبز",
    "hi": "बारिश शांत पहाड़ियों पर गिरती है जबकि सात हंस रोटी पर बहस करते हैं",
}
MARKUP = (
    "'''{0}''' is [[{1}|{2}]].<ref name=\"a\">{{{{cite web|title={0}|url=https://example.org}}}}</ref> {3}\n",
    "== {0} ==\n* {1} [https://example.org {2}]\n* {{{{lang|uk|{3}}}}} &amp; ''{0}''\n",
    '{{| class="wikitable"\n! {0} !! {1}\n|-\n| {2} || {3}\n|}}\n{0} {1}\n',
    "{{{{Infobox|name={0}|image=[[File:{1}.jpg|thumb|{2}]]}}}}\n{3}<!-- {0} --><br />{1}<sup>2</sup>\n",
    "{{{{convert|{4}|km|mi}}}} {0} <math>x^2</math> {1} — [[:Category:{2}]] [[Category:{3}]]\n",
)
PAGE = (
    "  <page>\n    <title>{title}</title>\n    <ns>{namespace}</ns>\n    <id>{number}</id>\n{redirect}    <revision>\n"
    "      <id>{revision}</id>\n      <model>wikitext</model>\n      <format>text/x-wiki</format>\n"
    '      <text xml:space="preserve">{text}</text>\n    </revision>\n  </page>\n'
)
HEADER = (
    '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="{0}">\n  <siteinfo>\n'
    "    <sitename>Wikipedia</sitename>\n    <dbname>{0}wiki</dbname>\n    <namespaces>\n"
    '      <namespace key="0" case="first-letter" />\n'
    '      <namespace key="10" case="first-letter">Template</namespace>\n'
    "    </namespaces>\n  </siteinfo>\n"
)


def _sentences(draw: random.Random, language: str, count: int) -> str:
    return " ".join(
        " ".join(draw.choices(WORDS[language].split(), k=draw.randint(4, 12))) + "." for _ in range(count)
    )


def _pages(language: str, count: int, seed: int) -> list[str]:
    draw, pages = random.Random(seed), []
    for number in range(count):
        text = "".join(
            draw.choice(MARKUP).format(*draw.choices(WORDS[language].split(), k=4), draw.randint(2, 99))
            + _sentences(draw, language, draw.randint(1, 6))
            + "\n\n"
            for _ in range(draw.randint(1, 4))
        )
        is_redirect, is_template = number % 11 == 7, number % 13 == 5
        fields = {
            "title": ("Template:" if is_template else "") + f"Page {number}",
            "namespace": 10 if is_template else 0,
            "number": 10 + number,
            "revision": 500 + number,
            "redirect": '    <redirect title="Page 1" />\n' if is_redirect else "",
            "text": text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"),
        }
        pages.append(PAGE.format(**fields))
    return pages


def write_inputs(folder: Path) -> dict[str, list[str]]:
    """Write the inputs and return the arguments of `tokenfree preprocess` for each; paths are relative to `folder`."""
    plain = HEADER.format("en") + "".join(_pages("en", 30, 1)) + "</mediawiki>\n"
    (folder / "enwiki-plain.xml").write_text(plain)
    pages = _pages("ja", 30, 2)
    streams = [
        HEADER.format("ja"),
        *("".join(pages[first : first + 10]) for first in (0, 10, 20)),
        "</mediawiki>\n",
    ]
    (folder / "jawiki-multistream.xml.bz2").write_bytes(
        b"".join(bz2.compress(each.encode()) for each in streams)
    )
    damaged = _pages("ar", 20, 3)
    damaged[9] = damaged[9].replace("</title>", "")
    single = HEADER.format("ar") + "".join(damaged) + "</mediawiki>\n"
    (folder / "arwiki-single.xml.bz2").write_bytes(bz2.compress(single.encode()))
    draw = random.Random(4)
    (folder / "texts").mkdir()
    for number in range(9):
        text = _sentences(draw, ("uk", "hi")[number % 2], 9).replace(". ", ".\n\n").encode()
        name = f"rain-{number}.txt" + (".gz" if number % 3 == 0 else "")
        (folder / "texts" / name).write_bytes(gzip.compress(text, mtime=0) if name.endswith("gz") else text)
    write_rows(folder / "rows.jsonl", 60)
    small = "--vocabulary.size 400 --vocabulary.character_coverage 0.99 --validation_fraction 0.2"
    small += " --shard_characters 4000"
    return {
        name: [*arguments.split(), *small.split()]
        for name, arguments in {
            "plain dump": "--wikipedia enwiki-plain.xml --window.max_characters 100 --split_bytes 9000",
            "multistream dump": "--wikipedia jawiki-multistream.xml.bz2 --window.max_characters 64 --split_bytes 1000",
            "single stream": "--wikipedia arwiki-single.xml.bz2 --filters.min_characters 20 --vocabulary.algorithm bpe",
            "texts": "--books texts --language uk --window.pack across_documents --window.max_characters 200",
            "rows": "--books rows.jsonl --near_duplicates.min_similarity 0.8 --window.max_characters 80 --seed 3",
        }.items()
    }


def write_rows(path: Path, count: int) -> None:
    """Write `count` documents in three languages; a tenth repeats another, a tenth nearly so."""
    draw, rows = random.Random(5), []
    for number in range(count):
        language = ("en", "en", "uk", "ja")[number % 4]
        text = _sentences(draw, language, draw.randint(3, 30))
        if number % 10 in (8, 9):
            language, text = (
                rows[-1]["language"],
                rows[-1]["text"] + ("" if number % 10 == 9 else " And more."),
            )
        rows.append({"id": f"d{number}", "language": language, "text": text})
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
