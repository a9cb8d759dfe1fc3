"""Text files in any encoding become paragraphs; JSON lines and Parquet tables become documents."""

import contextlib
import json
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenfree.core.errors import UserError
from tokenfree.core.settings import build
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.records import Failure, Page
from tokenfree.preprocess.sources.books import NotText, decode_book, paragraphs, parse_book, strip_gutenberg
from tokenfree.preprocess.sources.splits import plan_splits, read_split

LINES = """Call me Ishmael. Some years ago, never mind how long precisely,
having little or no money in my purse, and nothing particular to
interest me on shore, I thought I would sail about a little and see
the watery part of the world. It is a way I have of driving off the
spleen and regulating the circulation in a self-
taught manner, whenever I find myself growing grim about the mouth.
"""
VERSE = "The rose is red,\nThe violet blue,\nSugar is sweet."


def read(*paths: Path, **settings: object) -> list[Page | Failure]:
    config = PreprocessConfig(books=tuple(map(str, paths)), **settings)  # pyright: ignore[reportArgumentType]
    return [book for split in plan_splits(config) for book in read_split(split)]


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp1252"]
)
def test_encodings(encoding: str) -> None:
    text = "Grüße aus Köln, “schöne” Stadt – für alle Leute dort.\n" * 3
    assert decode_book(text.encode(encoding)) == text


OTHERS = [
    ("ru", "cp1251"), ("ru", "koi8-r"), ("ru", "iso8859-5"), ("ru", "cp866"), ("ru", "mac-cyrillic"), ("el", "cp1253"),
    ("he", "cp1255"), ("ar", "cp1256"), ("th", "cp874"), ("ja", "shift_jis"), ("ja", "euc_jp"), ("zh", "gb18030"),
    ("zh", "gb2312"), ("zh", "big5"), ("ko", "cp949"), ("ko", "euc_kr"),
]  # fmt: skip


@pytest.mark.parametrize(("language", "encoding"), OTHERS)
def test_encodings_of_other_scripts(language: str, encoding: str) -> None:
    text = (Path(__file__).parent / "texts" / f"{language}.wikitext").read_text(encoding="utf-8")
    data = re.sub(r"[A-Za-z0-9=\[\]{}|*<>/'\"-]+", "", text)[:1000].encode(encoding, "ignore")
    assert decode_book(data) == data.decode(encoding)
    with pytest.raises(NotText, match="bad_encoding"):  # UTF-8 with a byte that is none stays what it is
        decode_book(text[:1000].encode() + b"\xff\n")
    with pytest.raises(NotText, match="bad_encoding"):  # too short to be sure
        decode_book(data[:60])


LATIN = {
    "Zażółć gęślą jaźń, rzekł król. Wieczorem wszyscy poszli do lasu, gdzie rosły wysokie świerki i dęby. ": (
        "cp1250 iso8859_2 iso8859_16 cp852 cp775 cp1257"
    ),
    "Árvíztűrő tükörfúrógép. Este mindenki elment az erdőbe, ahol magas fenyők nőttek. ": "cp1250 iso8859_2 cp852",
    "Příliš žluťoučký kůň úpěl ďábelské ódy. Večer šli všichni do lesa. ": "cp1250 iso8859_2 cp852 mac_latin2",
    "Įlinkdama fechtuotojo špaga sublykčiojusi pragręžė apvalų arbūzą. ": "cp1257 iso8859_4 iso8859_10 cp775",
    "Glāžšķūņa rūķīši dzērumā čiepj Baha koncertflīģeļu vākus. ": "cp1257 iso8859_4 cp775",
    "Pijamalı hasta yağız şoföre çabucak güvendi. Akşam herkes ormana gitti. ": "cp1254 iso8859_9 iso8859_3 cp857",
    "Gojazni đačić s biciklom drži hmelj i finu vatu u džepu nošnje. ": "cp1250 iso8859_2 cp852",
    "El pingüino Wenceslao hizo kilómetros bajo exhaustiva lluvia. ¿Qué más? Árboles. ": "cp1252 cp850 cp437",
    "Kæmi ný öxi hér, ykist þjófum nú bæði víl og ádrepa. ": "cp1252",
    "いろはにほへとちりぬるを。夕方、みんなは森へ行った。": "iso2022_jp iso2022_jp_2004",
    "他走进森林，看见一棵很高的树。": "hz",
}
# Python's single-byte encodings of which ASCII or EBCDIC is a part, and those with escapes.
ALL_ENCODINGS = """
cp037 cp1026 cp1125 cp1140 cp1250 cp1251 cp1252 cp1253 cp1254 cp1255 cp1256 cp1257 cp1258 cp273 cp424 cp437 cp500
cp720 cp737 cp775 cp850 cp852 cp855 cp856 cp857 cp858 cp860 cp862 cp863 cp864 cp865 cp866 cp869 cp874 cp875
hp_roman8 iso8859_1 iso8859_2 iso8859_3 iso8859_4 iso8859_5 iso8859_6 iso8859_7 iso8859_8 iso8859_9 iso8859_10
iso8859_11 iso8859_13 iso8859_14 iso8859_15 iso8859_16 koi8_r koi8_t koi8_u kz1048 mac_croatian mac_cyrillic mac_greek
mac_iceland mac_latin2 mac_roman mac_romanian mac_turkish ptcp154 tis_620 iso2022_jp iso2022_jp_1 iso2022_jp_2
iso2022_jp_2004 iso2022_jp_3 iso2022_jp_ext iso2022_kr hz
"""


@pytest.mark.parametrize("text", LATIN)
def test_old_encodings_are_read_or_refused(text: str) -> None:
    num_read = 0
    for encoding in ALL_ENCODINGS.split():
        with contextlib.suppress(UnicodeEncodeError):
            data = (text * 30).encode(encoding)
            book = parse_book(data, "a.txt", "und")
            if isinstance(book, Page):
                assert book.text == (text * 30).strip(), encoding
                num_read += 1
            else:
                assert book.reason == "bad_encoding"
                assert encoding not in LATIN[text].split(), encoding
    assert num_read >= len(LATIN[text].split())


def test_a_named_encoding_wins(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("Zażółć gęślą jaźń, Grüße.".encode("cp1250"))
    for encoding in ("cp1250", "Windows-1250"):
        (page,) = read(tmp_path, encoding=encoding)
        assert page.text == "Zażółć gęślą jaźń, Grüße."
    (page,) = read(tmp_path, encoding="latin-1")
    assert page.text.endswith("Grüße.")
    (failure,) = read(tmp_path, encoding="utf-8")
    assert isinstance(failure, Failure)
    assert failure.reason == "bad_encoding"
    for unknown in ("klingon", "zlib"):
        with pytest.raises(UserError, match=f"Python has no encoding '{unknown}'"):
            build(PreprocessConfig, {"encoding": unknown}, source="recipe")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_what_a_byte_order_mark_says_is_not_guessed_at(encoding: str) -> None:
    data = "Все люди рождаются свободными. ".encode(encoding)
    with pytest.raises(NotText, match="bad_encoding"):
        decode_book(data + "Все люди рождаются свободными. ".encode("cp1251") * 20 + b"\xff\xdc\xff")


@given(st.lists(st.integers(128, 255), min_size=200, max_size=600).map(bytes))
def test_noise_is_not_guessed_at(data: bytes) -> None:
    with pytest.raises(NotText):
        decode_book(data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("Привет, мир! Это книга.".encode("cp1251"), "bad_encoding"),
        ("今日は良い天気です。".encode("shift_jis"), "bad_encoding"),
        ("déjà vu à l'été".encode() + b"\xff", "bad_encoding"),
        (b"caf\x81 noir", "bad_encoding"),
        ("Дом".encode("utf-16") + b"\0\xdc", "bad_encoding"),
        (b"%PDF-1.7 ...", "binary"),
        (bytes(range(256)) * 8, "binary"),
        (b"\n<!DOCTYPE html>\n<title>404</title>", "html"),
        (b"<!-- a --><HTML>", "html"),
        (b"<?xml version='1.0'?><osis>", "xml"),
    ],
)
def test_what_is_no_text(data: bytes, reason: str) -> None:
    with pytest.raises(NotText, match=f"^{reason}$"):
        decode_book(data)
    found = parse_book(data, "a/b.txt", "und")
    assert isinstance(found, Failure)
    assert (found.id, found.reason) == ("books:a/b.txt", reason)


@given(st.binary(max_size=500))
def test_any_bytes_are_a_book_or_a_failure(data: bytes) -> None:
    found = parse_book(data, "x.txt", "und")
    assert found.id == "books:x.txt"
    assert found.text.encode() is not None


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_unwrapping_loses_nothing_but_spaces(text: str) -> None:
    assert "".join(paragraphs(text).split()) == "".join(text.split())


def test_wrapped_lines_become_paragraphs() -> None:
    text = paragraphs("\r\n\r\n".join([LINES.replace("\n", "\r\n")] * 5 + [VERSE.replace("\n", "\r\n")]))
    assert text.count("\n\n") == 5
    assert text.endswith("\n\n" + VERSE)
    first = text.split("\n\n")[0]
    assert "\n" not in first
    assert "in a self-taught manner" in first
    assert "to interest me" in first


def test_chinese_lines_are_put_together_without_spaces() -> None:
    line = "呻吟語病時語也病中疾痛惟病者知難與他人道亦惟病時覺既瘉旋復忘也"
    assert paragraphs("\n".join([line] * 30)) == line * 30


def test_sentences_and_paragraphs_a_line_stay_lines() -> None:
    sentences = [f"{'word ' * (3 + number * 7 % 31)}." for number in range(200)]
    assert paragraphs("\n".join(sentences)) == "\n".join(sentences)
    assert paragraphs("\n\n\n".join(sentences)) == "\n\n".join(sentences)


def test_gutenberg_boilerplate_goes_and_tells_the_title() -> None:
    header = "\ufeffThe Project Gutenberg eBook of Emma\r\n\r\nTitle: Emma\r\nAuthor: Jane Austen\r\n\r\n"
    start = "*** START OF THE PROJECT GUTENBERG EBOOK EMMA ***\r\n\r\nProduced by A. Reader\r\n\r\n"
    end = "\r\n*** END OF THE PROJECT GUTENBERG EBOOK EMMA ***\r\nSTART: FULL LICENSE"
    found = parse_book((header + start + "Emma Woodhouse, handsome." + end).encode(), "e.txt", "en")
    assert found == Page(id="books:e.txt", language="en", title="Emma", text="Emma Woodhouse, handsome.")
    older = "***START OF THE PROJECT GUTENBERG EBOOK A VERY\nLONG TITLE***\n\nText.\n\n"
    older += "End of Project Gutenberg's A\n***END"
    assert strip_gutenberg(older)[0] == "Text."
    assert strip_gutenberg("*** A book about START OF THE WAR ***") == (
        "*** A book about START OF THE WAR ***",
        None,
    )


def test_languages_of_folders_and_prefixes(tmp_path: Path) -> None:
    for name in (
        "de/a.txt",
        "deu/b.txt",
        "books/my_antonia.txt",
        "books/emma.txt",
        "mixed/fr_a.txt",
        "mixed/it_b.txt",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    languages = {book.id: book.language for book in read(tmp_path) if isinstance(book, Page)}
    assert languages == {
        "books:de/a.txt": "de",
        "books:deu/b.txt": "de",
        "books:books/my_antonia.txt": "und",
        "books:books/emma.txt": "und",
        "books:mixed/fr_a.txt": "fr",
        "books:mixed/it_b.txt": "it",
    }
    assert {book.language for book in read(tmp_path, language="cy") if isinstance(book, Page)} == {"cy"}


def test_books_of_one_name_in_two_folders_keep_apart(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.txt").write_text(folder)
    assert len({book.id for book in read(tmp_path / "a", tmp_path / "b")}) == 2


def test_small_books_share_a_split(tmp_path: Path) -> None:
    for number in range(10):
        (tmp_path / f"{number}.txt").write_text("x" * 400)
    splits = plan_splits(PreprocessConfig(books=(str(tmp_path),), split_bytes=1000))
    assert [len(split.inputs) for split in splits] == [2] * 5


def documents() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = [{"text": f"Text {number} é\n" * (number % 5)} for number in range(50)]
    rows[3] |= {"id": 7, "language": "cy", "title": "Un"}
    return rows


def test_json_lines_do_not_depend_on_the_cut(
    tmp_path: Path, read_cut: Callable[..., list[Page | Failure]]
) -> None:
    path = tmp_path / "a.jsonl"
    lines = [json.dumps(row, ensure_ascii=number % 2 == 0) for number, row in enumerate(documents())]
    bad = ['{"text": ', '{"txt": "a"}', '["a"]', "[" * 100_000, '{"text": "\\ud800"}', ""]
    path.write_text("\n".join(lines + bad) + "\n")
    whole = read(path)
    assert len(whole) == 55
    assert [each.reason for each in whole if isinstance(each, Failure)] == [
        "bad_json",
        "missing_text",
        "bad_json",
        "bad_json",
    ]
    assert whole[-1].text == "\ufffd"
    assert whole[3] == Page(id="books:a.jsonl:7", language="cy", title="Un", text="Text 3 é\n" * 3)
    assert read(path, split_bytes=1000) == whole
    (split,) = plan_splits(PreprocessConfig(books=(str(path),)))
    for cut in range(0, 1500, 7):
        assert read_cut(split, [cut]) == whole
    assert isinstance(forced := read(path, language="en")[3], Page)
    assert forced.language == "en"


def test_parquet_is_cut_by_row_groups(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(
        pa.table({"text": [row["text"] for row in documents()], "other": range(50)}), path, row_group_size=20
    )
    whole = read(path)
    assert [book.text for book in whole] == [row["text"] for row in documents()]
    assert whole[21].id == "books:a.parquet:1.1"
    assert len(plan_splits(PreprocessConfig(books=(str(path),), split_bytes=1000))) == 3
    assert read(path, split_bytes=1000) == whole


def test_tables_without_text_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"txt": ["a"]}), tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_bytes(b"junk")
    with pytest.raises(UserError, match=r"a.parquet has no column 'text', only txt; .*: --text_column NAME"):
        read(tmp_path / "a.parquet")
    with pytest.raises(UserError, match="not a readable Parquet"):
        read(tmp_path / "b.parquet")


def test_a_damaged_row_group_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["x" * 5000 + str(n) for n in range(40)]}), path, row_group_size=20)
    data = bytearray(path.read_bytes())
    data[10:300] = bytes(290)
    (split,) = plan_splits(PreprocessConfig(books=(str(path),)))
    path.write_bytes(data)
    found = list(read_split(split))
    assert [each.reason for each in found if isinstance(each, Failure)] == ["damaged_stream"]
    assert sum(isinstance(each, Page) for each in found) == 20


NOTES = """E-text prepared by Ann Example
and the Project Gutenberg Online Distributed Proofreading Team

Note: Project Gutenberg also has an HTML version of this
      file which includes the original illustrations.
      See 99999-h.htm or 99999-h.zip

"""


@pytest.mark.parametrize(
    ("header", "footer"),
    [
        (
            "The Project Gutenberg Etext of A Title\n\nTitle: A Title\n\nThe Project Gutenberg Etext of A Title\n"
            "*******This file should be named 8xxx10.txt or 8xxx10.zip******\n\n"
            "Corrected EDITIONS of our etexts get a new NUMBER.\n\n",
            "\nEnd of the Project Gutenberg Etext of A Title\n\n*BEFORE!* YOU USE OR READ THIS ETEXT\n"
            "*END THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.02/11/02*END*\n",
        ),
        (
            "**The Project Gutenberg Etext of A Title**\n\n*****This file should be named a.txt*****\n\n"
            "PLEASE READ.\n\n*END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*\n\n"
            "This Project Gutenberg Etext was prepared by Ann Example.\n\n",
            "\nEnd of The Project Gutenberg Etext of A Title\n",
        ),
        (
            f"*** START OF THIS PROJECT GUTENBERG EBOOK A TITLE ***\n\n{NOTES}",
            "\n*** END OF THIS PROJECT GUTENBERG EBOOK A TITLE ***\n",
        ),
    ],
)
@pytest.mark.parametrize("length", [1, 1000])
def test_gutenberg_formats(header: str, footer: str, length: int) -> None:
    book = "It was a cold morning, and nobody could see farther than the last pier.\n\n" * length
    page = parse_book((header + book + footer).encode(), "a.txt", "en")
    assert isinstance(page, Page)
    assert page.text == book.strip()


@pytest.mark.parametrize(
    "text",
    [
        "ในวันนั้นเขาเดินทางไปที่หมู่บ้านซึ่งตั้งอยู่ริมแม่น้ำและพบกับชายชราคนหนึ่ง",
        "នៅថ្ងៃនោះគាត់បានធ្វើដំណើរទៅកាន់ភូមិមួយដែលស្ថិតនៅមាត់ទន្លេ",
        "ထိုနေ့တွင်သူသည်မြစ်ကမ်းနားရှိရွာသို့ခရီးထွက်ခဲ့သည်",
        "その日彼は川のほとりにある村へ旅をして、老人に会った。",
        "“我不知道他去了哪里……”她低声说道，“也许他再也不会回来了。”窗外的雨下得很大——没有停。“后来呢？”",
    ],
)
@pytest.mark.parametrize("width", [31, 37])
def test_wrapped_lines_of_scripts_without_spaces(text: str, width: int) -> None:
    whole = text * 40
    lines = [whole[start : start + width] for start in range(0, len(whole), width)]
    assert paragraphs("\n".join(lines)) == whole
