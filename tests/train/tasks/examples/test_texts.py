"""Texts and pairs from files of every format; each mistake is one line with the file, its line and the remedy."""

import bz2
import gzip
import lzma
from pathlib import Path
from typing import Any

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenfree.core.errors import UserError
from tokenfree.train.tasks.examples.texts import FORMATS, TextExample, TextOptions, read_texts


def write(folder: Path, name: str, content: str | bytes) -> str:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def values(path: Any, **options: Any) -> list[tuple[Any, ...]]:
    found = read_texts(path, TextOptions(**options))
    return [(example.key, example.text, example.second, example.label) for example in found]


def test_label_and_text_a_line(tmp_path: Path) -> None:
    wanted = [("a goose , plain ", None, "4"), ("no goose", None, "0")]
    # Known by its name, or given.
    for name, options in (("stsa.fine.dev", {}), ("geese.txt", {"format": "sst"})):
        path = write(tmp_path, name, "4 a goose , plain \r\n\n0 no goose\n")
        assert values(path, **options) == [
            (f"{name}:{n}", *row) for n, row in zip((1, 3), wanted, strict=True)
        ]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.csv", "text,label\na,1\nb,1.0\nc,-2.00\nd,1.5\ne,v1.0\n"),
        ("x.tsv", "text\tlabel\na\t1\nb\t1.0\nc\t-2.00\nd\t1.5\ne\tv1.0\n"),
        ("x.jsonl", '{"text": "a", "label": 1}\n{"text": "b", "label": 1.0}\n{"text": "c", "label": -2.0}\n'
         '{"text": "d", "label": "1.5"}\n{"text": "e", "label": "v1.0"}\n'),
    ],
)  # fmt: skip
def test_whole_numbers_are_one_class_however_written(tmp_path: Path, name: str, content: str) -> None:
    path = write(tmp_path, name, content)
    assert [row[-1] for row in values(path)] == ["1", "1", "-2", "1.5", "v1.0"]
    labels = ("v1.0", "1.0", "-2", "1.5")  # as an earlier version named them
    assert [row[-1] for row in values(path, labels=labels)] == ["1.0", "1.0", "-2", "1.5", "v1.0"]


def test_reviews_of_two_encodings(tmp_path: Path) -> None:
    line = "1\tsa fiancée – là\n"
    content = b"\xef\xbb\xbf" + line.encode() + line.encode("cp1252")
    path = write(tmp_path, "MR.task.train", content)
    assert values(path) == [(f"MR.task.train:{n}", "sa fiancée – là", None, "1") for n in (1, 2)]
    bad = write(tmp_path, "MR.task.test", b"1\tgood\n0\tb\x81d\n")
    with pytest.raises(
        UserError, match=r"MR.task.test: line 2: this is not cp1252. Convert the file to UTF-8"
    ):
        read_texts(bad)


def test_lines_end_only_where_files_end_them(tmp_path: Path) -> None:
    text = "one\x85two\u2028three\x0cfour\x1cfive"
    assert values(write(tmp_path, "stsa.dev", f"1 {text}\n")) == [("stsa.dev:1", text, None, "1")]
    assert values(write(tmp_path, "x.tsv", f"text\tlabel\n{text}\t1\n")) == [("x.tsv:2", text, None, "1")]


def test_parallel_files(tmp_path: Path) -> None:
    for name, lines in (("s1", "A\nB\nC\n"), ("s2", "D\nE\nF\n"), ("labels", "neutral\n-\nentailment\n")):
        write(tmp_path, f"{name}.dev", lines)
    wanted = [("labels.dev:1", "A", "D", "neutral"), ("labels.dev:3", "C", "F", "entailment")]
    for name in ("dev", "s1.dev", "s2.dev", "labels.dev"):
        found = read_texts(str(tmp_path / name))
        assert [(one.key, one.text, one.second, one.label) for one in found] == wanted
    assert values(write(tmp_path, "labels.csv", "text,label\na,1\n")) == [("labels.csv:2", "a", None, "1")]
    write(tmp_path, "s2.dev", "D\nE\n")
    with pytest.raises(UserError, match=r"s2.dev, .*labels.dev: the numbers of lines differ. Line n of each"):
        read_texts(str(tmp_path / "dev"))
    assert values(write(tmp_path, "dev", "1 a file of that name\n"), format="sst")[0][0] == "dev:1"
    (tmp_path / "s2.dev").unlink()
    with pytest.raises(UserError, match=r"s2.dev: there is no such file"):
        read_texts(str(tmp_path / "s1.dev"))


def test_a_minus_is_a_class_of_single_texts(tmp_path: Path) -> None:
    path = write(tmp_path, "x.csv", "text,label\ngood,+\nbad,-\n")
    assert [row[3] for row in values(path)] == ["+", "-"]


def test_csv_quotes_and_counts_lines(tmp_path: Path) -> None:
    path = write(tmp_path, "x.csv", '\ufeffReview,Sentiment\n"a ""goose"", and\nanother",pos\nplain,neg\n')
    assert values(path) == [
        ("x.csv:2", 'a "goose", and\nanother', None, "pos"),
        ("x.csv:4", "plain", None, "neg"),
    ]


@pytest.mark.parametrize("sign", [";", "\t"])
def test_csv_of_other_signs(tmp_path: Path, sign: str) -> None:
    path = write(tmp_path, "x.csv", f'text{sign}label\n"a{sign}b, c"{sign}1\n')
    assert values(path) == [("x.csv:2", f"a{sign}b, c", None, "1")]


def test_a_long_value_of_csv(tmp_path: Path) -> None:
    assert len(values(write(tmp_path, "x.csv", "text,label\n" + "goose " * 50_000 + ",1\n"))[0][1]) == 300_000


def test_tsv_leaves_quotation_marks(tmp_path: Path) -> None:
    content = 'sentence1\tsentence2\tgold_label\nHe said, "I\tam."\tneutral\n'
    assert values(write(tmp_path, "x.tsv", content)) == [("x.tsv:2", 'He said, "I', 'am."', "neutral")]


def test_columns_are_named(tmp_path: Path) -> None:
    path = write(tmp_path, "x.tsv", "id\tbodytext\tother\tverdict\n7\tgoose\tduck\tyes\n")
    wanted = [("x.tsv:2", "goose", "duck", "yes")]
    assert values(path, text="bodytext", second="other", label="verdict") == wanted
    assert values(path, text="bodytext") == [("x.tsv:2", "goose", None, None)]


def test_json_lines_and_a_list(tmp_path: Path) -> None:
    lines = '{"text": "goo\\nse", "label": 1}\n\n{"text": "half \\ud83d", "label": true}\n{"text": "x", "label": 2.0}'
    found = values(write(tmp_path, "x.jsonl", lines))
    wanted = [("x.jsonl:1", "goo\nse", None, "1"), ("x.jsonl:3", "half \ufffd", None, "true")]
    assert found == [*wanted, ("x.jsonl:4", "x", None, "2")]
    listed = write(tmp_path, "x.json", '[{"premise": "a",\n "hypothesis": "b", "label": null}]')
    assert values(listed) == [("x.json:1", "a", "b", None)]


def test_labels_are_given_to_all_or_none(tmp_path: Path) -> None:
    path = write(tmp_path, "x.csv", "text,label\na,1\nb,\n")
    assert [one.text for one in read_texts(path)] == ["a"]
    assert [row[3] for row in values(write(tmp_path, "y.csv", "text\na\nb\n"))] == [None, None]


def test_numbers_of_regression(tmp_path: Path) -> None:
    path = write(tmp_path, "x.tsv", "sentence1\tsentence2\tscore\na\tb\t3.50\nc\td\t4\n")
    assert [row[3] for row in values(path, regression=True)] == [3.5, 4.0]
    bad = write(tmp_path, "y.tsv", "text\tscore\na\tnan\n")
    with pytest.raises(UserError, match=r"y.tsv:2: the label 'nan' is not a number"):
        read_texts(bad, TextOptions(regression=True))


@pytest.mark.parametrize(
    ("ending", "pack"), [("gz", gzip.compress), ("xz", lzma.compress), ("bz2", bz2.compress)]
)
def test_packed_files(tmp_path: Path, ending: str, pack: Any) -> None:
    packed = pack(b"1 goose\n0 duck\n")
    path = write(tmp_path, f"stsa.dev.{ending}", packed)
    assert [row[0] for row in values(path)] == ["stsa.dev:1", "stsa.dev:2"]
    for damaged in (packed[:-6], b"plain"):
        with pytest.raises(
            UserError, match=rf"stsa.cut.{ending}: cannot be read \(.+\). Check that it is complete"
        ):
            read_texts(write(tmp_path, f"stsa.cut.{ending}", damaged))


def test_any_address() -> None:
    fsspec.filesystem("memory").pipe("/t2/de/x.csv.gz", gzip.compress(b"text,label\nc,1\n"))
    assert values("memory://t2/de/x.csv.gz") == [("x.csv:2", "c", None, "1")]


MISTAKES: dict[str, tuple[str, Any, dict[str, Any], str]] = {
    "no such column": ("x.csv", "text,label\na,1\n", {"text": "body"}, "x.csv: no column, or several, named 'body'"),
    "no usual column": ("x.tsv", "eins\tzwei\na\t1\n", {}, "no column has a usual name. Name one of 'eins', 'zwei'"),
    "two of a name": ("x.csv", "text,label,label\na,1,0\n", {}, "no column, or several, named 'label'. Name one"),
    "wrong label": ("x.csv", "text,label\na,1\nb,7\n", {"labels": ("0", "1")}, "the label '7' .* 0, 1; task.labels"),
    "no class": ("x.jsonl", '{"text": "a", "label": 0.5}', {}, "x.jsonl:1: the label 0.5 .*regression"),
    "no number": ("x.csv", "text,label\na,good\n", {"regression": True}, "x.csv:2: the label 'good' is not a number"),
    "no text": ("x.jsonl", '{"text": 7, "label": 1}', {}, "x.jsonl:1: 7 is not text. Fix it"),
    "a key is missing": ("x.jsonl", '{"text": "a", "label": 1}\n{"text": "b"}', {}, "x.jsonl:2: there is no 'label'"),
    "no object": ("x.jsonl", '{"text": "a"}\n[1]', {}, "line 2: should be a mapping"),
    "no JSON": ("x.jsonl", '{"text": "a"}\n{"text": ', {}, "line 2: no JSON .*. Fix it"),
    "deep JSON": ("x.jsonl", "[" * 100_000, {}, "x.jsonl: no JSON"),
    "columns": ("x.tsv", "text\tlabel\na\t1\nb\n", {}, "line 3: 1 columns, and the first line has 2. Fix"),
    "open quotation": ("x.csv", 'text,label\na,1\n"b,0\n', {}, "line 3: this is not CSV .*. Write \"\" for"),
    "nothing": ("x.csv", "", {}, "this file is empty. Give one"),
    "white space": ("stsa.dev", " \n\n", {}, "this file is empty. Give one"),
    "only names": ("x.csv", "text,label\n", {}, "no example is left. Give a file with examples"),
    "no label": ("stsa.dev", "1 a\ngoose\n", {}, "line 2: 'goose' is not a line of sst"),
    "an empty label": ("x.task.dev", "1\ta\n\tb\n", {}, r"line 2: '\\tb' is not a line of mtl-16"),
    "no tab": ("x.task.dev", "1\ta\n0 b\n", {}, "line 2: '0 b' is not a line of mtl-16"),
    "unknown": ("x.txt", "Once upon a time\n", {}, "the name tells no format. Set task.format to one of sst"),
    "undecodable": ("x.csv", b"text,label\nb\xe4d,1\n", {}, "line 2: this is not utf-8. Convert the file to UTF-8"),
    "not parallel": ("x.csv", "text,label\na,1\n", {"format": "parallel"}, "Set task.format to one of"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line(tmp_path: Path, mistake: str) -> None:
    name, content, options, said = MISTAKES[mistake]
    path = write(tmp_path, name, content)
    with pytest.raises(UserError, match=said) as raised:
        read_texts(path, TextOptions(**options))
    assert str(raised.value).isprintable()
    assert name in str(raised.value)
    assert len(str(raised.value)) < len(path) + 250


def test_the_line_of_a_byte_after_long_lines(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", b"text\n" + b"x" * 10_000 + b"\ny\n" + b"x" * 10_000 + b"\nz \xe9 z\n")
    with pytest.raises(UserError, match="line 5: this is not utf-8"):
        read_texts(path)


def test_paths_that_are_none(tmp_path: Path) -> None:
    for path, said in (
        (str(tmp_path), "this is a folder. Give the files in it"),
        (str(tmp_path / "x.csv"), "there is no such file"),
        ("", "a path is empty"),
        ("zip://a::b.zip", "'::' in a path"),
        ("nowhere://a.csv", "cannot be read"),
    ):
        with pytest.raises(UserError, match=said):
            read_texts(path)


TOKENS = (b"text", b"label", b",", b"\t", b"\n", b'"', b"\r\n", b"1 ", b"{", b"}", b":", b"[", b"-", b"\xff")
LINES = (b'{"text": "a", "label": 1}\n', b"text,label\n", b"premise\thypothesis\tlabel\n", b"a\tb\t-\n")
PIECES = st.lists(st.one_of(st.binary(max_size=6), st.sampled_from(TOKENS + LINES)), max_size=12).map(
    b"".join
)


@given(content=PIECES, format=st.sampled_from([None, *FORMATS]))
def test_any_bytes_give_examples_or_a_users_error(content: bytes, format: Any) -> None:
    fsspec.filesystem("memory").pipe("/t2/any.dev", content)
    said, found = "", []
    try:
        found = read_texts("memory://t2/any.dev", TextOptions(format=format))
    except UserError as error:
        said = str(error)
    assert bool(found) != ("any.dev" in said)
    assert "\n" not in said
    assert len({one.key for one in found}) == len(found)
    assert len({one.label is None for one in found}) < 2
    for one in found:
        assert isinstance(one, TextExample)
        (one.text + (one.second or "") + str(one.label)).encode()
