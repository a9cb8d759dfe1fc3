"""Tagged sentences: the columns of each kind of file, BIO, and mistakes that name their line."""

from pathlib import Path
from typing import Any, get_args

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenfree.core.errors import UserError
from tokenfree.train.tasks.examples import tagged as bio
from tokenfree.train.tasks.examples.tagged import TaggedFormat, TaggedOptions, read_tagged

CONLLU = """# sent_id = 1
# text = Geese don't land.
1\tGeese\tgoose\tNOUN\tNNS\t_\t4\tnsubj\t_\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdo\tdo\tAUX\tVB\t_\t4\taux\t_\t_
3\tn't\tnot\tPART\tRB\t_\t4\tadvmod\t_\t_
3.1\tever\t_\tADV\t_\t_\t_\t_\t_\t_
4\tland\tland\tVERB\tVB\t_\t0\troot\t_\tSpaceAfter=No

"""


def write(folder: Path, name: str, content: str | bytes) -> str:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def values(path: str, **options: Any) -> list[tuple[Any, ...]]:
    return [(one.key, one.words, one.tags) for one in read_tagged(path, TaggedOptions(**options))]


def test_two_columns(tmp_path: Path) -> None:
    # No comments here; an odd space is in a word.
    content = "\ufeff# B-X\n#tag I-X\n \n\nNa\u00a0me O\r\n\ufeff\n"
    wanted = [("x.txt:1", ("#", "#tag"), ("B-X", "I-X")), ("x.txt:5", ("Na\u00a0me",), ("O",))]
    assert values(write(tmp_path, "x.txt", content)) == wanted
    assert values(write(tmp_path, "x.txt", content.replace(" ", "\t"))) == wanted


def test_a_first_column_that_counts(tmp_path: Path) -> None:
    content = "#\thttp://geese\n1\tGoose\tB-LOC\tB-PER\n2\t#\tO\tO\n\n1\tduck\tO\tO\n"
    path = write(tmp_path, "x.tsv", content)
    assert values(path) == [("x.tsv:2", ("Goose", "#"), ("B-LOC", "O")), ("x.tsv:5", ("duck",), ("O",))]
    assert [row[2] for row in values(path, tags="4")] == [("B-PER", "O"), ("O",)]


def test_a_number_is_a_word(tmp_path: Path) -> None:
    content = "1 CD O \ngoose NN B-X\n\n-DOCSTART- -X- O\n\n2 CD O\n"
    wanted = [("x.conll:1", ("1", "goose"), ("O", "B-X")), ("x.conll:6", ("2",), ("O",))]
    assert values(write(tmp_path, "x.conll", content)) == wanted
    assert values(write(tmp_path, "x.conll", content), tags="2")[0][2] == ("CD", "NN")


@pytest.mark.parametrize("name", ["x.conllu", "x.txt"])
def test_universal_dependencies(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, name, CONLLU)
    words = ("Geese", "do", "n't", "land")
    assert values(path) == [(f"{name}:3", words, ("NOUN", "AUX", "PART", "VERB"))]
    assert values(path, tags="5") == [(f"{name}:3", words, ("NNS", "VB", "RB", "VB"))]
    assert values(path, words="3", tags="8")[0][1:] == (
        ("goose", "do", "not", "land"),
        ("nsubj", "aux", "advmod", "root"),
    )


def test_json_lines(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "x.jsonl",
        '{"tokens": ["a", "b"], "ner_tags": ["B-X", "I-X"]}\n{"tokens": [], "ner_tags": []}\n',
    )
    assert values(path) == [("x.jsonl:1", ("a", "b"), ("B-X", "I-X"))]
    unlabelled = write(tmp_path, "y.jsonl", '{"words": ["a", "b"]}\n')
    assert values(unlabelled) == [("y.jsonl:1", ("a", "b"), None)]


def test_an_i_without_its_b_begins_a_span(tmp_path: Path) -> None:
    path = write(tmp_path, "x.txt", "a I-X\nb I-X\nc I-Y\nd B-Y\ne O\nf I-Y\n\ng I-Y\n")
    found = read_tagged(path)
    assert [one.tags for one in found] == [("B-X", "I-X", "B-Y", "B-Y", "O", "B-Y"), ("B-Y",)]
    with pytest.raises(UserError, match=r"x.txt:1: the tag 'I-X' of 'a' continues no span. Write B-"):
        read_tagged(path, TaggedOptions(scheme="strict_bio"))
    assert read_tagged(path, TaggedOptions(scheme="words"))[1].tags == ("I-Y",)


@given(st.lists(st.sampled_from(["O", "B-X", "I-X", "B-Y", "I-Y"])))
def test_fixed_tags_fit(tags: list[str]) -> None:
    path = "memory://fixed.txt"
    fsspec.filesystem("memory").pipe("/fixed.txt", "".join(f"w {tag}\n" for tag in ["O", *tags]).encode())
    fixed = list(read_tagged(path, TaggedOptions(scheme="bio"))[0].tags or ())[1:]
    assert not bio.find_misfits(fixed)
    assert [tag[1:] for tag in fixed] == [tag[1:] for tag in tags]
    assert bio.find_misfits(tags) == [
        n for n, (one, other) in enumerate(zip(tags, fixed, strict=True)) if one != other
    ]


MISTAKES: dict[str, tuple[Any, dict[str, Any], str]] = {
    "a tag is missing": (
        "a\tO\nb\tB-X\nc\n",
        {},
        "line 3: 1 columns, but columns 1 and 2 of 2 .*. Fix the line",
    ),
    "one column": ("a\nb\n", {}, "line 1: 1 columns, but columns 1 and 1 of 1"),
    "no such column": (
        "a O\n",
        {"tags": "4"},
        "line 1: 2 columns, but columns 1 and 4 of 2 .* give other columns",
    ),
    "no word": ("a\tO\n\tO\n", {}, "line 2: .* has an empty word or tag. Fix"),
    "no tag": ("a\tO\nb\t\n", {}, "line 2: .* has an empty word or tag. Fix"),
    "no BIO": (
        "a O\nb B-X\nc L-X\n",
        {},
        "x.txt:1: the tag 'L-X' of 'c' is neither O nor B-TYPE nor I-TYPE. Fix it",
    ),
    "no type": ("a B-X\nb B-\n", {}, "x.txt:1: the tag 'B-' of 'b' is neither"),
    "unknown tag": (
        "a O\nb B-X\n",
        {"labels": ("O", "B-Y")},
        "x.txt:1: the tag 'B-X' .* task.labels. There are O, B-Y",
    ),
    "undecodable": (b"a O\nb\xff O\n", {}, "line 2: this is not utf-8"),
    "empty": ("\n \n", {}, "this file is empty"),
    "only a mark": ("\n\ufeff\ufeff\n", {}, "no sentence is in this file"),
    "other numbers": (
        '{"tokens": ["a", "b"], "tags": ["O"]}',
        {},
        "l:1: 2 words and 1 tags. Each word must have",
    ),
    "no list": ('{"tokens": "a b", "tags": ["O"]}', {}, "l:1: 'a b' is not a list. Fix it"),
    "no text": ('{"tokens": [null], "tags": ["O"]}', {}, "l:1: None is not text"),
    "no words": ('{"text": "a"}', {}, "no column has a usual name. Name one of 'text'"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line(tmp_path: Path, mistake: str) -> None:
    content, options, said = MISTAKES[mistake]
    name = "x.jsonl" if str(content).startswith("{") else "x.txt"
    path = write(tmp_path, name, content)
    with pytest.raises(UserError, match=said) as raised:
        read_tagged(path, TaggedOptions(**options))
    assert name in str(raised.value)
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < len(path) + 200


def test_options_that_are_none(tmp_path: Path) -> None:
    path = write(tmp_path, "x.txt", "a O\n")
    mistakes: tuple[tuple[dict[str, Any], str], ...] = (
        ({"words": "0"}, "'0' is not a column of words or tags. Give its number, from 1"),
        ({"tags": "tag"}, "'tag' is not a column"),
    )
    for options, said in mistakes:
        with pytest.raises(UserError, match=said):
            read_tagged(path, TaggedOptions(**options))


TOKENS = (
    b"a",
    b" ",
    b"\t",
    b"\n",
    b"\n\n",
    b"O",
    b"B-X",
    b"I-X",
    b"#",
    b"1\t",
    b"2\t",
    b"\xef\xbb\xbf",
    b"\xff",
    b"\r",
)
LINES = (
    b"a O\n",
    b"a\tB-X\n",
    b"1\ta\tB-X\n",
    b"2\tb\tI-X\n",
    b'{"tokens": ["a"], "tags": ["O"]}\n',
    b"1" + b"\t_" * 9,
)
PIECES = st.lists(st.one_of(st.binary(max_size=4), st.sampled_from(TOKENS + LINES)), max_size=12).map(
    b"".join
)


@given(
    content=PIECES,
    format=st.sampled_from([None, *get_args(TaggedFormat)]),
    scheme=st.sampled_from([None, "bio", "words"]),
    tags=st.sampled_from([None, "1", "2", "3"]),
)
def test_any_bytes_give_sentences_or_a_users_error(
    content: bytes, format: Any, scheme: Any, tags: str | None
) -> None:
    fsspec.filesystem("memory").pipe("/t2/any.tagged", content)
    said, found = "", []
    try:
        found = read_tagged("memory://t2/any.tagged", TaggedOptions(format=format, scheme=scheme, tags=tags))
    except UserError as error:
        said = str(error)
    assert bool(found) != ("any.tagged" in said)
    assert "\n" not in said
    assert len({one.key for one in found}) == len(found)
    for one in found:
        assert one.words
        assert one.tags is None or len(one.tags) == len(one.words)
        assert all(one.words)
        " ".join(one.words + (one.tags or ())).encode()
